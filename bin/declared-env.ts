/** Which variables the files of a tree declare: those of this process may replace their values. Page: bin/container. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseDotenv, parseFunctionEnv } from '../lib/config/function-env.ts'
import { readEnvFiles } from '../lib/config/project-file.ts'
import { MAX_CONFIG_FILE_BYTES } from '../lib/core/limits.ts'

const MAX_DEPTH = 16
/** Entries of the tree that are looked at: a folder of another kind must not hold up the start. */
const MAX_ENTRIES = 200_000

/**
 * Names in `.env` and `fn.env.json` of every folder below `root`, and in the env files of the project. Unreadable files declare
 * nothing: the gateway reports them.
 */
export function listDeclaredVariables(root: string, envDir: string): Set<string> {
  const names = new Set(Object.keys(readEnvFiles(envDir, {}, envDir).values))
  const folders = [{ path: root, depth: 0 }]
  let left = MAX_ENTRIES
  for (const { path, depth } of folders) {
    for (const entry of readFolder(path)) {
      left -= 1
      if (left < 0) return names
      const full = join(path, entry.name)
      if (entry.isDirectory() && depth < MAX_DEPTH && isSearched(entry.name))
        folders.push({ path: full, depth: depth + 1 })
      else if (entry.isFile()) for (const name of namesIn(full, entry.name)) names.add(name)
    }
  }
  return names
}

function isSearched(name: string): boolean {
  return !name.startsWith('.') && name !== 'node_modules' && name !== 'vendor'
}

function readFolder(path: string) {
  try {
    return readdirSync(path, { withFileTypes: true })
  } catch {
    return []
  }
}

function namesIn(path: string, name: string): string[] {
  if (name !== '.env' && name !== 'fn.env.json') return []
  try {
    const bytes = readFileSync(path)
    if (bytes.length > MAX_CONFIG_FILE_BYTES) return []
    const declared =
      name === '.env' ? parseDotenv(bytes.toString('utf8'), path, []) : parseFunctionEnv(bytes, path).value.env
    return Object.keys(declared)
  } catch {
    return []
  }
}
