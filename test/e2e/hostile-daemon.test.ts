/** The gateway against a daemon and workers that break the protocol in every way and at every moment. */

import v8 from 'node:v8'
import vm from 'node:vm'
import t, { type Test } from 'tap'
import { type Clock, systemClock } from '../../lib/core/clock.ts'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { encodeFrame, KIND } from '../../lib/runtime/wire-protocol.ts'
import { HostileDaemon, type HostilePeer } from '../helpers/hostile-daemon.ts'
import { RawConnection } from '../helpers/raw-http.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(120_000)

const TIMEOUT_MS = 300
/** Where no call may end by its timeout, it is out of a busy machine's reach. */
const PATIENT_MS = 20_000
const CALLS = 8

/** Runs ten times as fast as the real one: limits of many seconds end soon, and a busy machine still meets them. */
const fastClock: Clock = {
  wall: () => Date.now(),
  monotonic: () => performance.now() * 10,
  setTimeout: (callback, ms) => setTimeout(callback, ms / 10),
  clearTimeout: timer => clearTimeout(timer),
}

v8.setFlagsFromString('--expose-gc')
const collectGarbage = vm.runInNewContext('gc') as () => void

/** Bytes of the heap that are in use, without what nobody holds any more. */
function heapBytes(): number {
  collectGarbage()
  return process.memoryUsage().heapUsed
}

interface Bed {
  daemon: HostileDaemon
  gateway: Gateway
}

async function serve(t: Test, config: Record<string, unknown> = {}, clock: Clock = systemClock): Promise<Bed> {
  const { root, cleanup } = makeTree({
    'hit/handler.js': 'never read here',
    'hit/fn.config.json': { json: { timeout_ms: TIMEOUT_MS, ...config } },
    'patient/handler.js': 'never read here',
    'patient/fn.config.json': { json: { timeout_ms: PATIENT_MS, ...config } },
    'other/handler.lua': 'function handler() return "fine" end',
  })
  t.teardown(cleanup)
  const daemon = await HostileDaemon.start()
  t.teardown(() => daemon.close())
  const gateway = await createGateway({
    functionsRoot: root,
    runtimes: ['node', 'lua'],
    runtimeSockets: { node: [daemon.uri] },
    clock,
  })
  t.teardown(() => gateway.close({ timeoutMs: 1000 }))
  return { daemon, gateway }
}

/** Status of a call, `cut` when its answer broke off, `hung` when there was none in time. */
async function statusOf(gateway: Gateway, path: string, limitMs: number): Promise<number | 'cut' | 'hung'> {
  let timer!: NodeJS.Timeout
  const late = new Promise<'hung'>(resolve => {
    timer = setTimeout(() => resolve('hung'), limitMs)
  })
  const answered = gateway.inject(path).then(
    answer => answer.status,
    () => 'cut' as const,
  )
  const outcome = await Promise.race([answered, late])
  clearTimeout(timer)
  return outcome
}

/** Calls until one succeeds: a killed worker's successor may need a moment. */
async function recovers(gateway: Gateway, path = '/hit'): Promise<boolean> {
  const until = performance.now() + 15_000
  while (performance.now() < until) {
    if ((await statusOf(gateway, path, 12_000)) === 200) return true
    await new Promise(resolve => setTimeout(resolve, 5))
  }
  return false
}

async function until(isDone: () => boolean): Promise<void> {
  const limit = performance.now() + 10_000
  while (!isDone() && performance.now() < limit) await new Promise(resolve => setTimeout(resolve, 10))
}

function activeOf(gateway: Gateway): number {
  const health = gateway.health() as { functions?: { admission?: unknown } }
  return JSON.stringify(health).match(/"active":[1-9]/g)?.length ?? 0
}

const reply = (id: number, header: unknown, body = '') =>
  encodeFrame(KIND.reply, id, typeof header === 'string' ? header : JSON.stringify(header), Buffer.from(body))
const whole = (id: number) => reply(id, { status: 200, headers: {} }, 'whole')

const MANY_HEADERS = JSON.stringify({
  status: 200,
  headers: Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`h${i}`, 'v'])),
  stream: true,
})

interface Attack {
  act: (peer: HostilePeer, id: number) => void
  /** The statuses that may follow. */
  allowed: (number | 'cut')[]
  /** True when nothing but its timeout ends the call; also where 504 may follow. */
  isEndless?: true
}

/** What a worker does with a call. */
const CALL_ATTACKS: Record<string, Attack> = {
  'random bytes': { act: peer => peer.raw(Buffer.from('GET / HTTP/1.1\r\n\r\n')), allowed: [503] },
  'frame length 0': { act: peer => peer.raw(Buffer.alloc(4)), allowed: [503] },
  'frame length 4 GiB': { act: peer => peer.raw(Buffer.from('ffffffff11', 'hex')), allowed: [503] },
  'unknown kind': { act: peer => peer.raw(Buffer.from('00000009990000000100000000', 'hex')), allowed: [503] },
  'header longer than its frame': {
    act: peer => peer.raw(Buffer.from('0000000911000000010000ffff', 'hex')),
    allowed: [503],
  },
  'reply header that is no JSON': { act: (peer, id) => peer.raw(reply(id, '{"status":')), allowed: [502] },
  'reply header of a list': { act: (peer, id) => peer.raw(reply(id, '[200]')), allowed: [502] },
  'no reply header': { act: (peer, id) => peer.raw(reply(id, '')), allowed: [502] },
  'stream header that is no JSON': { act: (peer, id) => peer.raw(reply(id, '{"stream":tru')), allowed: [502, 503] },
  'wrong ids': { act: (peer, id) => peer.raw(Buffer.concat([whole(id + 1000), whole(0)])), allowed: [504, 503] },
  'id 0 and the largest id': {
    act: (peer, id) => peer.raw(Buffer.concat([whole(0xffffffff), whole(id)])),
    allowed: [200],
  },
  'two replies': { act: (peer, id) => peer.raw(Buffer.concat([whole(id), whole(id), whole(id)])), allowed: [200] },
  'reply, then error and end': {
    act: (peer, id) => {
      peer.raw(whole(id))
      peer.send(KIND.error, id, { code: 'exception', message: 'late' })
      peer.send(KIND.end, id)
      peer.send(KIND.chunk, id, '', Buffer.from('late'))
    },
    allowed: [200],
  },
  'end without a reply': { act: (peer, id) => peer.send(KIND.end, id), allowed: [502] },
  'end with a header of no object': { act: (peer, id) => peer.send(KIND.end, id, '7'), allowed: [503] },
  'chunk without a reply': {
    act: (peer, id) => {
      peer.send(KIND.chunk, id, '', Buffer.from('x'))
      peer.reply(id)
    },
    allowed: [200],
  },
  'a stream that begins twice': {
    act: (peer, id) => {
      for (let i = 0; i < 2; i++) peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true })
      peer.send(KIND.end, id)
    },
    allowed: [200],
  },
  'a stream that becomes a reply': {
    act: (peer, id) => {
      peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true })
      peer.raw(whole(id))
      peer.send(KIND.end, id)
    },
    allowed: [200, 'cut'],
  },
  'a stream that never ends': {
    act: (peer, id) => peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true }),
    allowed: ['cut'],
    isEndless: true,
  },
  'a stream beyond its length': {
    act: (peer, id) => {
      peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true, length: 3 })
      peer.send(KIND.chunk, id, '', Buffer.from('four'))
      peer.send(KIND.end, id)
    },
    allowed: ['cut'],
  },
  'a stream short of its length': {
    act: (peer, id) => {
      peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true, length: 9 })
      peer.send(KIND.chunk, id, '', Buffer.from('four'))
      peer.send(KIND.end, id)
    },
    allowed: ['cut'],
  },
  'a stream that breaks': {
    act: (peer, id) => {
      peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true })
      peer.send(KIND.end, id, { error: 'sorry' })
    },
    allowed: ['cut'],
  },
  'half a frame, then silence': { act: (peer, id) => peer.raw(whole(id).subarray(0, 9)), allowed: [503, 504] },
  'half a frame, then the end': {
    act: (peer, id) => {
      peer.raw(whole(id).subarray(0, 20))
      peer.socket.end()
    },
    allowed: [503, 504],
  },

  'a hang-up': { act: peer => peer.hangUp(), allowed: [503, 504] },
  'end of the connection': { act: peer => peer.socket.end(), allowed: [503, 504] },
  'end of the connection behind the reply': {
    act: (peer, id) => {
      peer.raw(whole(id))
      peer.socket.end()
    },
    allowed: [200, 503, 504],
  },
  'frames of the gateway': {
    act: (peer, id) => {
      peer.send(KIND.call, id, {})
      peer.send(KIND.start, id, {})
      peer.send(KIND.hello, id, {})
      peer.send(KIND.stop, id, {})
      peer.send(KIND.cancel, id)
      peer.send(KIND.more, id, { bytes: -1 })
      peer.send(KIND.started, id, { worker: 7 })
      peer.send(KIND.exited, id, { worker: 'w1' })
      peer.reply(id)
    },
    allowed: [200],
  },
  'pings and pongs without end': {
    act: (peer, id) => {
      for (let i = 0; i < 200; i++) peer.send(i % 2 === 0 ? KIND.ping : KIND.pong, i)
      peer.reply(id)
    },
    allowed: [200],
  },
  'a log of 15 MB': {
    act: (peer, id) => peer.send(KIND.log, id, '', Buffer.alloc(15_000_000, 120)),
    allowed: [502],
  },
  'a log header of 15 MB': {
    act: (peer, id) => peer.raw(encodeFrame(KIND.log, id, `{"a":[${'{},'.repeat(5_000_000)}0]}`, null)),
    allowed: [502],
  },
  'an end of 15 MB': {
    act: (peer, id) => peer.raw(encodeFrame(KIND.end, id, `{"error":"${'x'.repeat(15_000_000)}"}`, null)),
    allowed: [502],
  },
  'a reply header of 15 MB': {
    act: (peer, id) => peer.raw(reply(id, `{"status":200,"headers":{"a":"${'x'.repeat(15_000_000)}"}}`)),
    allowed: [502],
  },
  'a chunk above the largest': {
    act: (peer, id) => {
      peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true })
      peer.send(KIND.chunk, id, '', Buffer.alloc(300_000))
    },
    allowed: ['cut', 502],
  },
  'a second ready': {
    act: (peer, id) => {
      peer.send(KIND.ready, 0, { max_inflight: 1 })
      peer.reply(id)
    },
    allowed: [200],
  },
  'an error of no fields': { act: (peer, id) => peer.send(KIND.error, id), allowed: [500] },
  'an error of wrong types': {
    act: (peer, id) => peer.send(KIND.error, id, { code: 7, message: [1], file: {}, line: 'x', stack: 5, hint: null }),
    allowed: [500],
  },
  'an error that ends the worker which lives on': {
    act: (peer, id) => peer.send(KIND.error, id, { code: 'exception', message: 'bye', ends: true }),
    allowed: [500, 503],
  },
  'a load error in the middle': {
    act: peer => peer.send(KIND.error, 0, { code: 'load', message: 'changed my mind' }),
    allowed: [500],
  },
  'logs of strange fields': {
    act: (peer, id) => {
      peer.send(KIND.log, id, { stream: 'nowhere' }, Buffer.from([0xff, 0xfe]))
      peer.send(KIND.log, 99_999, '', Buffer.alloc(65_536, 10))
      peer.reply(id)
    },
    allowed: [200],
  },
  'status as text': { act: (peer, id) => peer.reply(id, '', { status: '200', headers: {} }), allowed: [502] },
  'headers that split the answer': {
    act: (peer, id) => peer.reply(id, '', { status: 200, headers: { a: 'b\r\nc: d' } }),
    allowed: [502],
  },
  'headers of node’s own': {
    act: (peer, id) =>
      peer.reply(id, 'x', {
        status: 200,
        headers: {
          trailer: 'a',
          'transfer-encoding': 'gzip',
          'content-length': '99',
          upgrade: 'h2c',
          expect: 'x',
          te: 'y',
        },
      }),
    allowed: [200],
  },
  '100,000 headers': {
    act: (peer, id) => peer.raw(reply(id, MANY_HEADERS)),
    allowed: [502],
  },
  'a directive of wrong types': { act: (peer, id) => peer.reply(id, '', { proxy: 7 }), allowed: [502] },
  'a directive in a stream': {
    act: (peer, id) => peer.send(KIND.reply, id, { proxy: { path: '/' }, stream: true }),
    allowed: [502],
  },
}

t.test(
  '[reliability.1, reliability.2] a worker may answer anything: each call ends once, and the next one works',
  async t => {
    t.jobs = 2
    const attackAll = async (t: Test, maxInflight: number): Promise<void> => {
      const { daemon, gateway } = await serve(t)
      for (const [name, { act, allowed, isEndless }] of Object.entries(CALL_ATTACKS)) {
        await t.test(name, async t => {
          daemon.reform()
          daemon.onWorkerStart = peer => peer.send(KIND.ready, 0, { max_inflight: maxInflight })
          const [path, limitMs] = isEndless || allowed.includes(504) ? ['/hit', 4000] : ['/patient', PATIENT_MS]
          t.ok(await recovers(gateway, path), 'serves before')
          daemon.onCall = act
          const calls = Array.from({ length: CALLS }, () => statusOf(gateway, path, limitMs))
          const other = await statusOf(gateway, '/other', 10_000)
          const statuses = await Promise.all(calls)
          // Calls that share a worker with an attack on it go down with it.
          const all = [...allowed, 503]
          t.same(
            statuses.filter(status => !all.includes(status as number)),
            [],
            `${statuses}`,
          )
          t.ok(
            statuses.some(status => allowed.includes(status as number)),
            `one of ${allowed}: ${statuses}`,
          )
          t.equal(other, 200, 'another function')
          daemon.reform()
          daemon.onWorkerStart = peer => peer.send(KIND.ready, 0, { max_inflight: maxInflight })
          t.ok(await recovers(gateway, path), 'serves again')
          t.equal(activeOf(gateway), 0, 'no place is lost')
        })
      }
    }
    const runs = [0, 1].map(maxInflight =>
      t.test(`max_inflight ${maxInflight}`, { buffered: true }, t => attackAll(t, maxInflight)),
    )
    await Promise.all(runs)
  },
)

/** What the daemon does when the gateway asks for a worker. */
const START_ATTACKS: Record<string, (daemon: HostileDaemon) => void> = {
  'a worker address that is no address': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, { worker: 'w', uri: 'no address' })
  },
  'a worker address of another scheme': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, { worker: 'w', uri: 'http://127.0.0.1:1/' })
  },
  'a worker port out of range': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, { worker: 'w', uri: 'tcp://127.0.0.1:99999' })
  },
  'a worker address without a port': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, { worker: 'w', uri: 'tcp://127.0.0.1' })
  },
  'a worker socket that is not there': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, { worker: 'w', uri: 'unix:/nowhere/at/all' })
  },
  'a worker path too long for a socket': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, { worker: 'w', uri: `unix:/${'x'.repeat(300)}` })
  },
  'a worker path with NUL': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, { worker: 'w', uri: 'unix:/tmp/\u0000x' })
  },
  'started with a header of no object': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.started, id, '[]')
  },
  'started twice': daemon => {
    daemon.onStart = (peer, id) => {
      peer.send(KIND.started, id, { worker: 'a' })
      peer.send(KIND.started, id, { worker: 'b' })
    }
    daemon.onCall = peer => peer.hangUp()
  },
  'exited before started': daemon => {
    daemon.onStart = (peer, id) => {
      peer.send(KIND.exited, 0, { worker: `w${id}`, reason: 'early' })
      peer.send(KIND.started, id, { worker: `w${id}`, pid: 0 })
    }
  },
  'exited a thousand times': daemon => {
    daemon.onStart = (peer, id) => {
      peer.send(KIND.started, id, { worker: `w${id}` })
      for (let i = 0; i < 1000; i++) peer.send(KIND.exited, 0, { worker: `w${id}`, code: 'x', reason: {} })
    }
  },
  'error for the start': daemon => {
    daemon.onStart = (peer, id) => peer.send(KIND.error, id, { code: 'start', message: 'no room' })
  },
  'garbage for the start': daemon => {
    daemon.onStart = peer => peer.raw(Buffer.from('no frame at all'))
  },
  'the end of the daemon': daemon => {
    daemon.onStart = peer => peer.hangUp()
  },
  'the end of the daemon behind started': daemon => {
    daemon.onStart = (peer, id) => {
      peer.send(KIND.started, id, { worker: `w${id}` })
      peer.socket.end()
    }
  },
  'a worker that hangs up at hello': daemon => {
    daemon.onWorkerStart = peer => peer.hangUp()
  },
  'a worker that sends garbage for ready': daemon => {
    daemon.onWorkerStart = peer => peer.raw(Buffer.from('00000000', 'hex'))
  },
  'a worker whose ready says nonsense': daemon => {
    daemon.onWorkerStart = peer => peer.send(KIND.ready, 0, { max_inflight: 'many' })
    daemon.onCall = peer => peer.hangUp()
  },
  'a worker that answers before ready': daemon => {
    daemon.onWorkerStart = peer => {
      peer.reply(1)
      peer.hangUp()
    }
    daemon.onCall = (peer, id) => peer.reply(id)
  },
}

t.test('[reliability.1, reliability.3] a daemon may answer a start with anything', async t => {
  // One after the other: by the fast clock a Lua thread must load within a second.
  let lastStart: Promise<unknown> = Promise.resolve()
  const startBed = async (t: Test): Promise<Bed> => {
    const bed = await serve(t, { timeout_ms: 15_000 }, fastClock)
    await statusOf(bed.gateway, '/other', 10_000)
    return bed
  }
  const attackStart = async (t: Test, attack: (daemon: HostileDaemon) => void): Promise<void> => {
    const started = lastStart.then(() => startBed(t))
    lastStart = started
    const { daemon, gateway } = await started
    attack(daemon)
    const statuses = await Promise.all(Array.from({ length: 4 }, () => statusOf(gateway, '/hit', 5000)))
    t.same(
      statuses.filter(status => ![200, 500, 502, 503, 504].includes(status as number)),
      [],
      `${statuses}`,
    )
    t.equal(await statusOf(gateway, '/other', 10_000), 200, 'another function')
    daemon.reform()
    t.ok(await recovers(gateway), 'serves when the daemon does')
    t.equal(activeOf(gateway), 0)
  }
  t.jobs = 5
  const runs = Object.entries(START_ATTACKS).map(([name, attack]) =>
    t.test(name, { buffered: true }, t => attackStart(t, attack)),
  )
  await Promise.all(runs)
})

t.test(
  '[reliability.3, runtime/wire-protocol.6] a start that is never answered ends, and its late worker too',
  async t => {
    const { daemon, gateway } = await serve(t, { timeout_ms: 30_000 }, fastClock)
    const pending: (() => void)[] = []
    daemon.onStart = (peer, id) => pending.push(() => peer.send(KIND.started, id, { worker: `late${id}` }))
    const statuses = await Promise.all([statusOf(gateway, '/hit', 8000), statusOf(gateway, '/hit', 8000)])
    t.same(statuses, [503, 503])
    const { stops } = daemon
    for (const answer of pending) answer()
    await until(() => daemon.stops > stops)
    t.equal(daemon.stops - stops, pending.length, 'nobody else would end it')
    daemon.reform()
    t.ok(await recovers(gateway))
  },
)

t.test('[reliability.3] a worker that never gets ready, a daemon that never greets', async t => {
  const { daemon, gateway } = await serve(t, { timeout_ms: 30_000 }, fastClock)
  daemon.onWorkerStart = () => {}
  daemon.onCall = () => {}
  t.equal(await statusOf(gateway, '/hit', 8000), 500, 'it does not load in time')
  daemon.onControlHello = () => {}
  for (const peer of daemon.peers) peer.hangUp()
  t.equal(await statusOf(gateway, '/hit', 8000), 503)
  t.equal(await statusOf(gateway, '/other', 8000), 200)
  daemon.reform()
  t.ok(await recovers(gateway))
})

t.test('[runtime/worker-set.18, reliability.2] a stream without end goes on only as its client reads', async t => {
  const { daemon, gateway } = await serve(t, { timeout_ms: 5000 })
  const { port } = await gateway.listen({ port: 0 })
  const piece = Buffer.alloc(128 * 1024, 97)
  let sent = 0
  daemon.onCall = (peer, id) => {
    peer.send(KIND.reply, id, { status: 200, headers: {}, stream: true })
    // Without regard to what is granted.
    const pump = () => {
      while (!peer.isClosed && sent < 256 * piece.length) {
        peer.send(KIND.chunk, id, '', piece)
        sent += piece.length
        if (peer.socket.writableLength > 1024 * 1024) {
          peer.socket.once('drain', pump)
          return
        }
      }
    }
    pump()
  }
  const slow = await RawConnection.open(port)
  slow.socket.pause()
  const before = process.memoryUsage().rss
  slow.write('GET /hit HTTP/1.1\r\nHost: a\r\n\r\n')
  await until(() => sent > 0 && [...daemon.peers].every(peer => peer.role !== 'worker'))
  t.ok(process.memoryUsage().rss - before < 48 * 1024 * 1024, 'what nobody reads is not held')
  slow.socket.resume()
  await slow.closed()
  t.notMatch(slow.text.slice(-5), /0\r\n\r\n/, 'the client sees that it is not whole')
  daemon.reform()
  t.ok(await recovers(gateway))
})

/** Writes a piece again and again as fast as the peer reads it. */
async function flood(peer: HostilePeer, rounds: number, piece: (round: number) => Buffer): Promise<void> {
  for (let round = 0; round < rounds && !peer.isClosed; round++) {
    if (peer.socket.write(piece(round))) await new Promise(setImmediate)
    else
      await new Promise<void>(resolve => {
        for (const name of ['drain', 'close']) peer.socket.once(name, () => resolve())
      })
  }
}

t.test(
  '[runtime/wire-protocol.22, reliability.5] ends of workers that nobody asked for are not remembered',
  async t => {
    const { daemon, gateway } = await serve(t)
    t.ok(await recovers(gateway))
    const control = [...daemon.peers].find(peer => peer.role === 'control')!
    const before = heapBytes()
    // 100 MB of names.
    await flood(control, 250, round =>
      Buffer.concat(
        Array.from({ length: 100 }, (_, i) =>
          encodeFrame(KIND.exited, 0, JSON.stringify({ worker: `${round}-${i}-${'x'.repeat(4000)}` }), null),
        ),
      ),
    )
    t.ok(await recovers(gateway))
    const kept = heapBytes() - before
    t.ok(kept < 20_000_000, `${kept} bytes kept`)
  },
)

t.test('[runtime/wire-protocol.22] a daemon that asks and does not read does not fill the memory', async t => {
  for (const [name, frame] of [
    ['pings', encodeFrame(KIND.ping, 1, '', Buffer.alloc(64))],
    [
      'starts that nobody asked for',
      encodeFrame(KIND.started, 9999, JSON.stringify({ worker: 'x'.repeat(4000) }), null),
    ],
  ] as const) {
    await t.test(name, async t => {
      const { daemon, gateway } = await serve(t)
      t.ok(await recovers(gateway))
      const control = [...daemon.peers].find(peer => peer.role === 'control')!
      control.socket.pause()
      const piece = Buffer.concat(Array.from({ length: Math.ceil(400_000 / frame.length) }, () => frame))
      const before = process.memoryUsage().arrayBuffers + heapBytes()
      await flood(control, 200, () => piece)
      const kept = process.memoryUsage().arrayBuffers + heapBytes() - before
      t.ok(kept < 30_000_000, `${kept} bytes kept of ${200 * piece.length}`)
      control.socket.resume()
      daemon.reform()
      t.ok(await recovers(gateway))
    })
  }
})

t.test(
  '[runtime/wire-protocol.21, reliability.2, reliability.5] floods of large frames slow no other function',
  async t => {
    const { daemon, gateway } = await serve(t)
    const frames: [string, Buffer][] = [
      ['logs', encodeFrame(KIND.log, 1, '', Buffer.alloc(15_000_000, 120))],
      ['log headers', encodeFrame(KIND.log, 1, `[${'{},'.repeat(5_000_000)}0]`, null)],
      ['ends', encodeFrame(KIND.end, 1, `{"a":[${'{},'.repeat(5_000_000)}0]}`, null)],
    ]
    for (const [name, frame] of frames) {
      daemon.reform()
      t.ok(await recovers(gateway), name)
      const before = heapBytes()
      daemon.onCall = peer => void flood(peer, 4, () => frame)
      const hit = statusOf(gateway, '/hit', 4000)
      t.equal(await statusOf(gateway, '/other', 10_000), 200, name)
      t.ok([502, 503].includes((await hit) as number), name)
      const kept = heapBytes() - before
      t.ok(kept < 20_000_000, `${name}: ${kept} bytes kept`)
    }
  },
)

t.test('[runtime/wire-protocol.19] pings of a worker that reads nothing do not pile up', async t => {
  const { daemon, gateway } = await serve(t, { timeout_ms: 1500 })
  const pings = Buffer.concat(Array.from({ length: 5000 }, (_, i) => encodeFrame(KIND.ping, i, '', null)))
  let rounds = 0
  daemon.onCall = peer => {
    peer.socket.pause()
    const pump = () => {
      if (peer.isClosed || rounds++ > 300) return
      if (peer.socket.write(pings)) setImmediate(pump)
      else peer.socket.once('drain', pump)
    }
    pump()
  }
  const before = process.memoryUsage().rss
  const answered = statusOf(gateway, '/hit', 6000)
  await until(() => rounds > 300 || [...daemon.peers].every(peer => peer.role !== 'worker'))
  t.ok(process.memoryUsage().rss - before < 100 * 1024 * 1024)
  t.ok([503, 504].includes((await answered) as number))
  daemon.reform()
  t.ok(await recovers(gateway))
})

t.test('[runtime/worker-set.10, reliability.4] workers that break at once do not make the gateway spin', async t => {
  const { daemon } = await serve(t, { worker_pool: { enabled: true, min_warm: 2, max_workers: 4 } })
  for (const attack of [
    (peer: HostilePeer) => peer.raw(Buffer.alloc(8)),
    (peer: HostilePeer) => peer.hangUp(),
    (peer: HostilePeer) => peer.send(KIND.error, 0, { code: 'load', message: 'no' }),
  ]) {
    daemon.onWorkerStart = attack
    for (const peer of daemon.peers) if (peer.role === 'worker') peer.hangUp()
    const { starts } = daemon
    await new Promise(resolve => setTimeout(resolve, 700))
    t.ok(daemon.starts - starts < 20, `${daemon.starts - starts} starts in 0.7 s`)
  }
})
