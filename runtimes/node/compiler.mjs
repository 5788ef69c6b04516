/**
 * TypeScript, and files whose style their package.json contradicts, through tsx. Page: runtimes/node.
 */

import { readFileSync } from 'node:fs'
import { createRequire, register } from 'node:module'
import { pathToFileURL } from 'node:url'
import { LoadError } from './failure.mjs'
import { messageOf, transformErrors } from './load-failure.mjs'

const own = createRequire(import.meta.url)
const TOP_LEVEL_AWAIT = /Top-level await/

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
    const tsx = this.#requireTsx()
    process.setSourceMapsEnabled(true)
    const { emitWarning } = process
    process.emitWarning = /** @type {typeof emitWarning} */ (
      (warning, ...rest) => {
        // Node advises to change package.json before tsx compiles the file; the author need not do that.
        if (!String(warning).startsWith('To load an ES module')) Reflect.apply(emitWarning, process, [warning, ...rest])
      }
    )
    try {
      return /** @type {any} */ (tsx).require(file, import.meta.url)
    } catch (error) {
      if (!TOP_LEVEL_AWAIT.test(messageOf(error))) throw error
    } finally {
      process.emitWarning = emitWarning
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
      /** @type {any} */
      this.#requireTsx().require('./warm-up/typescript.ts', import.meta.url)
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
   * @returns {typeof import('tsx/cjs/api')}
   */
  #requireTsx() {
    const before = process.env.TMPDIR
    if (this.#cacheDir === null) process.env.TSX_DISABLE_CACHE = '1'
    else process.env.TMPDIR = this.#cacheDir
    try {
      this.#path = own.resolve('tsx/cjs/api')
      return own(this.#path)
    } catch (error) {
      if (/** @type {any} */ (error)?.code !== 'MODULE_NOT_FOUND') throw error
      throw new LoadError('TypeScript handlers need the package tsx, which is not installed', {
        hint: 'npm install tsx',
      })
    } finally {
      delete process.env.TSX_DISABLE_CACHE
      if (before === undefined) delete process.env.TMPDIR
      else process.env.TMPDIR = before
    }
  }
}
