/**
 * Writes docs/reference from the declarations.
 * Usage: node --import tsx build/reference.mjs [--check]
 *   --check  writes nothing, and ends with 1 when a page says something else than the declarations
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { toReferencePages } from './reference-pages.mjs'

const folder = new URL('../docs/reference/', import.meta.url)
const changed = Object.entries(toReferencePages()).filter(([name, text]) => {
  const file = new URL(name, folder)
  return !existsSync(file) || readFileSync(file, 'utf8') !== text
})

if (process.argv.includes('--check')) {
  for (const [name] of changed) process.stderr.write(`docs/reference/${name} is not what is declared: npm run reference\n`)
  process.exitCode = changed.length === 0 ? 0 : 1
} else {
  mkdirSync(folder, { recursive: true })
  for (const [name, text] of changed) writeFileSync(new URL(name, folder), text)
}
