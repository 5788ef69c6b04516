/** Temporary directory trees for tests. */

import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

/** What a path of a tree holds: text, bytes, JSON to be written, or a link. A path that ends in `/` is an empty folder. */
export type TreeEntry = string | Uint8Array | { json: unknown } | { symlink: string }

export interface Tree {
  /** Full real path of the folder. */
  root: string
  /** Full path of a file or folder in the tree. */
  path: (relative: string) => string
  /** Adds or replaces entries, in the order given. */
  write: (entries: Record<string, TreeEntry>) => void
  /** Deletes a file or a whole folder; missing ones are fine. */
  remove: (relative: string) => void
  /** Deletes the tree. Give it to `t.teardown`. */
  cleanup: () => void
}

/**
 * Makes a fresh temporary folder and fills it:
 * `makeTree({ 'users/[id].js': '...', 'hello/fn.config.json': { json: {} }, 'empty/': '', 'link': { symlink: 'users' } })`.
 */
export function makeTree(entries: Record<string, TreeEntry> = {}): Tree {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-test-')))
  const write = (more: Record<string, TreeEntry>) => {
    for (const [relative, entry] of Object.entries(more))
      writeEntry(join(root, relative), relative.endsWith('/'), entry)
  }
  write(entries)
  return {
    root,
    path: relative => join(root, relative),
    write,
    remove: relative => rmSync(join(root, relative), { recursive: true, force: true }),
    cleanup: () => rmSync(root, { recursive: true, force: true }),
  }
}

function writeEntry(path: string, isFolder: boolean, entry: TreeEntry): void {
  if (isFolder) {
    mkdirSync(path, { recursive: true })
    return
  }
  mkdirSync(dirname(path), { recursive: true })
  if (typeof entry === 'string' || entry instanceof Uint8Array) writeFileSync(path, entry)
  else if ('symlink' in entry) symlinkSync(entry.symlink, path)
  else writeFileSync(path, JSON.stringify(entry.json))
}
