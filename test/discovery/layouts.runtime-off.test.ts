import t from 'tap'
import { toOffReason, toOffWarnings } from '../../lib/discovery/layouts.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[discovery/layouts.45] one warning names the languages, the files and the list that enables them', async t => {
  const off = (path: string, runtime: 'go' | 'rust') => ({ path, reason: toOffReason(runtime) })
  const go = Array.from({ length: 7 }, (_, i) => off(`f${i}.go`, 'go'))
  const others = [
    { path: '_x.go', reason: 'private' },
    { path: 'notes.txt', reason: toOffReason('go') },
  ]
  t.match(toOffWarnings([...others, off('r.rs', 'rust'), ...go], ['node']), [
    {
      code: 'RUNTIME_OFF',
      path: 'r.rs',
      message: 'rust and go are not enabled by default; not served: r.rs, f0.go, f1.go, f2.go, f3.go and 3 more',
      hint: /--runtimes node,rust,go \(FN_RUNTIMES=node,rust,go\)/,
    },
  ])
  t.match(toOffWarnings([off('r.rs', 'rust')], ['node'])[0]?.message, /^rust is not enabled .*not served: r\.rs$/)
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
  t.same(await codes({}), [['b.rs'], ['a/_help.go private']])
  t.same((await codes({ runtimes: ['node'] }))[0], [])
  t.same((await codes({ env: { FN_RUNTIMES: 'node,go' } }))[0], [])
  t.same((await codes({ defaults: { runtimes: ['node', 'go'] } }))[0], ['b.rs'])
})
