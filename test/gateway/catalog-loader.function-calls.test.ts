import t from 'tap'
import { RequestIds } from '../../lib/invocation/event.ts'
import { Metrics } from '../../lib/observe/metrics.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { type Catalog, FunctionCalls } from '../../lib/gateway/catalog-loader.ts'
import { GatewayError } from '../../lib/core/errors.ts'

function setUp() {
  const functions = [
    makeFn({ name: 'one', policy: { methods: ['POST', 'GET'] } }),
    makeFn({ name: 'two' }),
    makeFn({ name: 'two', runtime: 'python' }),
    makeFn({ name: 'users/[id]', kind: 'file' }),
    makeFn({ name: 'three' }),
    makeFn({ name: 'three', version: 'default', policy: { methods: ['PUT'] } }),
  ]
  const { invoker, runtime, catalog } = makePublic({ '/users/:id': functions[3]!, '/one': functions[0]! })
  const failures: string[] = []
  const calls = new FunctionCalls({
    metrics: new Metrics(),
    invoker,
    requestIds: new RequestIds('own'),
    journal: { callFailed: ({ id }, error) => failures.push(`${id} ${error.code}`) },
    catalog: () => ({ discovery: { functions }, routes: catalog.routes }) as unknown as Catalog,
  })
  return { calls, functions, runtime, failures }
}

t.test('[gateway/gateway.7] a call by name takes what its function answers first, and ids of its own', async t => {
  const { calls, runtime } = setUp()
  t.match(await calls.byName('one', {}), { status: 200, error: null })
  await calls.byName('one', { method: 'GET', query: { a: 1 }, headers: { 'X-B': 'b' }, context: { name: 'u' } })
  const [plain, given] = runtime.calls.map(headerOfCall)
  t.match(plain, { id: 'own-1', method: 'POST', path: '/one', query: {}, user: null })
  t.match(given, { id: 'own-2', method: 'GET', query: { a: '1' }, headers: { 'x-b': 'b' }, user: { name: 'u' } })
})

t.test('[gateway/gateway.7] an unknown name is not found, one of several runtimes has to be told apart', async t => {
  const { calls } = setUp()
  await t.rejects(calls.byName('none', {}), { code: 'NOT_FOUND' })
  await t.rejects(calls.byName('one', { version: 'v9' }), { code: 'NOT_FOUND' })
  await t.rejects(calls.byName('two', {}), { code: 'ROUTE_CONFLICT' })
  t.match(await calls.byName('two', { runtime: 'python' }), { status: 200 })
})

t.test(
  '[gateway/gateway.7, scheduler/keep-warm.1] what fails without a client is told to the journal, a ping too',
  async t => {
    const { calls, functions, runtime, failures } = setUp()
    runtime.answer = call => call.onError(new GatewayError('RUNTIME_DOWN', 'runtime down'))
    t.match(await calls.byName('one', {}), { status: 503, error: { code: 'RUNTIME_DOWN' } })
    t.same(await calls.ping(functions[0]!), { status: 503, error: 'runtime down' })
    t.match(headerOfCall(runtime.calls[1]!), { trigger: { type: 'keep_warm' } })
    t.same(failures, ['own-1 RUNTIME_DOWN', 'ping-own-2 RUNTIME_DOWN'])
  },
)

t.test('[control/invoke.4] "default" is the version that has no label, unless a folder has that name', async t => {
  const { calls, runtime } = setUp()
  await calls.byName('one', { version: 'default' })
  await calls.byName('three', { version: 'default' })
  t.same(
    runtime.calls.map(call => call.fn.key),
    ['node/one@default', 'node/three@default'],
  )
  t.same(
    runtime.calls.map(call => call.fn.version),
    [null, 'default'],
  )
})

t.test('[control/invoke.7] a route gives path and params, a name alone its own path', async t => {
  const { calls, runtime } = setUp()
  const named = calls.prepare('users/[id]', {}, { id: 'i-1', ip: '192.0.2.1' })
  t.match(named, { id: 'i-1', ip: '192.0.2.1', path: '/users/[id]', params: {}, pattern: null })
  const routed = calls.prepare('users/[id]', { params: { id: 'a/b' } })
  t.match(routed, { path: '/users/a/b', pattern: '/users/:id' })
  const params = { id: 'x' }
  t.match(await calls.byName('users/[id]', { params }), { path: '/users/x', route: '/users/:id', status: 200 })
  t.match(await calls.byName('one', {}), { path: '/one', route: null })
  runtime.calls.length = 0
  await calls.run(routed)
  t.match(headerOfCall(runtime.calls[0]!), { path: '/users/a/b', params: { id: 'a/b' } })
  await t.rejects(calls.byName('one', { method: 'GET', route: '/users/7' }), { code: 'BAD_REQUEST' })
})
