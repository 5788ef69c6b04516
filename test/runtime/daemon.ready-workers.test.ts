import { once } from 'node:events'
import { chmodSync, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import net from 'node:net'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { type Clock, systemClock } from '../../lib/core/clock.ts'
import type { RuntimeCall } from '../../lib/runtime/call.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { ReadyWorkers } from '../../lib/runtime/daemon.ts'
import type { WorkerOwner } from '../../lib/runtime/worker.ts'
import { encodeFrame, FrameReader, KIND, parseHeader } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { HostileDaemon, type HostilePeer, setBefore } from '../helpers/hostile-daemon.ts'
import { childrenOf, commandOf, isAlive, isRunning, killIfThere } from '../helpers/processes.ts'
import { makeRuntimes, TestCall } from './runtime-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { FrameClient, startDaemon, until } from '../helpers/worker-client.ts'

t.setTimeout(120_000)

/** Everything below a process. */
const treeOf = (pid: number): number[] => childrenOf(pid).flatMap(child => [child, ...treeOf(child)])

/** A socket that workers would listen on, and what their gateway does there. */
async function listen(t: { teardown: (fn: () => void) => void }) {
  const tree = makeTree({})
  const path = tree.path('w.sock')
  const sockets: net.Socket[] = []
  const hellos: Record<string, unknown>[] = []
  const server = net.createServer(socket => {
    sockets.push(socket)
    const reader = new FrameReader((_kind, _id, header) => hellos.push(parseHeader(header)))
    socket.on('data', bytes => reader.push(bytes))
    socket.on('error', () => {})
  })
  server.listen(path)
  await once(server, 'listening')
  const refused: string[] = []
  const ready = new ReadyWorkers(id => refused.push(id))
  t.teardown(() => {
    ready.clear()
    for (const socket of sockets) socket.destroy()
    server.close()
    tree.cleanup()
  })
  const offer = (worker: string, entries: string[] = [], uri = `unix:${path}`, takesProgram = false) =>
    ready.add({ worker, uri, pid: 0, entries, takesProgram })
  return { ready, refused, sockets, hellos, offer }
}

t.test(
  '[runtime/ready-workers.1, runtime/ready-workers.2] who is offered is connected to and greeted, and taken once',
  async t => {
    const { ready, offer, hellos, refused } = await listen(t)
    offer('a', ['.js'])
    offer('b', ['.ts', '.mts'])
    offer('c', ['.ts'])
    await until(() => hellos.length === 3)
    t.strictSame(hellos, [{ role: 'worker' }, { role: 'worker' }, { role: 'worker' }])
    t.equal(ready.take('/srv/x.ts', null)?.worker, 'b', 'the oldest of those that are prepared for it')
    t.equal(ready.take('/srv/x.ts', null)?.worker, 'c')
    t.equal(ready.take('/srv/x.ts', null)?.worker, 'a', 'or else another')
    t.equal(ready.take('/srv/x.ts', null), null)
    t.strictSame(refused, [])
  },
)

t.test(
  '[runtime/ready-workers.5] one that ends, speaks unasked, lies elsewhere or is one too many is not kept',
  async t => {
    const { ready, offer, sockets, refused } = await listen(t)
    offer('ends')
    await until(() => sockets.length === 1)
    sockets[0]!.destroy()
    await until(() => refused.length === 1)
    offer('speaks')
    await until(() => sockets.length === 2)
    sockets[1]!.write('x'.repeat(100_000))
    await until(() => refused.length === 2)
    await until(() => sockets[1]!.destroyed)
    offer('elsewhere', [], 'tcp://127.0.0.1:1')
    offer('nowhere', [], 'unix:/nonexistent/w.sock')
    await until(() => refused.length === 4)
    t.strictSame(refused, ['ends', 'speaks', 'elsewhere', 'nowhere'])
    t.equal(ready.size, 0)
    for (let i = 0; i < 12; i++) offer(`w${i}`)
    offer('w0')
    t.equal(ready.size, 8)
    t.strictSame(refused.slice(4), ['w8', 'w9', 'w10', 'w11', 'w0'])
    ready.drop('w0')
    t.equal(ready.take('x', null)?.worker, 'w1')
    ready.clear()
    t.equal(ready.size, 0)
    t.equal(refused.length, 9, 'who was dropped by hand is not refused')
  },
)

t.test('[runtime/ready-workers.8] one that waits for its program is told that first, and then greeted', async t => {
  const { ready, offer, sockets, refused } = await listen(t)
  let told = Buffer.alloc(0)
  offer('p', [], undefined, true)
  await until(() => sockets.length === 1)
  sockets[0]!.removeAllListeners('data').on('data', bytes => (told = Buffer.concat([told, bytes as Buffer])))
  t.equal(ready.take('/srv/x.js', null), null, 'it is nothing for a function without a program')
  t.equal(ready.take('/srv/handler.go', '/srv/two\nlines'), null, 'a path with a line break is not told in a line')
  t.equal(told.length, 0)
  t.equal(ready.take('/srv/handler.go', '/srv/bin/é x')?.worker, 'p')
  const line = Buffer.from('/srv/bin/é x\n')
  const hello = encodeFrame(KIND.hello, 0, '{"role":"worker"}', Buffer.from([1]))
  await until(() => told.length >= line.length + hello.length)
  t.strictSame(told, Buffer.concat([line, hello]))
  t.equal(ready.take('/srv/handler.go', '/srv/bin/x'), null)
  offer('w')
  t.equal(ready.take('/srv/handler.go', '/srv/bin/x'), null, 'a process that loads a function becomes no program')
  t.strictSame(refused, [])
})

/** Programs that stand for compiled functions: they answer a first call over descriptor 4, or end. */
const PROGRAMS = {
  serves: `#!${process.execPath}
    import net from 'node:net'
    import { encodeFrame, FrameReader, KIND } from '${pathToFileURL(runtimeFile('node/wire.mjs'))}'
    const socket = new net.Socket({ fd: Number(/^fd:(\\d+)$/.exec(process.argv[3])[1]) })
    const reader = new FrameReader((kind, id, header) => {
      if (kind === KIND.start) socket.write(encodeFrame(KIND.ready, 0, '{"max_inflight":0}'))
      if (kind === KIND.call) socket.write(encodeFrame(KIND.reply, id, '{"status":200}', Buffer.from(String(process.ppid))))
    })
    socket.on('data', bytes => reader.push(bytes)).on('close', () => process.exit(0))
  `.replace(/^ {4}/gm, ''),
  ends: '#!/bin/sh\nexit 3\n',
}

/** A daemon of compiled functions, and programs that it may be told to run. */
async function startPrograms(t: { teardown: (fn: () => unknown) => void }, hello: object) {
  const tree = makeTree({ 'serves.mjs': PROGRAMS.serves, ends: PROGRAMS.ends, 'no program': 'x' })
  t.teardown(() => tree.cleanup())
  for (const name of ['serves.mjs', 'ends']) chmodSync(tree.path(name), 0o755)
  const daemon = await startDaemon('go', { root: tree.root, hello })
  t.teardown(() => daemon.close())
  const offered = () => daemon.control.wait(frame => frame.kind === KIND.started && frame.id === 0)
  return { daemon, tree, offered, start: { dir: tree.root, entry: 'handler.go' } }
}

t.test('[runtime/ready-workers.9] a process that waits has its connection when it becomes a program', async t => {
  const { daemon, tree, offered, start } = await startPrograms(t, { ready_workers: true, ready_programs: true })
  const { header } = await offered()
  t.match(header, { worker: String, uri: /^unix:/, pid: 0, entries: [], takes_program: true })
  const path = header.uri.slice('unix:'.length)
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.strictSame(childrenOf(daemon.child.pid!), [], 'nobody waits yet')

  const binary = tree.path('serves.mjs')
  const client = new FrameClient(header.uri)
  t.teardown(() => client.close())
  await until(() => !existsSync(path))
  await t.rejects(
    new FrameClient(header.uri).wait(() => true),
    /closed/,
    'nobody else can connect',
  )
  client.socket.write(`${binary}\n`)
  client.send(KIND.hello, 0, { role: 'worker' }, Buffer.from([1]))
  client.send(KIND.start, 0, start)
  client.send(KIND.call, 1, {})
  t.equal((await client.wait(frame => frame.kind === KIND.ready)).id, 0)
  const reply = await client.wait(frame => frame.kind === KIND.reply)
  const other = new FrameClient(daemon.uri)
  t.teardown(() => other.close())
  other.send(KIND.hello, 0, { role: 'control' }, Buffer.from([1]))
  other.send(KIND.start, 5, { key: 'x', runtime: 'go', name: 'x', binary, ...start, worker: header.worker })
  t.match((await other.wait(frame => frame.id === 5)).header, { message: 'the worker that waited has ended' })
  const started = await daemon.startWorker({ ...start, binary, worker: header.worker } as never)
  t.equal(started.id, header.worker)
  t.equal(String(started.pid), reply.body.toString(), 'its guard is the process that counts')
  const held = readdirSync(`/proc/${daemon.child.pid}/fd`).length

  process.kill(-started.pid, 'SIGKILL')
  await client.closed
  t.match((await daemon.ended(started)).header, { signal: 'SIGKILL' })
  const next = (await offered()).header
  const second = new FrameClient(next.uri)
  t.teardown(() => second.close())
  await until(() => childrenOf(daemon.child.pid!).length === 1)
  await second.close()
  t.match((await daemon.ended({ id: next.worker })).header, { worker: next.worker }, 'it ends with its connection')
  await until(() => readdirSync(`/proc/${daemon.child.pid}/fd`).length <= held)
  t.pass('the daemon keeps no connection of a worker')
})

t.test('[runtime/ready-workers.9] what cannot be run says why, and what was asked for at once is served', async t => {
  const { daemon, tree, offered, start } = await startPrograms(t, { ready_workers: true, ready_programs: true })
  for (const [name, reason] of [
    ['nowhere', /^exited with code 127: .*nowhere/],
    ['no program', /^exited with code 126: .*no program/],
    ['ends', /^exited with code 3$/],
  ] as const) {
    const { header } = await offered()
    const client = new FrameClient(header.uri)
    client.socket.write(`${tree.path(name)}\n`)
    // The daemon may not have heard of the connection yet.
    const started = daemon.startWorker({ ...start, binary: tree.path(name), worker: header.worker } as never)
    await Promise.all([client.closed, started.catch(() => {})])
    const { reason: told } = (await daemon.ended({ id: header.worker })).header
    t.match(told, reason)
  }
  const { header } = await offered()
  daemon.control.send(KIND.stop, 0, { worker: header.worker, grace_ms: 0 })
  await until(() => !existsSync(header.uri.slice('unix:'.length)))
  await t.rejects(daemon.startWorker({ ...start, binary: '/x', worker: header.worker } as never), /has ended/)
})

t.test('[runtime/ready-workers.8] a gateway that tells no programs is offered none', async t => {
  const { daemon, tree, start } = await startPrograms(t, { ready_workers: true })
  const waiting = () => childrenOf(daemon.child.pid!).flatMap(childrenOf)
  await until(() => waiting().some(pid => commandOf(pid).includes('read -r program <&3')))
  const binary = tree.path('ends')
  await t.rejects(daemon.startWorker({ ...start, binary }), /before it listened/)
  await until(() => waiting().some(pid => commandOf(pid).includes('read -r program <&3')))
  t.notOk(daemon.control.frames.some(frame => frame.kind === KIND.started && frame.id === 0))
})

/** A gateway's sockets before a daemon that a test plays. */
async function makeSet(t: { teardown: (fn: () => unknown) => void }, takesReady = true, clock: Clock = systemClock) {
  const daemon = await HostileDaemon.start()
  const starts: Record<string, unknown>[] = []
  const hellos: HostilePeer[] = []
  const workerStarts: HostilePeer[] = []
  let answer: (peer: HostilePeer, id: number, header: Record<string, unknown>) => void = (peer, id, { worker }) =>
    peer.send(KIND.started, id, { worker: worker ?? `new${id}`, uri: daemon.uri, pid: 0 })
  const honest = daemon.onControlHello
  daemon.onControlHello = (peer, header) => {
    hellos.push(peer)
    honest(peer, header)
  }
  daemon.onStart = (peer, id, text) => {
    const header = parseHeader(text)
    starts.push(header)
    answer(peer, id, header)
  }
  daemon.onWorkerStart = peer => {
    workerStarts.push(peer)
    peer.send(KIND.ready, 0, { max_inflight: 0 })
  }
  const set = setBefore([daemon], { startsEarly: true, takesReady, clock })
  t.teardown(async () => {
    await set.close()
    await daemon.close()
  })
  const events: string[] = []
  const ends: { unexpected: boolean; unbegun: readonly RuntimeCall[] }[] = []
  const owner: WorkerOwner = {
    fn: makeFn(),
    clock,
    answers: 0,
    loadOf: () => 0,
    onLog: () => {},
    onFiles: () => {},
    forget: () => {},
    handleSuccess: () => {},
    handleRoom: () => events.push('ready'),
    handleAbandoned: () => {},
    handleLoadFailure: () => {},
    handleWorkerEnd: (unexpected, error, unbegun) => {
      events.push(error.message)
      ends.push({ unexpected, unbegun })
    },
    handleStartFailure: (_worker, error) => events.push(error.message),
  }
  await set.start()
  await until(() => hellos.length === 1)
  /** Offers a worker and waits until the gateway is connected to it. */
  const offer = async (worker: string) => {
    const before = daemon.peers.size
    hellos[0]!.send(KIND.started, 0, { worker, uri: daemon.uri, pid: 0, entries: [] })
    await until(() => [...daemon.peers].filter(peer => peer.role === 'worker').length > before - 1)
  }
  return {
    set,
    daemon,
    starts,
    workerStarts,
    events,
    ends,
    offer,
    control: hellos[0]!,
    spawn: () => set.spawn(owner, null),
    onStart: (next: typeof answer) => (answer = next),
  }
}

t.test(
  '[runtime/ready-workers.3] a first call uses the connection that is there, and waits for no answer of the daemon',
  async t => {
    const bed = await makeSet(t)
    await bed.offer('waits')
    const peers = bed.daemon.peers.size
    bed.onStart(() => {})
    bed.spawn()
    await until(() => bed.events.length === 1)
    t.strictSame(bed.events, ['ready'], 'though the daemon has not answered')
    t.equal(bed.workerStarts.length, 1)
    t.equal(bed.daemon.peers.size, peers, 'and no further connection')
    await until(() => bed.starts.length === 1)
    t.match(bed.starts[0], { worker: 'waits', runtime: 'node' })
    t.notOk('early' in bed.starts[0]!, 'the worker gets its start itself')
    bed.onStart((peer, id) => peer.send(KIND.started, id, { worker: 'second', uri: bed.daemon.uri, pid: 0 }))
    bed.spawn()
    await until(() => bed.events.length === 2)
    t.notOk('worker' in bed.starts[1]!, 'the next function gets one that the daemon chooses')
    t.equal(bed.daemon.peers.size, peers + 1)
  },
)

t.test('[runtime/ready-workers.3] the daemon hears of it when the first call had its time', async t => {
  const clock = new FakeClock()
  const bed = await makeSet(t, true, clock)
  await bed.offer('waits')
  bed.spawn()
  await until(() => bed.events.length === 1)
  clock.advance(14)
  // What was told before is there before what is told now.
  bed.spawn()
  await until(() => bed.starts.length === 1)
  t.notOk('worker' in bed.starts[0]!)
  clock.advance(1)
  await until(() => bed.starts.length === 2)
  t.match(bed.starts[1], { worker: 'waits' })
})

t.test(
  '[runtime/ready-workers.5] the end of one that waits is forgotten; a daemon that refuses it ends the worker',
  async t => {
    const bed = await makeSet(t)
    await bed.offer('dead')
    bed.control.send(KIND.exited, 0, { worker: 'dead', code: 1, reason: 'exited with code 1' })
    await until(() => [...bed.daemon.peers].every(peer => peer.role !== 'worker'))
    bed.spawn()
    await until(() => bed.events.length === 1)
    t.strictSame(bed.events, ['ready'])
    t.notOk('worker' in bed.starts[0]!)
    await bed.offer('refused')
    bed.daemon.onWorkerStart = () => {}
    bed.onStart((peer, id) => peer.send(KIND.error, id, { code: 'start', message: 'the worker that waited has ended' }))
    bed.spawn()
    await until(() => bed.events.length === 2)
    t.match(bed.events[1], /the worker that waited has ended/)
  },
)

t.test('[runtime/ready-workers.5] calls of one that ended unseen go to another worker, none of them twice', async t => {
  const bed = await makeSet(t)
  const called: number[] = []
  bed.daemon.onCall = (_peer, id) => called.push(id)
  await bed.offer('gone')
  const [waiting] = [...bed.daemon.peers].filter(peer => peer.role === 'worker')
  waiting!.hangUp()
  // Before its end is read.
  const worker = bed.spawn()
  const call = new TestCall(makeFn())
  worker.accept(call, 0)
  await until(() => bed.ends.length === 1)
  t.strictSame(bed.ends, [{ unexpected: false, unbegun: [call] }])

  await bed.offer('dies')
  const heard = bed.spawn()
  heard.accept(new TestCall(makeFn()), 0)
  await until(() => called.length === 1)
  const [dying] = [...bed.daemon.peers].filter(peer => peer.role === 'worker')
  dying!.hangUp()
  await until(() => bed.ends.length === 2)
  t.strictSame(bed.ends[1], { unexpected: true, unbegun: [] }, 'one that has heard of its call ends it')
})

t.test('[runtime/ready-workers.4] of two functions at once one gets the worker that waits', async t => {
  const bed = await makeSet(t)
  await bed.offer('one')
  bed.spawn()
  bed.spawn()
  await until(() => bed.events.length === 2 && bed.starts.length === 2)
  t.strictSame(bed.events, ['ready', 'ready'])
  t.strictSame(bed.starts.map(({ worker }) => worker ?? null).sort(), [null, 'one'])
})

t.test('[runtime/ready-workers.1] without asking for them nothing is offered or taken', async t => {
  const bed = await makeSet(t, false)
  bed.control.send(KIND.started, 0, { worker: 'x', uri: bed.daemon.uri, pid: 0 })
  await until(() => bed.daemon.stops === 1)
  t.equal([...bed.daemon.peers].filter(peer => peer.role === 'worker').length, 0)
})

/** Daemons whose waiting processes accept a connection themselves: file names of functions, their text, and which are prepared for. */
const ACCEPTING = [
  {
    runtime: 'node',
    end: '.mjs',
    toText: (name: string) => `export const handler = () => ['${name}']`,
    entries: ['.js', '.mjs', '.cjs'],
  },
  {
    runtime: 'python',
    end: '.py',
    toText: (name: string) => `def handler(event):\n    return ['${name}']\n`,
    entries: [],
  },
  {
    runtime: 'php',
    end: '.php',
    toText: (name: string) => `<?php\nfunction handler($event) { return ['${name}']; }\n`,
    entries: [],
  },
]

for (const { runtime, end, toText, entries } of ACCEPTING)
  t.test(
    `[runtime/ready-workers.4, runtime/ready-workers.6] the ${runtime} daemon offers its spares to a gateway that takes them, and to nobody else`,
    async t => {
      const tree = makeTree(Object.fromEntries(['a', 'b'].map(name => [`${name}${end}`, toText(name)])))
      t.teardown(() => tree.cleanup())
      const daemon = await startDaemon(runtime, { root: tree.root, hello: { ready_workers: true } })
      t.teardown(() => daemon.close())
      const offered = await daemon.control.wait(frame => frame.kind === KIND.started && frame.id === 0)
      t.match(offered.header, { worker: String, uri: /^unix:/, pid: Number, entries })
      const { worker, uri, pid } = offered.header
      const start = { dir: tree.root, entry: `a${end}` }
      const connected = daemon.connect(uri, worker, pid, start)
      t.equal((await connected.ready()).kind, KIND.ready, 'it loads what its own connection says')
      const other = new FrameClient(daemon.uri)
      t.teardown(() => other.close())
      other.send(KIND.hello, 0, { role: 'control' }, Buffer.from([1]))
      other.send(KIND.start, 5, { key: 'x', runtime, name: 'x', dir: tree.root, entry: `b${end}`, worker })
      t.match((await other.wait(frame => frame.id === 5)).header, { message: 'the worker that waited has ended' })
      other.send(KIND.start, 6, { key: 'x', runtime, name: 'x', dir: tree.root, entry: `b${end}` })
      const stranger = await other.wait(frame => frame.id === 6)
      t.not(stranger.header.worker, worker, 'another gateway gets a process of its own')
      t.match(await daemon.startWorker({ ...start, worker } as never), { id: worker, pid })
      await t.rejects(daemon.startWorker({ ...start, worker } as never), /has ended/, 'nobody gets it twice')
      t.strictSame(JSON.parse((await connected.call()).text), ['a'])

      const next = await daemon.control.wait(frame => frame.kind === KIND.started && frame.id === 0)
      const given = await daemon.startWorker(start)
      t.not(given.id, next.header.worker, 'asked for any, the daemon gives none that a function may have by now')
      t.equal((await daemon.startWorker({ ...start, worker: next.header.worker } as never)).id, next.header.worker)
      const dead = await daemon.control.wait(frame => frame.kind === KIND.started && frame.id === 0)
      process.kill(dead.header.pid, 'SIGKILL')
      await daemon.ended({ id: dead.header.worker })
      await t.rejects(daemon.startWorker({ ...start, worker: dead.header.worker } as never), /has ended/)
      const last = await daemon.control.wait(frame => frame.kind === KIND.started && frame.id === 0)
      t.not(last.header.worker, dead.header.worker, 'one that died while it waited is replaced')
      await daemon.control.close()
      await until(() => [pid, given.pid, last.header.pid].every(one => !isAlive(one)))
      t.pass('all of them end with their gateway')
    },
  )

/** Functions that end their own process. */
const ENDING = {
  'node.mjs': 'export const handler = () => process.kill(process.pid, "SIGKILL")',
  'python.py': 'import os\ndef handler(event):\n    os.kill(os.getpid(), 9)\n',
  'php.php': '<?php\nfunction handler($event) { posix_kill(getmypid(), 9); }\n',
}

for (const { runtime, end } of ACCEPTING)
  t.test(
    `[runtime/ready-workers.10] how a function ended its worker is told by the ${runtime} daemon, also before it hears of the function`,
    async t => {
      const tree = makeTree(ENDING)
      t.teardown(() => tree.cleanup())
      const daemon = await startDaemon(runtime, { root: tree.root, hello: { ready_workers: true } })
      t.teardown(() => daemon.close())
      const offered = await daemon.control.wait(frame => frame.kind === KIND.started && frame.id === 0)
      const { worker, uri, pid } = offered.header
      const start = { dir: tree.root, entry: `${runtime}${end}` }
      const connected = daemon.connect(uri, worker, pid, start)
      await connected.ready()
      // What comes first at a daemon that was busy elsewhere, the `start` or the end, is the system's to say.
      process.kill(daemon.child.pid!, 'SIGSTOP')
      daemon.control.send(KIND.start, 7, { key: 'x', runtime, name: 'x', ...start, worker })
      connected.open()
      await connected.closed
      await until(() => !isRunning(pid))
      process.kill(daemon.child.pid!, 'SIGCONT')
      const told = await daemon.control.wait(({ kind, id }) => id === 7 || kind === KIND.exited)
      if (told.id === 7) {
        t.equal(told.kind, KIND.started, JSON.stringify(told.header))
        t.match((await daemon.ended({ id: worker })).header, { reason: /^ended by SIGKILL/ })
      } else {
        t.match(told.header, { worker, reason: /^ended by SIGKILL/ })
        t.equal((await daemon.control.wait(frame => frame.id === 7)).kind, KIND.error)
      }
    },
  )

t.test(
  '[runtime/ready-workers.10] nor is its end forestalled while the last of what it wrote is waited for',
  async t => {
    const tree = makeTree({
      'leaves.mjs': `
        import { spawn } from 'node:child_process'
        export const handler = () => {
          const { pid } = spawn('sleep', ['60'], { detached: true, stdio: ['ignore', 1, 2] })
          process.stderr.write(String(pid))
          process.exit(3)
        }
      `,
    })
    t.teardown(() => tree.cleanup())
    const daemon = await startDaemon('node', { root: tree.root, hello: { ready_workers: true } })
    t.teardown(() => daemon.close())
    const offered = await daemon.control.wait(frame => frame.kind === KIND.started && frame.id === 0)
    const { worker, uri, pid } = offered.header
    const start = { dir: tree.root, entry: 'leaves.mjs' }
    const connected = daemon.connect(uri, worker, pid, start)
    await connected.ready()
    const { stderr } = await connected.call()
    t.teardown(() => killIfThere(Number(stderr)))
    // The daemon has asked for its exit code, and its pipes are open.
    while (existsSync(`/proc/${pid}`));
    daemon.control.send(KIND.start, 7, { key: 'x', runtime: 'node', name: 'x', ...start, worker })
    const told = await daemon.control.wait(({ kind, id }) => id === 7 || kind === KIND.exited)
    t.not(told.kind, KIND.error, JSON.stringify(told.header))
    if (told.id === 7) t.match((await daemon.ended({ id: worker })).header, { reason: 'exited with code 3' })
    else t.match(told.header, { worker, reason: 'exited with code 3' })
  },
)

t.test(
  '[runtime/ready-workers.5] a process that dies while it waits costs no call, and several functions may want it at once',
  async t => {
    const files = ['a.mjs', 'b.mjs', 'c.mjs', 'd.mjs']
    const bed = makeRuntimes(Object.fromEntries(files.map(file => [file, 'export const handler = () => process.pid'])))
    t.teardown(() => bed.close())
    const outcomes = await Promise.all(files.slice(0, 3).map(file => bed.call(bed.fn(file))))
    t.strictSame(
      outcomes.map(({ error }) => error),
      [null, null, null],
    )
    const busy = outcomes.map(({ text }) => Number(text))
    t.equal(new Set(busy).size, 3)
    const waiting = () =>
      childrenOf(process.pid)
        .flatMap(treeOf)
        .filter(
          pid =>
            commandOf(pid).includes('worker.mjs') && commandOf(pid).startsWith(process.execPath) && !busy.includes(pid),
        )
    await until(() => waiting().length > 0)
    const [pid] = waiting() as [number]
    process.kill(pid, 'SIGKILL')
    // With all its threads, so that its socket is closed; the gateway, which is this process, has read nothing of it.
    while (existsSync(`/proc/${pid}`));
    t.equal((await bed.call(bed.fn('d.mjs'))).error, null)
    t.strictSame(bed.failures, [], 'and is no failure of the function')
  },
)

/** A node program that writes down how daemons are greeted, and a gateway's runtimes that start it. */
function makeGreeter(t: { teardown: (fn: () => void) => void }) {
  const tree = makeTree({
    node: `#!/bin/sh\nexec ${process.execPath} "$(dirname "$0")/fake.mjs" "$@"\n`,
    'fake.mjs': `
      import { appendFileSync } from 'node:fs'
      import { createServer } from 'node:net'
      import { encodeFrame, FrameReader, KIND } from '${pathToFileURL(runtimeFile('node/wire.mjs'))}'
      process.stdin.resume().on('end', () => process.exit(0))
      createServer(socket => {
        const reader = new FrameReader((kind, id, header) => {
          if (kind !== KIND.hello) return
          appendFileSync(new URL('./hellos', import.meta.url), header + '\\n')
          socket.write(encodeFrame(KIND.ready, 0, '{"runtime":"node","version":"22.0.0","pid":1}'))
        })
        socket.on('data', bytes => reader.push(bytes))
      }).listen(process.argv[process.argv.indexOf('--socket') + 1])
    `,
  })
  t.teardown(() => tree.cleanup())
  chmodSync(tree.path('node'), 0o755)
  // Users of their own have to reach it.
  chmodSync(tree.root, 0o755)
  const hellos = () => (existsSync(tree.path('hellos')) ? readFileSync(tree.path('hellos'), 'utf8').split('\n') : [''])
  return {
    binaries: { node: tree.path('node') },
    hellos: () => hellos().slice(0, -1),
    /** Starts the runtimes, and ends them when `isThere`. */
    greet: async (settings: object, isThere: () => boolean) => {
      const bed = makeRuntimes({ 'a.mjs': '' }, { settings })
      chmodSync(bed.tree.root, 0o755)
      bed.fn('a.mjs')
      await bed.runtimes.start()
      await until(isThere)
      await bed.close()
    },
  }
}

const TAKES_READY = '{"role":"control","ready_workers":true,"ready_programs":true}'
const PLAIN = '{"role":"control"}'

t.test('[runtime/ready-workers.7] who takes them says so; who cannot use them does not', async t => {
  const { binaries, hellos, greet } = makeGreeter(t)
  const elsewhere = await HostileDaemon.start()
  const greetings: string[] = []
  const honest = elsewhere.onControlHello
  elsewhere.onControlHello = (peer, header) => {
    greetings.push(header)
    honest(peer, header)
  }
  t.teardown(() => elsewhere.close())
  await greet({ binaries }, () => hellos().length === 1)
  await greet({ binaries, gatewayWorkers: 2 }, () => hellos().length === 2)
  await greet({ runtimeSockets: { node: [elsewhere.uri] } }, () => greetings.length === 1)
  t.strictSame(hellos(), [TAKES_READY, PLAIN])
  t.strictSame(greetings, [PLAIN])
})

t.test(
  '[runtime/ready-workers.7] a gateway whose functions are users of their own takes none',
  { skip: process.geteuid?.() === 0 ? false : 'users of their own need root' },
  async t => {
    const { binaries, hellos, greet } = makeGreeter(t)
    await greet({ binaries, isolation: 'user', isolationFiles: 'warn' }, () => hellos().length === 1)
    t.strictSame(hellos(), [PLAIN])
  },
)
