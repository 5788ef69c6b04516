/**
 * TypeScript, and files whose style their package.json contradicts, through tsx; without it node strips types where it can.
 * Page: runtimes/node.
 */

import { readdirSync, readFileSync, unlinkSync } from 'node:fs'
import Module, { createRequire, register } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { LoadError } from './failure.mjs'
import { messageOf, transformErrors } from './load-failure.mjs'

const own = createRequire(import.meta.url)
const TOP_LEVEL_AWAIT = /Top-level await/
/** Part of the name under which tsx keeps compiled code: one for all processes, so that each finds what another compiled. */
const NAMESPACE = '1'
/** Files of compiled code. Beyond them all are deleted: what is still in use comes back. */
export const MAX_KEPT_FILES = 5000
const PRACTICE = './warm-up/typescript.ts'
const WITHOUT_TSX =
  'npm install tsx beside fngw (the image target full has it), or node 22.18 or newer, which runs TypeScript that is types and nothing more'

export class Compiler {
  /** @type {string | null} */
  #cacheDir
  /** Where tsx was loaded from, null while it is not. @type {string | null} */
  #path = null
  /** What loads TypeScript. @type {any} */
  #registered = null

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
      return this.#register(tsx).require(file, import.meta.url)
    } catch (error) {
      if (!TOP_LEVEL_AWAIT.test(messageOf(error))) throw error
    } finally {
      speakAgain()
    }
    // These hooks know no private folder.
    const restore = setEnv('TSX_DISABLE_CACHE', '1')
    try {
      const hooks = await import('tsx/esm/api')
      hooks.register()
    } finally {
      restore()
    }
    tsx.register()
    register('./module-hooks.mjs', {
      parentURL: import.meta.url,
      data: { parents: [], moduleUrl: pathToFileURL(file).href },
    })
    return import(pathToFileURL(file).href)
  }

  /** Loads and starts the compiler ahead of the handler, and walks the way of a file that was compiled before. */
  warmUp() {
    try {
      const tsx = this.#findTsx()
      if (tsx === null) return
      // Under a name of its own, so that it is really compiled: the next file may be one that was not.
      const practice = tsx.register({ namespace: String(Date.now()) })
      practice.require(PRACTICE, import.meta.url)
      practice.unregister()
      this.#register(tsx).require(PRACTICE, import.meta.url)
    } catch {
      // The handler's own load will say what is wrong.
    }
    this.#tidy()
  }

  /**
   * Compiles a file as `load` would and runs nothing of it: whoever loads it later finds the compiled code.
   * @param {string} file - real path
   * @returns {boolean} false when there is no compiler, or nowhere to keep what it makes
   * @throws {unknown} what is wrong with the file
   */
  keep(file) {
    const tsx = this.#cacheDir === null ? null : this.#findTsx()
    if (tsx === null) return false
    this.#register(tsx)
    // What tsx would be asked for by `require`, with a module that takes the code and does not run it.
    const { _extensions: loaders } = /** @type {any} */ (Module)
    loaders['.js']({ id: file, exports: {}, _compile() {} }, `${file}?namespace=${NAMESPACE}`)
    return true
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
          if (place !== undefined) return place
        }
      }
    } catch {
      // Without esbuild the message has to do.
    }
    return undefined
  }

  /** tsx itself deletes by age alone. */
  #tidy() {
    if (this.#cacheDir === null) return
    try {
      for (const folder of readdirSync(this.#cacheDir)) {
        const names = readdirSync(join(this.#cacheDir, folder))
        if (names.length <= MAX_KEPT_FILES) continue
        for (const name of names) unlinkSync(join(this.#cacheDir, folder, name))
      }
    } catch {
      // Something else lies there, or another worker deletes it too.
    }
  }

  /** @param {any} tsx - its `tsx/cjs/api` */
  #register(tsx) {
    this.#registered ??= tsx.register({ namespace: NAMESPACE })
    return this.#registered
  }

  /**
   * tsx with its cache in a private folder: in a shared temp dir another user could plant compiled code.
   * @returns {any} its `tsx/cjs/api`, null where it is not installed
   */
  #findTsx() {
    const restore = this.#cacheDir === null ? setEnv('TSX_DISABLE_CACHE', '1') : setEnv('TMPDIR', this.#cacheDir)
    try {
      this.#path = own.resolve('tsx/cjs/api')
      return own(this.#path)
    } catch (error) {
      if (/** @type {any} */ (error)?.code !== 'MODULE_NOT_FOUND') throw error
      return null
    } finally {
      restore()
    }
  }
}

/**
 * @param {string} name
 * @param {string} value
 * @returns {() => void} puts back what was there before
 */
function setEnv(name, value) {
  const before = process.env[name]
  process.env[name] = value
  return () => {
    if (before === undefined) delete process.env[name]
    else process.env[name] = before
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
