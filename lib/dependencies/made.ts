/** What a build or an install made, as people are told of it. Owner: §2.16, page dependencies/install. */

import { statSync } from 'node:fs'
import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'

export interface Made {
  /** Packages that are there now; null for a program. */
  packages: number | null
  bytes: number
  /** Packages that were asked for, such as `requests==2.32.3`. */
  names: readonly string[]
  /** True when all of it was there already, for another function. */
  isShared: boolean
}

/** Names that one line shows. */
const MAX_SHOWN_NAMES = 5
/** Files that are looked at at once. */
const LOOKS_AT_ONCE = 16

/** @param path - full path of the program */
export function toProgramMade(path: string): Made {
  return { packages: null, bytes: statSync(path).size, names: [], isShared: false }
}

/** All that one install put in place: packs and the function's own. */
export function joinMade(parts: readonly Made[]): Made {
  return {
    packages: parts.reduce((sum, { packages }) => sum + (packages ?? 0), 0),
    bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
    names: parts.flatMap(({ names }) => names),
    isShared: parts.every(({ isShared }) => isShared),
  }
}

/** One line: `installed 4 packages for python/hello@default in 2.3 s, 34 MB: requests==2.32.3`. */
export function toMadeText(key: string, durationMs: number, { packages, bytes, names, isShared }: Made): string {
  const time = `in ${(durationMs / 1000).toFixed(1)} s`
  if (packages === null) return `built ${key} ${time}, ${toSizeText(bytes)}`
  if (packages === 0) return `installed no packages for ${key} ${time}: none is needed`
  const count = `${packages} ${packages === 1 ? 'package' : 'packages'}`
  const more = names.length > MAX_SHOWN_NAMES ? ` and ${names.length - MAX_SHOWN_NAMES} more` : ''
  const shown = names.length === 0 ? '' : `: ${names.slice(0, MAX_SHOWN_NAMES).join(', ')}${more}`
  return `installed ${count} for ${key} ${time}, ${toSizeText(bytes)}${isShared ? ' shared with others' : ''}${shown}`
}

/** As disks are sold: `34 MB`, `2.1 MB`, `512 kB`. */
export function toSizeText(bytes: number): string {
  if (bytes === 0) return '0 kB'
  const units = ['kB', 'MB', 'GB', 'TB']
  let value = bytes / 1000
  let unit = 0
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000
    unit += 1
  }
  const digits = value >= 9.95 ? 0 : 1
  return `${Math.max(value, 0.1).toFixed(digits)} ${units[unit]}`
}

/** Bytes of all files below a folder; links are not followed. */
export async function sizeOf(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true })
  let sum = 0
  for (let at = 0; at < entries.length; at += LOOKS_AT_ONCE) {
    const sizes = await Promise.all(
      entries.slice(at, at + LOOKS_AT_ONCE).map(async entry => {
        const path = join(folder, entry.name)
        if (entry.isDirectory()) return sizeOf(path)
        return entry.isFile() ? (await lstat(path)).size : 0
      }),
    )
    for (const size of sizes) sum += size
  }
  return sum
}
