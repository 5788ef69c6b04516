/**
 * `npm run bench [-- name ...]`: the named cases, or all; figures are ratios within one run.
 * Nothing here is a test: machines are noisy, so a missed goal is marked and never fails anything.
 */

import { readdirSync } from 'node:fs'
import { type BenchRow, printRows } from './rows.ts'

const cases = readdirSync(new URL('.', import.meta.url))
  .filter(file => file.endsWith('.bench.ts'))
  .map(file => file.slice(0, -'.bench.ts'.length))
  .sort()
const wanted = process.argv.slice(2)
for (const name of wanted.length > 0 ? wanted : cases) {
  if (!cases.includes(name)) {
    process.stderr.write(`no bench case "${name}"; there are ${cases.join(', ')}\n`)
    process.exitCode = 2
    continue
  }
  const { run } = (await import(`./${name}.bench.ts`)) as { run: () => Promise<BenchRow[]> }
  printRows(name, await run())
}
