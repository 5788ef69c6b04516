/**
 * Copies what the page at /docs needs of swagger-ui-dist into the built package, with its licence: 2 of its 12 MB.
 * Usage: node build/copy-docs.mjs [folder of the build, default dist]
 */

import { cpSync, mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

const FILES = [
  'swagger-ui-bundle.js',
  'swagger-ui-bundle.js.LICENSE.txt',
  'swagger-ui.css',
  'favicon-32x32.png',
  'LICENSE',
  'NOTICE',
]

const manifest = createRequire(import.meta.url).resolve('swagger-ui-dist/package.json')
const target = join(process.argv[2] ?? 'dist', 'docs')
mkdirSync(target, { recursive: true })
for (const name of FILES) cpSync(join(dirname(manifest), name), join(target, name))
