/**
 * Which packages files import, by a real parse: esbuild, which comes with tsx, reads the files and what they import
 * beside them. Run by the gateway as a program of its own, so that no source text can hang or end the gateway.
 * Page: dependencies/node.
 *
 *   node find-imports.mjs '{"folder":"/f/hello","entries":["/f/hello/handler.ts"],"backend":"native"}'
 *   fngw-imports {"found":[{"specifier":"lodash","file":"handler.ts","line":1}],"problem":null}
 */

import childProcess from 'node:child_process'
import { EventEmitter } from 'node:events'
import { readFileSync, realpathSync } from 'node:fs'
import { createRequire, isBuiltin, syncBuiltinESMExports } from 'node:module'
import { dirname, extname, join, relative, resolve as toFull, sep } from 'node:path'

/**
 * One import of one file.
 * @typedef {object} FoundImport
 * @property {string} specifier
 * @property {string} file - below the folder
 * @property {number} line
 * @property {boolean} optional - inside a `try`, or with a `catch` of its promise
 * @property {number[]} entries - the handlers that load the file, by their position in the request
 */

const own = createRequire(import.meta.url)
const MARK = 'fngw-imports'
/** Names that are reported at most: more come from no function. */
const MAX_IMPORTS = 200
/** Characters of the report: of a name that many files import, the first places. */
const MAX_CHARS = 50_000
/** Keeps esbuild's resolver away from this module's own plugin. */
const BY_PATH = {}
/** Characters of one that are told; no name of a package is as long. */
const MAX_SPECIFIER_CHARS = 250
/**
 * What esbuild reads as source; everything else that is imported counts as empty.
 * @type {Map<string, import('esbuild').Loader>}
 */
const LOADERS = new Map([
  ...['.js', '.mjs', '.cjs'].map(name => /** @type {const} */ ([name, 'js'])),
  ...['.ts', '.mts', '.cts'].map(name => /** @type {const} */ ([name, 'ts'])),
  ['.jsx', 'jsx'],
  ['.tsx', 'tsx'],
  ['.json', 'json'],
])

/** @returns {typeof import('esbuild')} */
function requireEsbuild() {
  return createRequire(own.resolve('tsx/cjs/api'))('esbuild')
}

/** True for a file in the folder itself, and not one of an installed package. @param {string} folder @param {string} file */
function isOwn(folder, file) {
  const path = relative(folder, file)
  return !path.startsWith('..') && !path.split(sep).some(name => name === 'node_modules')
}

/**
 * Imports with their places. Files get a namespace that esbuild does not look for packages in, so each import of a package is an
 * error with its place, except where the code handles the failure: those esbuild accepts.
 * @param {string} folder
 * @param {readonly string[]} entries
 * @returns {Promise<{ found: FoundImport[], files: string[] }>}
 */
async function scan(folder, entries) {
  const files = new Set()
  /** @type {Map<string, Set<string>>} */
  const importedBy = new Map()
  /** @type {Map<string, { specifier: string, file: string }>} */
  const seen = new Map()
  /** @type {import('esbuild').Plugin} */
  const plugin = {
    name: 'imports',
    setup(build) {
      build.onResolve({ filter: /./ }, async ({ path, kind, importer, pluginData }) => {
        if (pluginData === BY_PATH) return undefined
        if (kind === 'entry-point') return { path, namespace: 'source' }
        if (!/^\.\.?(?:\/|$)|^\//.test(path)) {
          seen.set(toId(importer, path), { specifier: path, file: importer })
          // esbuild accepts addresses by itself.
          return /^\w+:/.test(path) && !isBuiltin(path) ? { errors: [{ text: toUnresolved(path) }] } : undefined
        }
        const resolveDir = dirname(importer)
        if (path.startsWith('/') || !isOwn(folder, toFull(resolveDir, path))) return { external: true }
        const { path: target, errors } = await build.resolve(path, { resolveDir, kind, pluginData: BY_PATH })
        if (errors.length > 0) return { external: true }
        importedBy.set(target, (importedBy.get(target) ?? new Set()).add(importer))
        return { path: target, namespace: 'source' }
      })
      build.onLoad({ filter: /./, namespace: 'source' }, ({ path }) => {
        // A link out of the folder leads to files that are not the function's.
        const loader = LOADERS.get(extname(path))
        if (loader === undefined || !isOwn(folder, realpathSync(path))) return { contents: '' }
        files.add(path)
        return { contents: readFileSync(path), loader }
      })
    },
  }
  /** @type {import('esbuild').Message[]} */
  let errors = []
  try {
    await requireEsbuild().build({
      entryPoints: [...entries],
      bundle: true,
      write: false,
      outdir: join(folder, '.none'),
      platform: 'node',
      format: 'esm',
      // Not of a tsconfig.json somewhere above: what is imported for its types only is no package to install.
      tsconfigRaw: {},
      logLevel: 'silent',
      logLimit: 0,
      plugins: [plugin],
    })
  } catch (error) {
    // A file that cannot be parsed is reported by the worker that loads it; the others count.
    errors = /** @type {any} */ (error).errors ?? []
  }
  const lines = new Map()
  for (const { text, location } of errors) {
    const specifier = /^Could not resolve "(.*)"$/s.exec(text)?.[1]
    if (specifier === undefined || location === null) continue
    lines.set(toId(location.file.slice(location.file.indexOf(':') + 1), specifier), location.line)
  }
  const positions = new Map(entries.map((entry, at) => [entry, at]))
  const found = [...seen].map(([id, { specifier, file }]) => ({
    specifier: specifier.slice(0, MAX_SPECIFIER_CHARS),
    file: relative(folder, file),
    line: lines.get(id) ?? lineOf(file, specifier),
    optional: !lines.has(id),
    entries: loadersOf(file, importedBy).flatMap(one => positions.get(one) ?? []),
  }))
  return { found: inOrder(found), files: [...files] }
}

/** As esbuild says it. @param {string} specifier */
function toUnresolved(specifier) {
  return `Could not resolve "${specifier}"`
}

/** @param {string} file @param {string} specifier */
function toId(file, specifier) {
  return JSON.stringify([file, specifier])
}

/** The file and all files that lead to it. @param {string} file @param {Map<string, Set<string>>} importedBy */
function loadersOf(file, importedBy) {
  const loaders = new Set([file])
  for (const one of loaders) for (const importer of importedBy.get(one) ?? []) loaders.add(importer)
  return [...loaders]
}

/** Where a name stands first in a file. @param {string} file @param {string} specifier */
function lineOf(file, specifier) {
  const lines = readFileSync(file, 'utf8').split('\n')
  return lines.findIndex(line => line.includes(`${specifier}`)) + 1 || 1
}

/** One place of each name first, places where it is required before those where it is not. @param {FoundImport[]} found */
function inOrder(found) {
  const required = [...found.filter(({ optional }) => !optional), ...found.filter(({ optional }) => optional)]
  /** @type {Map<string, FoundImport>} */
  const firsts = new Map()
  for (const one of required) if (!firsts.has(one.specifier)) firsts.set(one.specifier, one)
  return [...firsts.values(), ...required.filter(one => firsts.get(one.specifier) !== one)]
}

/**
 * What the package detective finds. It knows `require` alone, so it is given the files as CommonJS.
 * @param {readonly string[]} files
 * @returns {string[]}
 */
function withDetective(files) {
  const detective = own('detective')
  const { transformSync } = requireEsbuild()
  return files
    .filter(file => extname(file) !== '.json')
    .flatMap(file => {
      const { code } = transformSync(readFileSync(file, 'utf8'), {
        loader: /\.[mc]?tsx?$/.test(file) ? (file.endsWith('x') ? 'tsx' : 'ts') : 'jsx',
        format: 'cjs',
        target: 'es2019',
        supported: { 'dynamic-import': false },
        logLevel: 'silent',
      })
      return detective(code)
    })
}

/**
 * What the package require-analyzer finds. Where an argument of `require` is computed it would run the file to see; that
 * is taken from it, because nothing of a function runs before its worker.
 * @param {readonly string[]} entries
 * @returns {Promise<string[]>}
 */
async function withRequireAnalyzer(entries) {
  childProcess.fork = /** @type {any} */ (
    () => {
      const none = new EventEmitter()
      setImmediate(() => {
        none.emit('exit', 0)
        none.emit('close', 0)
      })
      return Object.assign(none, { kill() {}, send() {} })
    }
  )
  syncBuiltinESMExports()
  const analyzer = own('require-analyzer')
  const lists = await Promise.all(
    entries.map(
      target =>
        new Promise((resolve, reject) => {
          analyzer.file({ target }, (/** @type {unknown} */ error, /** @type {string[]} */ names) =>
            error ? reject(error) : resolve(names ?? []),
          )
        }),
    ),
  )
  return lists.flat()
}

/**
 * @param {{ folder: string, entries: readonly string[], backend: string }} request
 * @returns {Promise<{ found: FoundImport[], problem: string | null }>}
 */
async function findImports({ folder, entries, backend }) {
  const { found, files } = await scan(folder, entries)
  if (backend === 'native') return { found, problem: null }
  const names = backend === 'detective' ? withDetective(files) : await withRequireAnalyzer(entries)
  const wanted = new Set(names.filter(name => !/^[./]/.test(name)))
  const placed = found.filter(({ specifier }) => wanted.has(specifier))
  const known = new Set(placed.map(({ specifier }) => specifier))
  const rest = [...wanted].filter(name => !known.has(name))
  const others = new Set(found.map(({ specifier }) => specifier))
  const missed = [...others].filter(name => !wanted.has(name) && !isBuiltin(name))
  const problem = missed.length === 0 ? null : `${backend} did not find ${missed.slice(0, 5).join(', ')}`
  return {
    found: [
      ...placed,
      ...rest.map(specifier => ({
        specifier,
        file: relative(folder, entries[0] ?? folder),
        line: 1,
        optional: false,
        entries: [...entries.keys()],
      })),
    ],
    problem,
  }
}

/** @param {unknown} answer */
function tell(answer) {
  process.stdout.write(`\n${MARK} ${JSON.stringify(answer)}\n`)
}

try {
  const request = JSON.parse(process.argv[2] ?? '{}')
  // esbuild tells real paths.
  request.entries = request.entries.map((/** @type {string} */ file) => realpathSync(file))
  const { found, problem } = await findImports({ ...request, folder: realpathSync(request.folder) })
  const names = new Set(found.map(({ specifier }) => specifier))
  const more = names.size - MAX_IMPORTS
  const read = new Set([...names].slice(0, MAX_IMPORTS))
  let left = MAX_CHARS
  const places = found.filter(one => {
    left -= JSON.stringify(one).length
    return read.has(one.specifier) && (left > 0 || names.delete(one.specifier))
  })
  tell({ found: places, problem: more > 0 ? `${more} imports more are not read` : problem })
} catch (error) {
  const { code, message } = /** @type {any} */ (error)
  tell({ found: [], problem: String(message).split('\n')[0]?.slice(0, 300), isMissing: code === 'MODULE_NOT_FOUND' })
  process.exitCode = 1
}
