import t from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import type { SocketSet } from '../../lib/runtime/socket-set.ts'
import { KIND, parseHeader } from '../../lib/runtime/wire-protocol.ts'
import type { WorkerOwner } from '../../lib/runtime/worker.ts'
import { makeFn } from '../helpers/fn.ts'
import { HostileDaemon, setBefore } from '../helpers/hostile-daemon.ts'

interface Started {
  /** Which daemon was asked, from 1. */
  socket: number
  header: Record<string, unknown>
}

/** A runtime over daemons of the test; `load` says how many workers the function has at a socket. */
async function setUp(
  t: { teardown: (fn: () => unknown) => void },
  count: number,
  more: Partial<ConstructorParameters<typeof SocketSet>[0]> = {},
) {
  const daemons = await Promise.all(Array.from({ length: count }, () => HostileDaemon.start()))
  const queue: Started[] = []
  let wake: () => void = () => {}
  for (const [at, daemon] of daemons.entries()) {
    daemon.onStart = (peer, id, header) => {
      queue.push({ socket: at + 1, header: parseHeader(header) })
      peer.send(KIND.started, id, { worker: `w${id}`, pid: 0 })
      wake()
    }
  }
  const set = setBefore(daemons, more)
  t.teardown(async () => {
    await set.close()
    await Promise.all(daemons.map(daemon => daemon.close()))
  })
  const load = new Map<number, number>()
  let onFailure: (error: GatewayError) => void = () => {}
  const owner: WorkerOwner = {
    fn: makeFn(),
    clock: systemClock,
    answers: 0,
    loadOf: index => load.get(index) ?? 0,
    onLog: () => {},
    onFiles: () => {},
    forget: () => {},
    handleSuccess: () => {},
    handleRoom: () => {},
    handleAbandoned: () => {},
    handleLoadFailure: () => {},
    handleWorkerEnd: () => {},
    handleStartFailure: (_worker, error) => onFailure(error),
  }
  /** Where the next worker was started. */
  const spawn = async (program: string | null = null): Promise<Started> => {
    set.spawn(owner, program)
    while (queue.length === 0) await new Promise<void>(resolve => (wake = resolve))
    return queue.shift()!
  }
  /** Why the next worker could not be started. */
  const fail = (): Promise<GatewayError> =>
    new Promise(resolve => {
      onFailure = resolve
      set.spawn(owner, null)
    })
  return { set, daemons, spawn, fail, load, queue }
}

t.test(
  '[runtime/daemon.10, runtime/daemon.11] a worker starts where its function has the fewest, in turn among equals',
  async t => {
    const { set, spawn, load } = await setUp(t, 3)
    t.match(set.health(), { routing: 'round_robin', up: true }, 'what nobody needs yet is not broken')
    await set.start()
    t.same(set.sockets?.up(), [1, 2, 3])
    t.same([set.sockets?.begin(), set.sockets?.begin(), set.sockets?.begin(), set.sockets?.begin()], [0, 1, 2, 0])
    const turns = [await spawn(), await spawn(), await spawn(), await spawn()].map(({ socket }) => socket)
    t.same(turns, [1, 2, 3, 1])
    load.set(1, 2).set(2, 1).set(3, 2)
    t.equal((await spawn()).socket, 2)
    load.set(2, 3)
    t.equal((await spawn()).socket, 3, 'behind the one before')
  },
)

t.test('[runtime/wire-protocol.10] a daemon is told which function, and which program or start', async t => {
  const plain = await setUp(t, 1)
  await plain.set.start()
  t.equal(plain.set.sockets, null, 'one socket has no turns')
  const { header } = await plain.spawn()
  t.match(header, {
    key: 'node/hello@default',
    runtime: 'node',
    name: 'hello',
    version: null,
    entry: '/srv/hello/handler.js',
  })
  t.notOk('binary' in header || 'early' in header || 'user' in header)
  t.equal((await plain.spawn('/bin/program')).header.binary, '/bin/program')
  const early = await setUp(t, 1, { startsEarly: true })
  t.match(JSON.parse(String((await early.spawn()).header.early)), { key: 'node/hello@default', root: '/srv' })
})

t.test('[control/records.2] the version is that of the daemon, or of the toolchain of a compiled language', async t => {
  for (const [options, version] of [
    [{}, '20.20.0'],
    [{ toolchain: { version: '1.85.0' } }, '1.85.0'],
    [{ toolchain: { version: undefined } }, null],
  ] as const) {
    const { set } = await setUp(t, 1, options)
    await set.start()
    t.equal(set.health().version, version)
  }
})

t.test('[runtime/daemon.10] a start that fails on one socket is tried on the next; without any it is 503', async t => {
  const { set, daemons, spawn, fail, queue } = await setUp(t, 2)
  await set.start()
  const refuse =
    (reason: string): HostileDaemon['onStart'] =>
    (peer, id) =>
      peer.send(KIND.error, id, { message: reason })
  daemons[0]!.onStart = refuse('no processes left')
  t.equal((await spawn()).socket, 2)
  t.equal(daemons[0]!.starts, 1, 'the first was asked')
  daemons[1]!.onStart = refuse('no memory left')
  const error = await fail()
  t.match(error, { code: 'RUNTIME_DOWN', status: 503, message: 'runtime down', headers: { 'Retry-After': '1' } })
  t.match(error.detail?.hint, /^node: no (processes|memory) left$/)
  t.same(queue, [])
})

t.test('[runtime/daemon.10] a function that can have no user is told why', async t => {
  const { fail } = await setUp(t, 1, {
    userOf: () => {
      throw new Error('no user is left')
    },
  })
  t.match(await fail(), { code: 'RUNTIME_DOWN', detail: { hint: 'node: no user is left' } })
})

t.test('[runtime/daemon.11, runtime/daemon.15] health names what is down; after a close nothing starts', async t => {
  const half = await setUp(t, 1, {})
  const set = setBefore([], { externalUris: [half.daemons[0]!.uri, 'unix:/no/such.sock'] })
  t.teardown(() => set.close())
  await set.start()
  const health = set.health()
  t.match(health, { up: true, reason: /^1 of 2 sockets down: .*ENOENT.*reconnecting in \d+ ms$/ })
  t.same(
    health.sockets.map(({ up }) => up),
    [true, false],
  )
  await set.close()
  await set.start()
  t.equal(set.daemons[0]!.state, 'closed')
})
