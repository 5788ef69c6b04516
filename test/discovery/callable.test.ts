import t from 'tap'
import { parseFunctionConfig } from '../../lib/config/function-config.ts'
import { isHandlerName, RUNTIMES } from '../../lib/core/identity.ts'
import { callableOf } from '../../lib/discovery/callable.ts'

const PLAIN = { handler: null, adapter: 'native' } as const

t.test('[discovery/callable.1] default names of each runtime', async t => {
  const names = RUNTIMES.map(runtime => `${runtime}: ${callableOf(runtime, PLAIN).names.join(' ')}`)
  t.same(names, [
    'python: handler main',
    'node: handler default',
    'php: handler',
    'lua: handler main',
    'go: handler Handler',
    'rust: handler',
  ])
})

t.test('[discovery/callable.2] invoke.handler stands alone', async t => {
  for (const runtime of RUNTIMES) {
    t.same(callableOf(runtime, { handler: 'run_it', adapter: 'native' }).names, ['run_it'], runtime)
  }
})

t.test('[discovery/callable.3] what a callable may be called', async t => {
  for (const name of ['handler', '_x', 'A9', 'run_it']) t.ok(isHandlerName(name), name)
  for (const name of ['', '9a', 'a-b', 'a.b', 'a b', 'é', 'a\n', 'x()']) {
    t.notOk(isHandlerName(name), JSON.stringify(name))
    const { value: config, warnings: problems } = parseFunctionConfig(
      JSON.stringify({ invoke: { handler: name } }),
      'fn.config.json',
    )
    t.equal(config.invoke.handler, undefined)
    t.match(problems[0]?.message, /invoke\.handler must be/)
  }
})

t.test('[discovery/callable.4] edge-worker looks for fetch first, where it exists', async t => {
  const adapter = 'edge-worker'
  t.same(callableOf('node', { handler: null, adapter }).names, ['fetch', 'handler', 'default'])
  t.same(callableOf('python', { handler: 'run', adapter }).names, ['fetch', 'run'])
  t.same(callableOf('php', { handler: null, adapter }).names, ['handler'])
})
