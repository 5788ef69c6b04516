// Hooks of tap-loader.mjs: they run in the loader's thread, before those of tsx.
import { readFileSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { compiledFileOf } from './compiled-sources.mjs'

/** URL of tap's one file; null in a process that runs no test. */
let tapUrl = null
/** Folder of what is compiled already; null leaves TypeScript to tsx. */
let compiled = null

export function initialize(given) {
  tapUrl = given.tap === undefined ? null : pathToFileURL(given.tap).href
  compiled = given.compiled
}

export function resolve(specifier, context, next) {
  return specifier === 'tap' && tapUrl !== null
    ? { url: tapUrl, format: 'module', shortCircuit: true }
    : next(specifier, context)
}

export async function load(url, context, next) {
  if (url === tapUrl) return { format: 'module', source: readFileSync(new URL(url)), shortCircuit: true }
  if (compiled === null || !/\.m?ts(?:\?|$)/.test(url)) return next(url, context)
  const path = fileURLToPath(url)
  const source = readFileOrNull(compiledFileOf(compiled, path)) ?? (await compile(path))
  return { format: 'module', source, shortCircuit: true }
}

/** What a test wrote itself. */
async function compile(path) {
  const { transform } = await import('esbuild')
  const { code } = await transform(readFileSync(path, 'utf8'), { loader: 'ts', target: 'node20', sourcefile: path })
  return code
}

function readFileOrNull(path) {
  try {
    return path === null ? null : readFileSync(path)
  } catch {
    return null
  }
}
