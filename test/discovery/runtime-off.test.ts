import t from 'tap'
import { toOffReason, toOffWarnings } from '../../lib/discovery/runtime-off.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[discovery/layouts.45] one warning a language, with the files and the list that turns it on', async t => {
  const off = (path: string, runtime: 'go' | 'rust') => ({ path, reason: toOffReason(runtime) })
  const go = Array.from({ length: 7 }, (_, i) => off(`f${i}.go`, 'go'))
  const others = [
    { path: '_x.go', reason: 'private' },
    { path: 'notes.txt', reason: toOffReason('go') },
  ]
  const warnings = toOffWarnings([...go, off('r.rs', 'rust'), ...others], ['node'])
  t.match(warnings, [
    { code: 'RUNTIME_OFF', path: 'f0.go', message: /not served: f0\.go, f1\.go, f2\.go, f3\.go, f4\.go and 2 more$/ },
    {
      path: 'r.rs',
      message: /^rust .*not served: r\.rs$/,
      hint: /--runtimes node,go,rust \(FN_RUNTIMES=node,go,rust\)/,
    },
  ])
  t.same(toOffWarnings(others, ['node']), [])
})

t.test('[discovery/layouts.45, bin/dev.15] only while nobody has named runtimes', async t => {
  const { root, cleanup } = makeTree({ 'a/handler.go': 'package main\n', 'a/_help.go': 'package main\n', 'b.rs': '' })
  t.teardown(cleanup)
  const codes = async (options: GatewayOptions) => {
    const gateway = await createGateway({ functionsRoot: root, inspect: true, ...options })
    const found = gateway.warnings
      .filter(({ code }) => code === 'RUNTIME_OFF')
      .map(({ path }) => path)
      .sort()
    const { ignored } = gateway.explain('GET', '/a/help')
    await gateway.close()
    return [found, ignored.map(({ path, reason }) => `${path} ${reason.slice(0, 7)}`)]
  }
  t.same(await codes({}), [['a/handler.go', 'b.rs'], ['a/_help.go private']])
  t.same((await codes({ runtimes: ['node'] }))[0], [])
  t.same((await codes({ env: { FN_RUNTIMES: 'node,go' } }))[0], [])
  t.same((await codes({ defaults: { runtimes: ['node', 'go'] } }))[0], ['b.rs'])
})
