/**
 * Packages that a manifest names by their folder: what lies there is part of what is built. Owner: §2.16, page
 * dependencies/resolve.
 */

import { statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { filesBelow, readOptional } from './build.ts'

/** Files of such packages that are looked at; a folder with more is no package. */
const MAX_LOCAL_FILES = 5000

/** `replace example.com/left => ../left`, alone or in a block; a path begins with a dot or a slash. */
const GO_REPLACEMENT = /=>\s*("?)(\.{1,2}(?:\/[^\s"]*)?|\/[^\s"]+)\1/g

/** Full paths of the files in folders that a `go.mod` puts in the place of modules. */
export function filesOfGoReplacements(folder: string, mod: string): string[] {
  const text = mod.replace(/\/\/.*$/gm, '')
  return filesOf([...text.matchAll(GO_REPLACEMENT)].map(([, , path]) => resolve(folder, path!)))
}

const CARGO_PATH = /\bpath\s*=\s*(?:"([^"]*)"|'([^']*)')/g

/** Full paths of the folders of crates that a folder's `Cargo.toml` names by path, and that these name. */
export function pathCratesOf(folder: string): string[] {
  const seen = new Set([folder])
  for (const crate of seen) {
    const text = readOptional(join(crate, 'Cargo.toml'))?.replace(/^\s*#.*$/gm, '') ?? ''
    // In its own tables `path` is a file: the one of a target.
    for (const [, double, single] of text.matchAll(CARGO_PATH)) {
      const path = resolve(crate, double ?? single ?? '')
      if (isFolder(path)) seen.add(path)
    }
  }
  seen.delete(folder)
  return [...seen]
}

/** Full paths of the files of those crates. */
export function filesOfPathCrates(folder: string): string[] {
  return filesOf(pathCratesOf(folder))
}

function filesOf(folders: readonly string[]): string[] {
  const found = folders.filter(isFolder).flatMap(folder => filesBelow(folder, () => true))
  return [...new Set(found)].sort().slice(0, MAX_LOCAL_FILES)
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}
