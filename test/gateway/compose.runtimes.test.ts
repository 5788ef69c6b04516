import t from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { SharedPacks } from '../../lib/dependencies/dependencies.ts'
import { createRuntimes, type GatewayContext } from '../../lib/gateway/compose.ts'
import { Journal } from '../../lib/observe/journal.ts'
import { snapshotOf } from '../helpers/discovery.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[observe/events.7, observe/log-store.14] what builds and runtimes tell reaches the journal', async t => {
  const { root, path, cleanup } = makeTree({ 'a/handler.go': 'package main\n\nfunc handler(\n' })
  t.teardown(cleanup)
  const { settings } = resolveSettings({ options: { functionsRoot: root, runtimes: ['go', 'node'] }, cwd: '/' })
  const journal = new Journal({ clock: systemClock, functionsRoot: null, accessLog: false })
  const logs: string[] = []
  journal.events.on('log', ({ level, message }) => logs.push(`${level} ${message}`))
  const { builds, runtimes } = createRuntimes({
    settings,
    clock: systemClock,
    // No compiler: the build of the function fails at once, wherever the test runs.
    hostEnv: { PATH: '/nonexistent' },
    inspect: false,
    journal,
    packs: new SharedPacks(root),
    loaded: null,
    catalog: () => ({ snapshot: snapshotOf(root) }),
  } as unknown as GatewayContext)
  t.teardown(() => runtimes.close(0))
  t.teardown(() => builds.close())
  t.same([...runtimes.byName.keys()], ['go', 'node'])
  const fn = makeFn({ runtime: 'go', name: 'a', entryPath: path('a/handler.go'), entryFile: 'a/handler.go' })
  await t.rejects(builds.prepare(fn), { code: 'RUNTIME_DOWN' })
  t.ok(logs.includes('error a/handler.go: runtime down'), logs.join(' | '))
  t.ok(logs.some(line => line.startsWith('warn go daemon 1: ')))
})

t.test('[gateway/gateway.15] to inspect starts nothing', async t => {
  const { root, cleanup } = makeTree()
  t.teardown(cleanup)
  const { settings } = resolveSettings({ options: { functionsRoot: root }, cwd: '/' })
  const journal = new Journal({ clock: systemClock, functionsRoot: null, accessLog: false })
  const { runtimes } = createRuntimes({
    settings,
    clock: systemClock,
    hostEnv: process.env,
    inspect: true,
    journal,
    packs: new SharedPacks(root),
    loaded: null,
    catalog: () => ({ snapshot: snapshotOf(root) }),
  } as unknown as GatewayContext)
  await runtimes.start()
  for (const runtime of runtimes.byName.values()) t.match(runtime.health(), { up: false, reason: /only looked at/ })
  await runtimes.close(0)
})
