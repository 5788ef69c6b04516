/**
 * TypeScript, and files whose style their package.json contradicts, through tsx; without it node strips types where it can.
 * Page: runtimes/node.
 */

import { readFileSync } from 'node:fs'
import { createRequire, register } from 'node:module'
import { pathToFileURL } from 'node:url'
import { LoadError } from './failure.mjs'
import { messageOf, transformErrors } from './load-failure.mjs'

const own = createRequire(import.meta.url)
const TOP_LEVEL_AWAIT = /Top-level await/
const WITHOUT_TSX =
  'npm install tsx beside fngw, or node 22.18 or newer, which runs TypeScript that is types and nothing more'

export class Compiler {
  /** @type {string | null} */
  #cacheDir
  /** Where tsx was loaded from, null while it is not. @type {string | null} */
  #path = null

  /** @param {string | null} cacheDir - private folder for compiled code; null: compile every time */
  constructor(cacheDir) {
    this.#cacheDir = cacheDir
  }

  /**
   * `require` through tsx, which takes every style but top-level await; for that one `import()` with tsx hooks.
   * @param {string} file
   */
  async load(file) {
    const tsx = this.#findTsx()
    if (tsx === null) return loadStripped(file)
    process.setSourceMapsEnabled(true)
    // Node advises to change package.json before tsx compiles the file; the author need not do that.
    const speakAgain = silence('To load an ES module')
    try {
      return /** @type {any} */ (tsx).require(file, import.meta.url)
    } catch (error) {
      if (!TOP_LEVEL_AWAIT.test(messageOf(error))) throw error
    } finally {
      speakAgain()
    }
    const hooks = await import('tsx/esm/api')
    hooks.register()
    tsx.register()
    register('./module-hooks.mjs', {
      parentURL: import.meta.url,
      data: { parents: [], moduleUrl: pathToFileURL(file).href },
    })
    return import(pathToFileURL(file).href)
  }

  /** Loads and starts the compiler ahead of the handler. */
  warmUp() {
    try {
      this.#findTsx()?.require('./warm-up/typescript.ts', import.meta.url)
    } catch {
      // The handler's own load will say what is wrong.
    }
  }

  /** Ends the compiler's helper process, once a handler is loaded; a later `require` of TypeScript starts it again. */
  stop() {
    if (this.#path !== null) createRequire(this.#path)('esbuild').stop()
  }

  /**
   * Node does not say where an ES module is wrong: esbuild, which comes with tsx, looks for it in the file and its imports.
   * @param {string[]} sources - full paths
   */
  findSyntaxError(sources) {
    try {
      const { transformSync } = createRequire(own.resolve('tsx/cjs/api'))('esbuild')
      for (const source of sources) {
        try {
          transformSync(readFileSync(source, 'utf8'), {
            loader: 'ts',
            sourcefile: source,
            format: 'esm',
            logLevel: 'silent',
          })
        } catch (error) {
          const [place] = transformErrors(messageOf(error))
          if (place !== undefined) return { file: place.file, line: place.line }
        }
      }
    } catch {
      // Without esbuild the message has to do.
    }
    return undefined
  }

  /**
   * tsx with its cache in a private folder: in a shared temp dir another user could plant compiled code.
   * @returns {any} its `tsx/cjs/api`, null where it is not installed
   */
  #findTsx() {
    const before = process.env.TMPDIR
    if (this.#cacheDir === null) process.env.TSX_DISABLE_CACHE = '1'
    else process.env.TMPDIR = this.#cacheDir
    try {
      this.#path = own.resolve('tsx/cjs/api')
      return own(this.#path)
    } catch (error) {
      if (/** @type {any} */ (error)?.code !== 'MODULE_NOT_FOUND') throw error
      return null
    } finally {
      delete process.env.TSX_DISABLE_CACHE
      if (before === undefined) delete process.env.TMPDIR
      else process.env.TMPDIR = before
    }
  }
}

/**
 * A file whose types node takes out itself, as node 22.18 and newer do unless they are told not to.
 * @param {string} file
 */
async function loadStripped(file) {
  if (!isTypeScript(file) || !(/** @type {any} */ (process.features).typescript))
    throw new LoadError('TypeScript handlers need the package tsx, which is not installed', { file, hint: WITHOUT_TSX })
  const speakAgain = silence('Type Stripping is an experimental feature')
  try {
    return await import(pathToFileURL(file).href)
  } finally {
    speakAgain()
  }
}

/** @param {string} file */
function isTypeScript(file) {
  return /\.[mc]?ts$/.test(file)
}

/**
 * Keeps a warning of node's out of the log.
 * @param {string} beginning - of its text
 * @returns {() => void} ends that
 */
function silence(beginning) {
  const { emitWarning } = process
  process.emitWarning = /** @type {typeof emitWarning} */ (
    (warning, ...rest) => {
      if (!String(warning).startsWith(beginning)) Reflect.apply(emitWarning, process, [warning, ...rest])
    }
  )
  return () => {
    process.emitWarning = emitWarning
  }
}
