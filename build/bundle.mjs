/**
 * Joins the modules of the product, and the packages of `BUNDLED`, into a few files, which Node reads three times as fast as hundreds; the
 * dependencies of the manifest stay packages. A module that is imported by a call (`await import(...)`) gets a file of its own.
 * Declarations come from the compiler: those that users cannot import are deleted.
 * Usage: node build/bundle.mjs [folder of the build, default dist] [--source-map]
 *   --source-map  for coverage: lines of the sources
 */

import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { BUNDLED } from './shipped.mjs'

/** Beside `bin` and `lib`, and as deep: modules find the files of the package by their own place (lib/runtime/package-files). */
const SHARED = 'shared'

const root = fileURLToPath(new URL('..', import.meta.url))
const [folder = join(root, 'dist')] = process.argv.slice(2).filter(word => !word.startsWith('--'))
const target = resolve(folder)
const { dependencies, optionalDependencies, peerDependencies, devDependencies } = readJson(join(root, 'package.json'))
const isBundled = name => BUNDLED.includes(name)

// Names carry a hash, so those of the build before would stay.
rmSync(join(target, SHARED), { recursive: true, force: true })
const common = {
  absWorkingDir: root,
  bundle: true,
  external: Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies, ...devDependencies }).flatMap(
    name => (isBundled(name) ? [] : [name, `${name}/*`]),
  ),
  platform: 'node',
  target: 'node20.19',
  tsconfigRaw: '{}',
  metafile: true,
  sourcemap: process.argv.includes('--source-map') ? 'linked' : false,
  sourcesContent: false,
  logLevel: 'warning',
}
/** A package that is loaded by `require` when it is needed stays a file. */
const REQUIRED = { 'cron-parser': 'lib/core/cron.ts' }
const required = await build({
  ...common,
  entryPoints: Object.fromEntries(Object.keys(REQUIRED).map(name => [name, name])),
  outdir: join(target, SHARED),
  outExtension: { '.js': '.cjs' },
  format: 'cjs',
  minify: true,
})
const product = await build({
  ...common,
  entryPoints: {
    ...{ 'bin/fngw': 'bin/fngw.ts', 'lib/index': 'lib/index.ts', 'lib/test': 'lib/test.ts' },
    'lib/acceptor-main': 'lib/processes/acceptor-main.ts',
  },
  outdir: target,
  chunkNames: `${SHARED}/[name]-[hash]`,
  splitting: true,
  format: 'esm',
  plugins: [{ name: 'required', setup: plugin => Object.entries(REQUIRED).forEach(entry => redirect(plugin, ...entry)) }],
})
writeFileSync(join(target, 'LICENSES'), toLicences([required, product]))
deleteDeclarations()

function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'))
}

/** Lets the only module that requires a package find its file. */
function redirect(plugin, name, module) {
  plugin.onLoad({ filter: new RegExp(`${module.replaceAll('.', '\\.')}$`) }, ({ path }) => {
    const parts = readFileSync(path, 'utf8').split(`load('${name}')`)
    if (parts.length !== 2) throw new Error(`${module} has ${parts.length - 1} calls load('${name}') instead of one`)
    return { contents: parts.join(`load('../${SHARED}/${name}.cjs')`), loader: 'ts' }
  })
}

/** The licences of the packages in `dist`. */
function toLicences(results) {
  const files = results.flatMap(({ metafile }) => Object.values(metafile.outputs).flatMap(output => Object.keys(output.inputs)))
  const folders = new Set(files.flatMap(file => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? []))
  const texts = [...folders].sort().map(folder => {
    const { name, version } = readJson(join(root, folder, 'package.json'))
    const file = readdirSync(join(root, folder)).find(one => /^licen[cs]e/i.test(one))
    if (file === undefined) throw new Error(`${folder} has no licence`)
    return `${name} ${version}\n\n${readFileSync(join(root, folder, file), 'utf8').trim()}\n`
  })
  return texts.join(`\n${'-'.repeat(72)}\n\n`)
}

/** Keeps the declarations that the exports of the package reach. */
function deleteDeclarations() {
  const kept = new Set()
  const keep = file => {
    if (kept.has(file) || !existsSync(file)) return
    kept.add(file)
    for (const [, path] of readFileSync(file, 'utf8').matchAll(/(?:from|import\() ?['"](\.[^'"]+)['"]/g))
      keep(join(dirname(file), path.replace(/\.[jt]s$/, '.d.ts')))
  }
  for (const name of ['index', 'test']) keep(join(target, `lib/${name}.d.ts`))
  for (const folder of ['bin', 'lib', 'conformance']) {
    if (!existsSync(join(target, folder))) continue
    for (const name of readdirSync(join(target, folder), { recursive: true })) {
      const file = join(target, folder, name)
      if (file.endsWith('.d.ts') && !kept.has(file)) rmSync(file)
    }
  }
}
