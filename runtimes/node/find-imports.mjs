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

/** @typedef {{ specifier: string, file: string, line: number }} FoundImport */

const own = createRequire(import.meta.url)
const MARK = 'fngw-imports'
/** Imports that are told at most: more come from no function. */
const MAX_IMPORTS = 200
/** Characters of one that are told; no name of a package is as long. */
const MAX_SPECIFIER_CHARS = 250
/** What esbuild reads as source; everything else that is imported counts as empty. */
const SOURCES = new Set(['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.jsx', '.tsx', '.json'])

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
 * Imports with their places: esbuild is made to warn about each.
 * @param {string} folder
 * @param {readonly string[]} entries
 * @returns {Promise<{ found: FoundImport[], files: string[] }>}
 */
async function scan(folder, entries) {
  const files = new Set()
  /** @type {import('esbuild').Plugin} */
  const plugin = {
    name: 'imports',
    setup(build) {
      build.onResolve({ filter: /./ }, ({ path, kind, importer }) => {
        if (kind === 'entry-point') return undefined
        if (/^\.\.?(?:\/|$)/.test(path) && isOwn(folder, toFull(dirname(importer), path))) return undefined
        if (/^\.\.?(?:\/|$)|^\//.test(path)) return { external: true }
        return { external: true, warnings: [{ text: path }] }
      })
      build.onLoad({ filter: /./ }, ({ path }) => {
        // A link out of the folder leads to files that are not the function's.
        const isSource = SOURCES.has(extname(path)) && isOwn(folder, realpathSync(path))
        if (!isSource) return { contents: '' }
        files.add(path)
        return undefined
      })
    },
  }
  /** @type {import('esbuild').Message[]} */
  let warnings
  try {
    const result = await requireEsbuild().build({
      entryPoints: [...entries],
      bundle: true,
      write: false,
      outdir: join(folder, '.none'),
      platform: 'node',
      format: 'esm',
      // esbuild's service is asked from the folder, so places come as paths below it.
      absWorkingDir: folder,
      // Not of a tsconfig.json somewhere above: what is imported for its types only is no package to install.
      tsconfigRaw: {},
      logLevel: 'silent',
      logLimit: 0,
      plugins: [plugin],
    })
    warnings = result.warnings
  } catch (error) {
    // A file that cannot be parsed is told by the worker that loads it; the others count.
    warnings = /** @type {any} */ (error).warnings ?? []
  }
  const found = warnings.flatMap(({ pluginName, text, location }) =>
    pluginName === 'imports' && location !== null
      ? { specifier: text.slice(0, MAX_SPECIFIER_CHARS), file: location.file, line: location.line }
      : [],
  )
  const firsts = new Map(found.toReversed().map(item => [item.specifier, item]))
  return { found: found.filter(item => firsts.get(item.specifier) === item), files: [...files] }
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
      ...rest.map(specifier => ({ specifier, file: relative(folder, entries[0] ?? folder), line: 1 })),
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
  const more = found.length - MAX_IMPORTS
  tell({ found: found.slice(0, MAX_IMPORTS), problem: more > 0 ? `${more} imports more are not read` : problem })
} catch (error) {
  const { code, message } = /** @type {any} */ (error)
  tell({ found: [], problem: String(message).split('\n')[0]?.slice(0, 300), isMissing: code === 'MODULE_NOT_FOUND' })
  process.exitCode = 1
}
