/**
 * Bundles the console into hashed files and a list of them, `files.json`.
 * Usage: node build/console.mjs [--if-needed] [folder of the result, default dist/console]
 *   --if-needed  nothing is done when the result is newer than every source
 */

import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

/** Compressed bytes of what every page loads; the editor comes when it is asked for. */
const BUDGET_BYTES = 250 * 1024
const SCRIPTS = new Set(['.js'])

const root = fileURLToPath(new URL('..', import.meta.url))
const sources = join(root, 'console')
const isLazy = process.argv.includes('--if-needed')
const target = process.argv.slice(2).find(word => !word.startsWith('--')) ?? join(root, 'dist/console')
const list = join(target, 'files.json')

/** @returns {boolean} */
function isFresh() {
  try {
    const made = statSync(list).mtimeMs
    const inputs = [join(root, 'package-lock.json'), fileURLToPath(import.meta.url)]
    for (const entry of readdirSync(sources, { recursive: true, withFileTypes: true }))
      if (entry.isFile()) inputs.push(join(entry.parentPath, entry.name))
    return inputs.every(file => statSync(file).mtimeMs < made)
  } catch {
    return false
  }
}

async function bundle() {
  const common = {
    absWorkingDir: root,
    outdir: target,
    entryNames: '[name]-[hash]',
    bundle: true,
    minify: true,
    target: ['es2022'],
    legalComments: 'eof',
    tsconfigRaw: '{}',
    // Written only when all of it is there: somebody may be reading the result of before.
    write: false,
    metafile: true,
    logLevel: 'warning',
  }
  const pages = await build({
    ...common,
    entryPoints: { main: 'console/main.tsx', style: 'console/styles/style.css' },
    chunkNames: 'part-[hash]',
    splitting: true,
    format: 'esm',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    loader: { '.svg': 'file' },
  })
  // A plain script, whole in itself: it runs before the first paint, which a module does not.
  const boot = await build({ ...common, entryPoints: { boot: 'console/boot.ts' }, format: 'iife' })
  const metafile = { outputs: { ...pages.metafile.outputs, ...boot.metafile.outputs } }
  const outputFiles = [...pages.outputFiles, ...boot.outputFiles]
  mkdirSync(target, { recursive: true })
  const entries = Object.entries(metafile.outputs).flatMap(([file, { entryPoint }]) =>
    entryPoint === undefined ? [] : [[entryPoint.split('/').at(-1)?.replace(/\.\w+$/, ''), basename(file)]],
  )
  const named = Object.fromEntries(entries)
  const names = outputFiles.map(file => basename(file.path))
  for (const { path, contents } of outputFiles) writeFileSync(join(target, basename(path)), contents)
  const draft = `${list}.${process.pid}`
  writeFileSync(draft, `${JSON.stringify({ ...named, names }, null, 1)}\n`)
  renameSync(draft, list)
  if (!isLazy) for (const name of readdirSync(target)) if (!names.includes(name) && name !== 'files.json') rmSync(join(target, name), { recursive: true })
  return metafile
}

/** Compressed size of the scripts that every page loads, which are the entry and what it imports at once. */
function measure({ outputs }, entry) {
  const seen = new Set()
  const visit = file => {
    if (seen.has(file)) return
    seen.add(file)
    for (const one of outputs[file].imports) if (one.kind === 'import-statement' && !one.external) visit(one.path)
  }
  visit(entry)
  return [...seen]
    .filter(file => SCRIPTS.has(extname(file)))
    .reduce((sum, file) => sum + gzipSync(readFileSync(join(target, basename(file)))).length, 0)
}

if (!isLazy || !isFresh()) {
  const metafile = await bundle()
  const entry = Object.entries(metafile.outputs).find(([, output]) => output.entryPoint === 'console/main.tsx')?.[0]
  const bytes = measure(metafile, entry)
  if (bytes > BUDGET_BYTES) {
    process.stderr.write(`the console's scripts are ${bytes} bytes compressed: at most ${BUDGET_BYTES}\n`)
    process.exitCode = 1
  }
}
