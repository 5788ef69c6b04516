/**
 * Joins the modules of the product into a few files, which Node reads three times as fast as four hundred; the packages it uses stay
 * packages. Declarations come from the compiler. A module that is imported by a call (`await import(...)`) gets a file of its own.
 * Usage: node build/bundle.mjs [folder of the build, default dist]
 */

import { rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

/** Beside `bin` and `lib`, and as deep: modules find the files of the package by their own place (lib/runtime/package-files). */
const SHARED = 'shared'

const root = fileURLToPath(new URL('..', import.meta.url))
const target = resolve(process.argv[2] ?? join(root, 'dist'))

// Names carry a hash, so those of the build before would stay.
rmSync(join(target, SHARED), { recursive: true, force: true })
await build({
  absWorkingDir: root,
  entryPoints: { 'bin/fngw': 'bin/fngw.ts', 'lib/index': 'lib/index.ts', 'lib/acceptor-main': 'lib/processes/acceptor-main.ts' },
  outdir: target,
  chunkNames: `${SHARED}/[name]-[hash]`,
  bundle: true,
  splitting: true,
  packages: 'external',
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  tsconfigRaw: '{}',
  // Lines of the sources in traces of `node --enable-source-maps`; the text is in the repository.
  sourcemap: 'linked',
  sourcesContent: false,
  logLevel: 'warning',
})

