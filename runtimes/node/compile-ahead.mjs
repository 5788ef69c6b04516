/**
 * Compiles TypeScript files, and what they import by relative paths, into the private folder in which workers look first. A program of its
 * own, run by the gateway while nobody waits, so that no source text can hang or end the gateway or a worker. Page: runtime/compile-ahead.
 *
 *   node compile-ahead.mjs <functions root> <folder for compiled code> <full path of a file> ...
 */

import { mkdirSync, realpathSync, statSync } from 'node:fs'
import { setPriority } from 'node:os'
import { extname } from 'node:path'
import { Compiler } from './compiler.mjs'
import { Sources } from './sources.mjs'

/** The least that the system gives: whoever else wants the processor has it. */
const LOWEST_PRIORITY = 19
/** Of one file; larger ones are compiled when they are loaded. */
const MAX_FILE_BYTES = 256 * 1024
/** Of one function. */
const MAX_FILES = 50
const SOURCES = new Set(['.ts', '.mts', '.cts', '.js', '.mjs', '.cjs'])

const [root = '', folder = '', ...entries] = process.argv.slice(2)

setPriority(LOWEST_PRIORITY)
mkdirSync(folder, { recursive: true, mode: 0o700 })
const compiler = new Compiler(folder)
for (const entry of entries) {
  for (const file of listSources(entry)) {
    try {
      compiler.keep(file)
    } catch {
      // Its worker says what is wrong with it.
    }
  }
}
compiler.stop()

/** @param {string} entry @returns {string[]} real paths */
function listSources(entry) {
  try {
    return new Sources(realpathSync(entry), root).list().filter(isWorthIt).slice(0, MAX_FILES)
  } catch {
    // Gone meanwhile.
    return []
  }
}

/** @param {string} file */
function isWorthIt(file) {
  const stats = statSync(file, { throwIfNoEntry: false })
  return SOURCES.has(extname(file)) && stats?.isFile() === true && stats.size <= MAX_FILE_BYTES
}
