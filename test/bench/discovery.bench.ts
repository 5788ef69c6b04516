/**
 * Reading a tree of 10,000 functions, and reading it again after one change (goal P6). A plain walk over the same tree,
 * which lists every folder and reads nothing, is the yardstick of the same run.
 */

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { NO_OUTER_ENV } from '../../lib/config/function-env.ts'
import { CatalogLoader } from '../../lib/gateway/catalog-loader.ts'
import { median } from './load.ts'
import type { BenchRow } from './rows.ts'

const GROUPS = 100
const FUNCTIONS_OF_A_GROUP = 100
const ROUNDS = 5
const CHANGES = 20
const OPTIONS = {
  runtimes: ['node', 'python', 'php', 'lua'],
  namespaceDepth: 3,
  forceUrl: false,
  checksSources: false,
  defaults: {
    defaultTimeoutMs: 2500,
    defaultMaxConcurrency: 20,
    defaultQueue: { maxQueue: 500, timeoutMs: 5000, maxWaitMs: 0 },
    defaultMaxBodyBytes: 1_048_576,
  },
} as const
const HANDLER = "export const handler = () => ({ message: 'hello' })\n"

/** Every kind of place a handler can have: a file, a folder of its own, a method file, a dynamic name. */
function makeTree(root: string): void {
  for (let group = 0; group < GROUPS; group++) {
    for (let i = 0; i < FUNCTIONS_OF_A_GROUP; i++) {
      const folder = join(root, `group-${group}`, `part-${i % 10}`)
      const file = [`item-${i}.js`, `get.list-${i}.js`, `own-${i}/handler.js`, `kind-${i}/[id].js`][i % 4]!
      mkdirSync(join(folder, file, '..'), { recursive: true })
      writeFileSync(join(folder, file), HANDLER)
    }
  }
}

function walk(folder: string): number {
  let files = 0
  for (const entry of readdirSync(folder, { withFileTypes: true }))
    files += entry.isDirectory() ? walk(join(folder, entry.name)) : 1
  return files
}

async function timed(act: () => unknown): Promise<number> {
  const from = performance.now()
  await act()
  return performance.now() - from
}

export async function run(): Promise<BenchRow[]> {
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  try {
    makeTree(root)
    const makeLoader = () =>
      new CatalogLoader({
        ...OPTIONS,
        rootPath: root,
        now: () => Date.now(),
        outerEnv: () => NO_OUTER_ENV,
        steps: () => ({ before: [], after: [], homes: [], warnings: [] }),
      })
    const plain: number[] = []
    const first: number[] = []
    let loader = makeLoader()
    for (let round = 0; round < ROUNDS; round++) {
      plain.push(await timed(() => walk(root)))
      loader = makeLoader()
      first.push(await timed(() => loader.load(null)))
    }
    const changed: number[] = []
    const added: number[] = []
    for (let i = 0; i < CHANGES; i++) {
      const file = 'group-7/part-0/item-0.js'
      writeFileSync(join(root, file), `${HANDLER}// ${i}\n`)
      changed.push(await timed(() => loader.load([file])))
      const another = `group-8/part-0/more-${i}.js`
      writeFileSync(join(root, another), HANDLER)
      added.push(await timed(() => loader.load([another])))
    }
    const total = GROUPS * FUNCTIONS_OF_A_GROUP
    return [
      {
        name: `discovery of ${total} functions`,
        value: median(first),
        unit: 'ms',
        goal: '<= 1500',
        ok: median(first) <= 1500,
      },
      { name: '  to a plain walk over the tree', value: median(first) / median(plain), unit: 'ratio' },
      {
        name: 'reload after one change among them',
        value: median(changed),
        unit: 'ms',
        goal: '<= 30',
        ok: median(changed) <= 30,
      },
      {
        name: 'reload after one more function',
        value: median(added),
        unit: 'ms',
        goal: '<= 30',
        ok: median(added) <= 30,
      },
    ]
  } finally {
    rmSync(root, { recursive: true, force: true })
  }
}
