/**
 * Runs test files with node:test, each in its own process, and counts their tests. Page: bin/test.
 * Usage: node run-tests.mjs <report> <files...>
 */

import { writeFileSync } from 'node:fs'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'

const [report = '', ...files] = process.argv.slice(2)
const counts = { passed: 0, failed: 0, skipped: 0 }
/** A file without tests passes under its own name; one that does not load fails under it. */
const names = new Set(files)
// The shell's cwd is the function's folder, from which node names files.
for (const file of files) if (file.startsWith(`${process.cwd()}/`)) names.add(file.slice(process.cwd().length + 1))

const stream = run({ files, concurrency: true })
stream.on('test:pass', ({ name, skip, todo, details }) => {
  if (details.type === 'suite' || names.has(name)) return
  if (skip === undefined && todo === undefined) counts.passed += 1
  else counts.skipped += 1
})
stream.on('test:fail', ({ todo, details }) => {
  if (details.type === 'suite') return
  if (todo === undefined) counts.failed += 1
  else counts.skipped += 1
})
stream.on('end', () => writeFileSync(report, JSON.stringify(counts)))
stream.compose(new spec()).pipe(process.stdout)
