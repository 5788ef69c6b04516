import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { createGateway, type Gateway, type GatewayOptions } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

const PROGRAM = fileURLToPath(new URL('../fixtures/foreign-worker.py', import.meta.url))

const TREE = {
  'hello/handler.py': 'never read by that runtime',
  'hello/fn.config.json': { json: { name: 'hello', response: { include_debug_headers: true } } },
  'hello/fn.env.json': { json: { KEY: 'ü' } },
  'users/[id].py': 'nor this one',
}

interface Foreign {
  child: ChildProcess
  uri: string
}

/** Starts the foreign runtime and waits until it says where it listens. */
async function startForeign(t: Test, address: string): Promise<Foreign> {
  const child = spawn('python3', [PROGRAM, address], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = new Promise(resolve => child.once('exit', resolve))
  t.teardown(() => {
    child.kill('SIGKILL')
    return ended
  })
  for await (const line of createInterface({ input: child.stdout! })) return { child, uri: line }
  throw new Error(`${PROGRAM} ended`)
}

async function startGateway(t: Test, options: (root: string) => GatewayOptions): Promise<Gateway> {
  const tree = makeTree(TREE)
  const gateway = await createGateway({ functionsRoot: tree.root, ...options(tree.root) })
  t.teardown(async () => {
    await gateway.close({ timeoutMs: 1000 })
    tree.cleanup()
  })
  return gateway
}

async function checkCalls(t: Test, gateway: Gateway): Promise<void> {
  const first = await gateway.inject('/hello?a=1&a=2&b=%C3%BC')
  t.equal(first.status, 201)
  t.match(first.rawHeaders.join('\n'), /set-cookie\na=1\nset-cookie\nb=2/i)
  t.same(first.json(), {
    name: 'hello',
    callable: { names: ['handler', 'main'] },
    env: { KEY: 'ü' },
    method: 'GET',
    path: '/hello',
    query: { a: ['1', '2'], b: 'ü' },
    params: {},
  })
  t.match((await gateway.inject('/users/4%202')).json(), { name: 'users/[id]', params: { id: '4 2' } })
  const bytes = Buffer.from(Array.from({ length: 256 * 1024 }, (_, i) => i & 0xff))
  const back = await gateway.inject({ method: 'POST', url: '/hello', body: bytes })
  t.ok(back.body.equals(bytes), 'any bytes, both ways')
  t.equal(back.headers['content-type'], 'application/x-test')
  const failed = await gateway.inject('/hello?fail=1')
  t.equal(failed.status, 500)
  t.match(failed.json(), { error: 'failed as asked', detail: { file: 'hello/handler.py' } })
  const many = await Promise.all(Array.from({ length: 20 }, (_, n) => gateway.inject(`/hello?n=${n}`)))
  t.same(
    many.map(answer => (answer.json() as { query: unknown }).query),
    Array.from({ length: 20 }, (_, n) => ({ n: String(n) })),
    'calls at once do not cross',
  )
}

t.test(
  '[runtime/wire-protocol.1, runtime/wire-protocol.5, runtime/wire-protocol.6, runtime/wire-protocol.10] a worker written from the page serves over unix',
  async t => {
    const folder = makeTree()
    t.teardown(() => folder.cleanup())
    const { uri } = await startForeign(t, `unix:${folder.path('foreign.sock')}`)
    const gateway = await startGateway(t, () => ({
      env: { FN_RUNTIMES: 'python', FN_RUNTIME_SOCKETS: JSON.stringify({ python: uri }) },
    }))
    t.match(gateway.health(), {
      runtimes: { python: { health: { up: true }, sockets: [{ index: 1, uri, up: true }] } },
    })
    await checkCalls(t, gateway)
  },
)

t.test('[runtime/wire-protocol.1, runtime/wire-protocol.12, runtime/wire-protocol.13] and over tcp', async t => {
  const { uri } = await startForeign(t, 'tcp://127.0.0.1:0')
  const gateway = await startGateway(t, () => ({ runtimes: ['python'], runtimeSockets: { python: [uri] } }))
  await checkCalls(t, gateway)
})

t.test(
  '[runtime/wire-protocol.7, runtime/wire-protocol.9, runtime/wire-protocol.20] two of them take turns; one that ends is left out',
  async t => {
    const folder = makeTree()
    t.teardown(() => folder.cleanup())
    const [one, two] = await Promise.all([
      startForeign(t, `unix:${folder.path('foreign.sock')}`),
      startForeign(t, 'tcp://127.0.0.1:0'),
    ])
    const gateway = await startGateway(t, () => ({
      runtimes: ['python'],
      runtimeSockets: { python: [one.uri, two.uri] },
    }))
    const indexes = async (): Promise<string[]> => {
      const answers = await Promise.all(Array.from({ length: 20 }, () => gateway.inject('/hello')))
      return [...new Set(answers.map(answer => String(answer.headers['x-fn-runtime-socket-index'])))].sort()
    }
    t.match(await gateway.inject('/hello'), { headers: { 'x-fn-runtime-routing': 'round_robin' } })
    await until(async () => (await indexes()).join() === '1,2')
    two.child.kill('SIGKILL')
    await until(() => JSON.stringify(gateway.health()).includes('"up":false'))
    for (let i = 0; i < 20; i++) t.equal((await gateway.inject('/hello')).headers['x-fn-runtime-socket-index'], '1')
    one.child.kill('SIGKILL')
    await until(async () => (await gateway.inject('/hello')).status === 503)
    t.match((await gateway.inject('/hello')).json(), { error: /^runtime down/ })
  },
)
