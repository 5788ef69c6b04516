import t from 'tap'
import type { Catalog } from '../../console/data/records.ts'
import { type Dependencies, type Packs, toPackRows, toPreparations, toSummary } from '../../console/pages/packs/rows.ts'

const dependencies = (states: Record<string, string>): Dependencies => ({
  functions: Object.entries(states).map(([key, state]) => ({
    ...{ key, runtime: 'node', state, step: null, since: null, error: null, file: null, line: null, hint: null },
  })),
  running: [],
})

t.test('[console/packs.1] those that failed come first, and those that need nothing are counted alone', async t => {
  const all = dependencies({ a: 'ready', b: 'failed', c: 'none', d: 'preparing', e: 'failed', f: 'ready' })
  t.same(
    toPreparations(all).map(({ key }) => key),
    ['b', 'e', 'd', 'a', 'f'],
  )
  t.equal(
    toSummary(all),
    '2 functions failed, 1 function installing, 2 functions ready, 1 without packages or not called yet.',
  )
  t.equal(toSummary(dependencies({ c: 'none' })), '0 functions ready, 1 without packages or not called yet.')
})

t.test('[console/packs.2] packs with what is in them and who uses them', async t => {
  const packs: Packs = {
    runtimes: {
      node: {
        packs: [{ name: 'x', dir: '/r/x', package_json: true, lock_file: 'package-lock.json', node_modules: true }],
      },
      python: { packs: [{ name: 'x', requirements_txt: true, deps_dir: false }] },
    },
  }
  const catalog = {
    runtimes: {
      node: {
        functions: [
          {
            ...{ name: 'a', has_default: true, versions: ['v2', 'v3'], file: 'a.js', policy: { shared_deps: ['x'] } },
            versions_policy: { v2: { shared_deps: ['x', 'y'] }, v3: {} },
          },
          { name: 'b', has_default: false, versions: [], file: null, policy: {}, versions_policy: {} },
        ],
      },
    },
  } as unknown as Catalog
  t.same(toPackRows(packs, catalog), [
    {
      ...{ key: 'node/x', runtime: 'node', name: 'x', dir: '/r/x', files: 'package.json, package-lock.json' },
      isInstalled: true,
      usedBy: ['node/a@default', 'node/a@v2'],
    },
    {
      ...{ key: 'python/x', runtime: 'python', name: 'x', dir: null, files: 'requirements.txt' },
      isInstalled: false,
      usedBy: [],
    },
  ])
  t.same(toPackRows(packs, null)[0]?.usedBy, [])
})
