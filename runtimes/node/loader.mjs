/**
 * Handler file and symbol -> callable. Pages: discovery/callable, runtime/daemon.
 *
 *   .js .mjs .cjs   import(); when the file's style does not fit its package.json: tsx
 *   .ts .mts .cts   require through tsx, which takes every style but top-level await; for that one import() with tsx hooks
 */

import { existsSync, readFileSync } from 'node:fs'
import Module, { createRequire, register } from 'node:module'
import { basename, delimiter, extname, join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { LoadError, toPlace, toUserStack } from './failure.mjs'
import { listSources } from './sources.mjs'

const own = createRequire(import.meta.url)
/** Where tsx was loaded from, null while it is not. @type {string | null} */
let compilerPath = null
const TYPESCRIPT = new Set(['.ts', '.mts', '.cts'])
/** Syntax that node refuses because package.json says the file is of the other style. */
const WRONG_STYLE =
  /^Cannot use import statement outside a module|^Unexpected token 'export'|^Cannot use 'import\.meta' outside a module| is not defined in ES module scope/
const TOP_LEVEL_AWAIT = /Top-level await/

/** @typedef {import('./event.mjs').FunctionStart} FunctionStart */
/** @typedef {{ holder: any, call: (...args: any[]) => unknown }} Callable - the function and the object it is a method of */

/**
 * Loads the handler's module.
 * @param {FunctionStart} fn
 * @param {string | null} cacheDir - private folder for compiled TypeScript; null: compile every time
 * @returns {Promise<{ exports: any, files: string[] }>}
 * @throws {LoadError | unknown} what the module threw while it ran
 */
export async function loadModule(fn, cacheDir) {
  const file = resolve(fn.dir, fn.entry)
  if (!existsSync(file)) throw new LoadError(`handler file ${shown(fn, file)} does not exist`, { file })
  usePacks(fn.packs ?? [])
  try {
    const exports = TYPESCRIPT.has(extname(file))
      ? await loadTypeScript(file, cacheDir)
      : await loadJavaScript(file, cacheDir)
    return { exports, files: listSources(file) }
  } catch (error) {
    throw await explain(fn, file, error)
  }
}

/** @param {string} file @param {string | null} cacheDir */
async function loadJavaScript(file, cacheDir) {
  try {
    return await import(pathToFileURL(file).href)
  } catch (error) {
    // tsx prefers `x.ts` where both exist; then the first error stands.
    if (!WRONG_STYLE.test(messageOf(error)) || existsSync(file.replace(/\.(\w?)js$/, '.$1ts'))) throw error
    try {
      return await loadTypeScript(file, cacheDir)
    } catch (second) {
      throw second instanceof LoadError ? error : second
    }
  }
}

/** @param {string} file @param {string | null} cacheDir */
async function loadTypeScript(file, cacheDir) {
  const load = requireTsx(cacheDir)
  process.setSourceMapsEnabled(true)
  const { emitWarning } = process
  process.emitWarning = /** @type {typeof emitWarning} */ (
    (warning, ...rest) => {
      // Node's advice before tsx takes over.
      if (!String(warning).startsWith('To load an ES module')) Reflect.apply(emitWarning, process, [warning, ...rest])
    }
  )
  try {
    return /** @type {any} */ (load).require(file, import.meta.url)
  } catch (error) {
    if (!TOP_LEVEL_AWAIT.test(messageOf(error))) throw error
  } finally {
    process.emitWarning = emitWarning
  }
  const hooks = await import('tsx/esm/api')
  hooks.register()
  load.register()
  registerHooks({ parents: [], moduleUrl: pathToFileURL(file).href })
  return import(pathToFileURL(file).href)
}

/**
 * tsx with its cache in a private folder: in a shared temp dir another user could plant compiled code.
 * @param {string | null} cacheDir
 * @returns {typeof import('tsx/cjs/api')}
 */
export function requireTsx(cacheDir) {
  const before = process.env.TMPDIR
  if (cacheDir === null) process.env.TSX_DISABLE_CACHE = '1'
  else process.env.TMPDIR = cacheDir
  try {
    compilerPath = own.resolve('tsx/cjs/api')
    return own(compilerPath)
  } catch (error) {
    if (/** @type {any} */ (error)?.code !== 'MODULE_NOT_FOUND') throw error
    throw new LoadError('TypeScript handlers need the package tsx, which is not installed', { hint: 'npm install tsx' })
  } finally {
    delete process.env.TSX_DISABLE_CACHE
    if (before === undefined) delete process.env.TMPDIR
    else process.env.TMPDIR = before
  }
}

/**
 * Loads and starts the TypeScript compiler ahead of the handler.
 * @param {string | null} cacheDir
 */
export function warmUpCompiler(cacheDir) {
  try {
    /** @type {any} */
    requireTsx(cacheDir).require('./warm-up/typescript.ts', import.meta.url)
  } catch {
    // The handler's own load will say what is wrong.
  }
}

/** Ends the compiler's helper process, once a handler is loaded; a later `require` of TypeScript starts it again. */
export function stopCompiler() {
  if (compilerPath !== null) createRequire(compilerPath)('esbuild').stop()
}

/** @param {string[]} packs - folders of shared packs, each with a `node_modules` */
function usePacks(packs) {
  if (packs.length === 0) return
  const folders = packs.map(pack => (pack.endsWith('/node_modules') ? pack : join(pack, 'node_modules')))
  // `require` looks here after all folders above the file.
  const before = process.env.NODE_PATH
  process.env.NODE_PATH = folders.join(delimiter)
  const { _initPaths: readNodePath } = /** @type {any} */ (Module)
  readNodePath()
  if (before === undefined) delete process.env.NODE_PATH
  else process.env.NODE_PATH = before
  registerHooks({ parents: folders.map(folder => pathToFileURL(join(folder, '..', 'pack.js')).href), moduleUrl: null })
}

/** @param {{ parents: string[], moduleUrl: string | null }} data */
function registerHooks(data) {
  register('./module-hooks.mjs', { parentURL: import.meta.url, data })
}

/**
 * Finds the callable in what a module exports: by its name, in the default export, or the default export itself.
 * @param {FunctionStart} fn
 * @param {any} exports
 * @param {string[]} names - in order of preference
 * @param {string} usage - example line for the error
 * @returns {Callable}
 * @throws {LoadError}
 */
export function findCallable(fn, exports, names, usage) {
  const fallback = exports?.default ?? exports?.['module.exports']
  for (const name of names) {
    for (const holder of [exports, fallback, fallback?.default]) {
      const found = memberOf(holder, name)
      if (typeof found === 'function') return { holder, call: found }
    }
  }
  // `export default function` and `module.exports = function` need no name; a configured name must be there.
  if (fn.handler === null || fn.handler === undefined) {
    for (const found of [fallback, fallback?.default, exports])
      if (typeof found === 'function') return { holder: undefined, call: found }
  }
  const file = resolve(fn.dir, fn.entry)
  const [wanted] = names
  const other = memberOf(exports, /** @type {string} */ (wanted)) ?? memberOf(fallback, /** @type {string} */ (wanted))
  const problem =
    other === undefined
      ? `has no function "${names.join('" or "')}" (${listExports(exports, fallback)})`
      : `has "${wanted}", but it is ${other === null ? 'null' : `a value of type ${typeof other}`}, not a function`
  throw new LoadError(`${shown(fn, file)} ${problem}`, {
    file,
    hint: `add ${usage}, or name another function in invoke.handler`,
  })
}

/** @param {any} holder @param {string} name */
function memberOf(holder, name) {
  if (holder === null || (typeof holder !== 'object' && typeof holder !== 'function')) return undefined
  const found = holder[name]
  // `toString` and its like are no exports.
  return found === /** @type {any} */ (Object.prototype)[name] ||
    found === /** @type {any} */ (Function.prototype)[name]
    ? undefined
    : found
}

/** @param {any} exports @param {any} fallback */
function listExports(exports, fallback) {
  const names = new Set(Object.keys(exports ?? {}))
  if (typeof fallback === 'object' && fallback !== null) for (const name of Object.keys(fallback)) names.add(name)
  for (const name of ['default', 'module.exports', '__esModule']) names.delete(name)
  return names.size === 0 ? 'it exports nothing' : `it exports ${[...names].sort().slice(0, 20).join(', ')}`
}

/**
 * A load failure with its file and line, as far as they can be found.
 * @param {FunctionStart} fn
 * @param {string} file
 * @param {any} error
 */
async function explain(fn, file, error) {
  if (error instanceof LoadError) return error
  const message = messageOf(error)
  const stack = String(error?.stack ?? '')
  const [transformed] = transformErrors(message)
  const isSyntax = error instanceof SyntaxError || transformed !== undefined
  /** @type {{ file: string, line?: number }} */
  const place = transformed ??
    headPlace(stack) ??
    importPlace(message) ??
    (isSyntax ? await findSyntaxError(file) : undefined) ??
    toPlace(stack) ?? { file }
  const where = `${shown(fn, place.file)}${place.line === undefined ? '' : `:${place.line}`}`
  const text = (transformed?.text ?? message).split('\n')[0]
  return new LoadError(isSyntax ? `syntax error in ${where}: ${text}` : `cannot load ${where}: ${text}`, {
    file: place.file,
    line: place.line,
    hint: hintFor(error, message),
    stack: isSyntax ? undefined : toUserStack(stack),
  })
}

/** @param {any} error @param {string} message */
function hintFor(error, message) {
  const missing = /Cannot find (?:package|module) '([^'./][^']*)'/.exec(message)?.[1]
  if (missing !== undefined && !missing.startsWith('/'))
    return `npm install ${missing
      .split('/')
      .slice(0, missing.startsWith('@') ? 2 : 1)
      .join('/')}`
  if (/ERR_MODULE_NOT_FOUND|MODULE_NOT_FOUND/.test(String(error?.code)))
    return 'check the path of the import; ES modules need the file extension'
  return undefined
}

/** `/path/file.ts:3:1: ERROR: text` lines of esbuild. @param {string} message */
function transformErrors(message) {
  return [...message.matchAll(/^(\/.*?)(?:\?[^:]*)?:(\d+):\d+: ERROR: (.*)$/gm)].map(match => ({
    file: /** @type {string} */ (match[1]),
    line: Number(match[2]),
    text: /** @type {string} */ (match[3]),
  }))
}

/** The place that node puts on the first line of a syntax error's stack. @param {string} stack */
function headPlace(stack) {
  const match = /^(?:file:\/\/)?(\/.*?):(\d+)\n/.exec(stack)
  return match === null ? undefined : { file: /** @type {string} */ (match[1]), line: Number(match[2]) }
}

/** The line of an import that finds no file: node names the two files only. @param {string} message */
function importPlace(message) {
  const match = /^Cannot find (?:module|package) '([^']+)' imported from (\/.*)$/m.exec(message)
  if (match === null) return undefined
  const [, wanted, file] = /** @type {[string, string, string]} */ (/** @type {unknown} */ (match))
  let lines
  try {
    lines = readFileSync(file, 'utf8').split('\n')
  } catch {
    return undefined
  }
  const name = basename(wanted)
  const at = lines.findIndex(
    line => line.includes(`/${name}`) || line.includes(`'${name}`) || line.includes(`"${name}`),
  )
  return at === -1 ? { file } : { file, line: at + 1 }
}

/**
 * Node does not say where an ES module is wrong: esbuild, which comes with tsx, looks for it in the file and its imports.
 * @param {string} file
 */
async function findSyntaxError(file) {
  try {
    const { transformSync } = createRequire(own.resolve('tsx/cjs/api'))('esbuild')
    for (const source of listSources(file)) {
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

/** @param {any} error */
function messageOf(error) {
  return typeof error === 'object' && error !== null ? String(error.message ?? '') : String(error)
}

/** A path as the user knows it: below the functions root. @param {FunctionStart} fn @param {string} file */
function shown(fn, file) {
  const path = relative(fn.root ?? fn.dir, file)
  return path.startsWith('..') ? file : path
}
