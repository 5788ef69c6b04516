/** Versions of functions: the addresses of pinned ones (`/<name>@<version>`), and which ones have the same code. Spec: §9. */

import type { FunctionVersion } from './catalog.ts'

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

/** True when both have the same code: a program or package set of one serves the other. Their policies may differ. */
export function isSameVersion(a: FunctionVersion, b: FunctionVersion): boolean {
  return a === b || (a.signature === b.signature && a.entryPath === b.entryPath)
}
