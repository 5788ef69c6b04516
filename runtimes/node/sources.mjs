/**
 * The source files a handler is made of, wherever they lie, so that a change of any of them starts a new worker: its own,
 * those it imports from elsewhere, workspace and linked packages. Installed packages are left out. Page: runtimes/node.
 *
 *   text of the files   relative imports and linked packages, followed from file to file; also what has not run yet
 *   require.cache       what `require` loaded, the TypeScript compiler's included
 *   module hooks        everything that is resolved, where node has hooks within the thread (22.15 and newer)
 */

import { lstatSync, readFileSync, realpathSync, statSync } from 'node:fs'
import module, { createRequire, isBuiltin } from 'node:module'
import { dirname, join, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const MAX_FILES = 500
const MAX_FILE_BYTES = 1024 * 1024
const IMPORT = /(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*(['"])([^'"\n]+)\1/g
const ENDINGS = ['', '.js', '.ts', '.mjs', '.cjs', '.mts', '.cts', '.json', '/index.js', '/index.ts']
const PACKAGES = `${sep}node_modules${sep}`
const OWN_FOLDER = dirname(fileURLToPath(import.meta.url)) + sep
/** Of a module in the cache of `require`; the cache is one for the process. */
const { cache } = createRequire(import.meta.url)

export class Sources {
  /** Full path of the handler file. */
  #entry
  /** Folder whose files are the user's even when it lies inside a package. */
  #root
  /** Real paths, told or to be told. @type {Set<string>} */
  #files = new Set()
  /** How many of them the gateway was told of. */
  #told = 0
  #cached = 0

  /** @param {string} entry - full path @param {string} root - functions root */
  constructor(entry, root) {
    this.#entry = entry
    this.#root = join(root, sep)
  }

  /**
   * Sees from now on what modules are resolved to, where node offers that within the thread.
   * @param {() => void} onNew - a file was found that is not told yet
   */
  watch(onNew) {
    const { registerHooks } = /** @type {any} */ (module)
    registerHooks?.({
      resolve: (/** @type {string} */ specifier, /** @type {object} */ context, /** @type {Function} */ next) => {
        const found = next(specifier, context)
        if (found.url.startsWith('file:') && this.#add(toPath(found.url))) onNew()
        return found
      },
    })
  }

  /**
   * All files so far, the entry first.
   * @returns {string[]} real paths
   */
  list() {
    this.#files = new Set([toRealPath(this.#entry) ?? this.#entry, ...this.#files])
    this.#follow()
    this.#addCached()
    this.#told = this.#files.size
    return [...this.#files]
  }

  /** Files that were found since they were last listed. @returns {string[]} */
  takeNew() {
    this.#addCached()
    if (this.#told === this.#files.size) return []
    const fresh = [...this.#files].slice(this.#told)
    this.#told = this.#files.size
    return fresh
  }

  /** @param {string} path @returns {boolean} true when it is a new one */
  #add(path) {
    if (this.#files.size >= MAX_FILES || path.startsWith(OWN_FOLDER)) return false
    const below = path.startsWith(this.#root) ? path.slice(this.#root.length - 1) : path
    const before = this.#files.size
    // Of a package that is a link the real path is told, which lies in no folder of packages.
    if (!below.includes(PACKAGES)) this.#files.add(path)
    return this.#files.size > before
  }

  /** The text is searched, not parsed: a path in a comment only adds a file too many. */
  #follow() {
    for (const file of this.#files) {
      for (const match of read(file).matchAll(IMPORT)) {
        const found = find(/** @type {string} */ (match[2]), file)
        if (found !== null) this.#add(found)
      }
    }
  }

  #addCached() {
    const keys = Object.keys(cache)
    if (keys.length === this.#cached) return
    for (const key of keys) this.#add(toPath(key))
    this.#cached = keys.length
  }
}

/**
 * @param {string} specifier
 * @param {string} from - full path of the importing file
 * @returns {string | null} real path; null for installed packages and what is not there
 */
function find(specifier, from) {
  if (specifier.startsWith('.')) return toFile(resolve(dirname(from), specifier))
  if (specifier.startsWith('/')) return toFile(specifier)
  if (isBuiltin(specifier) || /^[a-z]+:/.test(specifier)) return null
  if (!specifier.startsWith('#') && !isLinked(specifier, dirname(from))) return null
  try {
    return realpathSync(createRequire(from).resolve(specifier))
  } catch {
    // Not there, or for `import` alone: the hooks see it.
    return null
  }
}

/** @param {string} specifier - of a package @param {string} folder */
function isLinked(specifier, folder) {
  const name = specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/')
  for (let at = folder; ; at = dirname(at)) {
    const stat = lstatSync(join(at, 'node_modules', name), { throwIfNoEntry: false })
    if (stat !== undefined) return stat.isSymbolicLink()
    if (dirname(at) === at) return false
  }
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

/** @param {string} path */
function toRealPath(path) {
  try {
    return realpathSync(path)
  } catch {
    return null
  }
}

/** @param {string} place - a path or file URL; the compiler marks its own with a query, in paths too */
function toPath(place) {
  const path = place.startsWith('file:') ? fileURLToPath(place) : place
  return path.replace(/\?namespace=\d+$/, '')
}
