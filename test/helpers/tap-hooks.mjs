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

export async function resolve(specifier, context, next) {
  if (specifier === 'tap' && tapUrl !== null) return { url: tapUrl, format: 'module', shortCircuit: true }
  const found = await next(specifier, context)
  if (compiled === null || !/^file:.*\.ts$/.test(found.url)) return found
  const file = compiledFileOf(compiled, fileURLToPath(found.url))
  return file === null ? found : { url: pathToFileURL(file).href, format: 'module', shortCircuit: true }
}

export async function load(url, context, next) {
  if (url === tapUrl) return { format: 'module', source: readFileSync(new URL(url)), shortCircuit: true }
  if (compiled === null || !/\.m?ts(?:\?|$)/.test(url)) return next(url, context)
  return { format: 'module', source: await compile(fileURLToPath(url)), shortCircuit: true }
}

/** What a test wrote itself. */
async function compile(path) {
  const { transform } = await import('esbuild')
  const { code } = await transform(readFileSync(path, 'utf8'), { loader: 'ts', target: 'node20', sourcefile: path })
  return code
}
