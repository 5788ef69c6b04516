/** Addresses of pinned versions: `/<name>@<version>`. Spec: §9. */

/** The label shown where a version is required and none was given. */
export const DEFAULT_VERSION_LABEL = 'default'

/** The public path of a pinned version. */
export function toVersionPath(name: string, version: string): string {
  return `/${name}@${version}`
}

/** The path that a call without a route shows to its handler. */
export function toFunctionPath(name: string, version: string | null): string {
  return version === null ? `/${name}` : toVersionPath(name, version)
}
