/** Addresses of pinned versions: `/<name>@<version>`. Spec: §9. */

import { isFunctionName, isVersion } from './identity.ts'

/** The label shown where a version is required and none was given. */
export const DEFAULT_VERSION_LABEL = 'default'

export interface VersionAddress {
  name: string
  version: string
}

/**
 * Reads `/<name>@<version>`; the name may be namespaced.
 * @param urlPath - decoded path with a leading slash and no trailing one
 * @returns null when the path is no such address
 */
export function parseVersionPath(urlPath: string): VersionAddress | null {
  const at = urlPath.lastIndexOf('@')
  if (at < 2) return null
  const name = urlPath.slice(1, at)
  const version = urlPath.slice(at + 1)
  return isFunctionName(name) && isVersion(version) ? { name, version } : null
}

/** The public path of a pinned version. */
export function toVersionPath(name: string, version: string): string {
  return `/${name}@${version}`
}
