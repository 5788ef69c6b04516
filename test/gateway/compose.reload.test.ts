import t from 'tap'
import { NO_OUTER_ENV } from '../../lib/config/function-env.ts'
import { resolveSettings } from '../../lib/config/settings.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { ReloaderOptions } from '../../lib/gateway/catalog-loader.ts'
import { createCatalogLoader, createReloader, type GatewayContext, watchProject } from '../../lib/gateway/compose.ts'
import type { Metrics } from '../../lib/observe/metrics.ts'
import { SchemaStore } from '../../lib/validation/schema-store.ts'
import { ReadTree } from '../helpers/discovery.ts'
import { makeTree } from '../helpers/tree.ts'
import type { Warning } from '../../lib/core/errors.ts'

t.test('[gateway/gateway.1, gateway/gateway.4] the loader takes defaults and rules from the settings', async t => {
  const tree = makeTree({ 'a.js': 'export const handler = () => 1\n', 'b.lua': 'function handler(\n' })
  t.teardown(tree.cleanup)
  const load = async (production: boolean) => {
    const { settings } = resolveSettings({
      options: { functionsRoot: tree.root, runtimes: ['node', 'lua'], defaultTimeoutMs: 777, production },
      cwd: '/',
    })
    const clock = { ...systemClock, wall: () => 42 }
    const context = { settings, clock, outerEnv: () => NO_OUTER_ENV, loaded: null } as unknown as GatewayContext
    return createCatalogLoader(context, [], new SchemaStore(tree.root)).load(null)
  }
  const catalog = await load(false)
  t.equal(catalog.generatedAt, 42)
  t.same(
    [...catalog.functions.values()].map(fn => fn.policy.timeoutMs),
    [777, 777],
  )
  t.match(
    catalog.warnings.map(warning => warning.path),
    ['b.lua'],
    'sources are looked at where somebody edits them',
  )
  t.same((await load(true)).warnings, [])
})

t.test(
  '[gateway/gateway.12, config/function-env.13] a change of the tree names its files, one of the env files none',
  async t => {
    const tree = makeTree({ 'functions/a.js': '1', '.env': 'A=1' })
    t.teardown(tree.cleanup)
    const warnings: Warning[] = []
    let told: (paths: ReadonlySet<string> | null) => void = () => {}
    const context = {
      settings: { functionsRoot: tree.path('functions') },
      clock: systemClock,
      envDir: tree.root,
      journal: { warn: (warning: Warning) => void warnings.push(warning) },
      loaded: null,
    } as unknown as GatewayContext
    const watcher = watchProject(context, new ReadTree(tree.path('functions')), async paths => told(paths))
    t.teardown(() => watcher.close())
    // A watch keeps no process alive; the test has to.
    const alive = setInterval(() => {}, 60_000)
    t.teardown(() => clearInterval(alive))
    await watcher.ready
    const change = async (name: string, text: string, isIt: (paths: ReadonlySet<string>) => boolean) => {
      const seen = new Promise<void>(resolve => {
        told = paths => {
          if (paths !== null && isIt(paths)) resolve()
        }
      })
      tree.write({ [name]: text })
      await seen
    }
    await change('functions/a.js', '2', paths => paths.has('a.js'))
    await change('.env', 'A=2', paths => paths.size === 0)
    t.same(warnings, [])
  },
)

t.test(
  '[gateway/gateway.12] a change of the tree is read again, and a failure that nobody waits for is told and counted',
  async t => {
    const tree = makeTree({ 'a.js': '1' })
    t.teardown(tree.cleanup)
    const loads: (readonly [changed: string[] | null, cause: string])[] = []
    const said: string[] = []
    let isBroken = false
    let told = (): void => {}
    const context = {
      clock: systemClock,
      settings: { functionsRoot: tree.root },
      // No project file lies beside such a tree.
      envDir: null,
      loaded: null,
      journal: {
        warn: (warning: Warning) => void said.push(warning.message),
        log: (level: string, message: string) => {
          said.push(`${level} ${message}`)
          told()
        },
      },
    } as unknown as GatewayContext
    const metrics = { reload: (result: string) => void said.push(`counted ${result}`) } as unknown as Metrics
    const load: ReloaderOptions['load'] = async (changed, cause) => {
      loads.push([changed && [...changed], cause])
      if (isBroken) throw new Error('no memory')
      if (changed !== null) told()
      return true
    }
    const reloader = createReloader(context, metrics, load, new ReadTree(tree.root))
    t.teardown(() => reloader.close())
    const alive = setInterval(() => {}, 60_000)
    t.teardown(() => clearInterval(alive))
    const change = async (text: string): Promise<void> => {
      const seen = new Promise<void>(resolve => {
        told = resolve
      })
      tree.write({ 'a.js': text })
      await seen
    }
    await reloader.watch()
    t.same(loads, [[null, 'watch']], 'what was saved before it was watched')
    await change('2')
    t.same(loads.at(-1), [['a.js'], 'watch'])
    isBroken = true
    await change('3')
    t.same(said, ['counted failed', 'error reload failed: Error: no memory'])
    isBroken = false
    await change('4')
    t.equal(said.length, 2, 'and the next one is read')
  },
)
