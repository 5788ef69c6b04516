/** The source files a handler is made of, so that a change of any of them starts a new worker. Page: runtime/daemon. */

import { readFileSync, realpathSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, resolve } from 'node:path'

const MAX_FILES = 500
const MAX_FILE_BYTES = 1024 * 1024
const IMPORT = /(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*(['"])(\.{1,2}\/[^'"\n]+)\1/g
const ENDINGS = ['', '.js', '.ts', '.mjs', '.cjs', '.mts', '.cts', '.json', '/index.js', '/index.ts']

/**
 * The handler and every file it reaches by relative imports, plus what `require` loaded; packages are left out.
 * The text is searched, not parsed: a path in a comment only adds a file too many.
 * @param {string} entry - full path
 * @returns {string[]} full paths, the entry first
 */
export function listSources(entry) {
  const files = new Set([entry])
  for (const file of files) {
    if (files.size > MAX_FILES) break
    for (const match of read(file).matchAll(IMPORT)) {
      const found = toFile(resolve(dirname(file), /** @type {string} */ (match[2])))
      if (found !== null) files.add(found)
    }
  }
  const own = dirname(import.meta.filename ?? '')
  for (const key of Object.keys(createRequire(entry).cache)) {
    const file = key.replace(/\?.*$/, '')
    if (!file.includes('/node_modules/') && !file.startsWith(own) && files.size < MAX_FILES) files.add(file)
  }
  return [...files]
}

/** @param {string} file */
function read(file) {
  try {
    return statSync(file).size > MAX_FILE_BYTES || file.endsWith('.json') ? '' : readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

/** @param {string} path @returns {string | null} */
function toFile(path) {
  for (const candidate of [...ENDINGS.map(ending => path + ending), path.replace(/\.(\w?)js$/, '.$1ts')]) {
    try {
      if (statSync(candidate).isFile()) return realpathSync(candidate)
    } catch {
      // Try the next ending.
    }
  }
  return null
}
