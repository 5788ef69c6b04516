/**
 * Handler file -> what it exports. Page: runtimes/node.
 *
 *   .js .mjs .cjs   import(); when the file's style does not fit its package.json: the compiler
 *   .ts .mts .cts   the compiler
 */

import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import Module, { register } from 'node:module'
import { delimiter, dirname, extname, join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Compiler } from './compiler.mjs'
import { LoadError } from './failure.mjs'
import { explain, findImport, messageOf, shown } from './load-failure.mjs'
import { Sources } from './sources.mjs'

const TYPESCRIPT = new Set(['.ts', '.mts', '.cts'])
/** Syntax that node refuses because package.json says the file is of the other style. */
const WRONG_STYLE =
  /^Cannot use import statement outside a module|^Unexpected token 'export'|^Cannot use 'import\.meta' outside a module| is not defined in ES module scope/

/** A line that only an ES module has. */
const MODULE = /^(?:import\s*(?:[\w*{'"])|export\s+(?:default|const|let|var|function|async|class|\*)|export\s*\{)/m

/** @typedef {import('./event.mjs').FunctionStart} FunctionStart */

export class Loader {
  /** Of the function that was loaded, or could not be. @type {Sources | null} */
  sources = null
  #compiler

  /** @param {string | null} cacheDir - private folder for compiled TypeScript; null: compile every time */
  constructor(cacheDir) {
    this.#compiler = new Compiler(cacheDir)
  }

  warmUpCompiler() {
    this.#compiler.warmUp()
  }

  stopCompiler() {
    this.#compiler.stop()
  }

  /**
   * Loads the handler's module.
   * @param {FunctionStart} fn
   * @param {() => void} [onSource] - a source file was found that is not told yet
   * @returns {Promise<any>} what it exports
   * @throws {LoadError | unknown} what the module threw while it ran
   */
  async load(fn, onSource) {
    const file = resolve(fn.dir, fn.entry)
    checkReadable(fn, file)
    usePacks(fn.packs ?? [])
    const sources = new Sources(file, fn.root ?? fn.dir)
    this.sources = sources
    // Nobody watches files in production.
    if (onSource !== undefined && !fn.production) sources.watch(onSource)
    try {
      return TYPESCRIPT.has(extname(file))
        ? await this.#compiler.load(file)
        : await this.#loadJavaScript(file, (fn.packs ?? []).length > 0)
    } catch (error) {
      throw explain(fn, file, error, () => {
        const files = sources.list()
        return findImport(messageOf(error), files) ?? this.#compiler.findSyntaxError(files)
      })
    }
  }

  /** @param {string} file @param {boolean} hasHooks */
  async #loadJavaScript(file, hasHooks) {
    // tsx prefers `x.ts` where both exist; then node's own error stands.
    const mayCompile = !existsSync(file.replace(/\.(\w?)js$/, '.$1ts'))
    if (mayCompile && isModuleAmongScripts(file)) {
      try {
        return await this.#compiler.load(file)
      } catch (error) {
        if (!(error instanceof LoadError)) throw error
        // Without the compiler node says what is wrong.
      }
    }
    try {
      return await importModule(file, hasHooks)
    } catch (error) {
      if (!mayCompile || !WRONG_STYLE.test(messageOf(error))) throw error
      try {
        return await this.#compiler.load(file)
      } catch (second) {
        throw second instanceof LoadError ? error : second
      }
    }
  }
}

/**
 * Node would name its own files for a handler that it cannot open.
 * @param {FunctionStart} fn @param {string} file
 * @throws {LoadError}
 */
function checkReadable(fn, file) {
  try {
    accessSync(file, constants.R_OK)
  } catch (error) {
    const { code } = /** @type {NodeJS.ErrnoException} */ (error)
    if (code === 'ENOENT') throw new LoadError(`handler file ${shown(fn, file)} does not exist`, { file })
    const hint = 'make it readable for the user that runs the function'
    throw new LoadError(`cannot read ${shown(fn, file)}: ${code}`, { file, hint })
  }
}

/**
 * What `import()` gives. An ES module is read and run at once where node can do that: `import()` goes to threads and back for it
 * four times, and waking them takes longer than all the rest of a first call.
 * @param {string} file
 * @param {boolean} hasHooks - the functions that find modules run on a thread of their own
 */
async function importModule(file, hasHooks) {
  if (!hasHooks && /** @type {any} */ (process.features).require_module && isModule(file)) {
    try {
      return /** @type {any} */ (Module)._load(file, undefined, false)
    } catch (error) {
      // Nothing of it has run.
      if (/** @type {any} */ (error)?.code !== 'ERR_REQUIRE_ASYNC_MODULE') throw error
    }
  }
  return import(pathToFileURL(file).href)
}

/** True for what is surely an ES module. @param {string} file */
function isModule(file) {
  const ending = extname(file)
  if (ending !== '.js') return ending === '.mjs'
  return packageType(dirname(file)) === 'module' || MODULE.test(readFileSync(file, 'utf8'))
}

/**
 * True for an ES module whose package.json says that it is none: node would try it, fail, and fill the log with advice.
 * @param {string} file
 */
function isModuleAmongScripts(file) {
  return extname(file) === '.js' && packageType(dirname(file)) === 'commonjs' && MODULE.test(readFileSync(file, 'utf8'))
}

/** @param {string} folder @returns {unknown} `type` of the package.json that holds for it */
function packageType(folder) {
  for (let at = folder; ; at = dirname(at)) {
    try {
      return JSON.parse(readFileSync(join(at, 'package.json'), 'utf8')).type
    } catch (error) {
      // One that is no JSON node complains about itself.
      if (/** @type {any} */ (error).code !== 'ENOENT' || dirname(at) === at) return undefined
    }
  }
}

/** @param {string[]} packs - folders of shared packs, each with a `node_modules` */
export function usePacks(packs) {
  if (packs.length === 0) return
  const folders = packs.map(pack => (pack.endsWith('/node_modules') ? pack : join(pack, 'node_modules')))
  // `require` looks here after all folders above the file.
  const before = process.env.NODE_PATH
  process.env.NODE_PATH = folders.join(delimiter)
  const { _initPaths: readNodePath } = /** @type {any} */ (Module)
  readNodePath()
  if (before === undefined) delete process.env.NODE_PATH
  else process.env.NODE_PATH = before
  const parents = folders.map(folder => pathToFileURL(join(folder, '..', 'pack.js')).href)
  register('./module-hooks.mjs', { parentURL: import.meta.url, data: { parents, moduleUrl: null } })
}
