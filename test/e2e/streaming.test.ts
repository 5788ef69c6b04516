/**
 * Streams from the handler's `yield` to the client's socket. Who waits for whom is settled by files in a folder of each
 * request, never by time: the handler makes event n + 1 only after the client has event n.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { readFixture } from '../../conformance/fixture-tree.ts'
import { TESTED } from '../helpers/conformance.ts'
import { isAlive } from '../helpers/processes.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(180_000)

const MIB = 1024 * 1024
/** `FNGW_STREAM_BYTES=1073741824` for a gibibyte. */
const STREAM_BYTES = Number(process.env.FNGW_STREAM_BYTES ?? 256 * MIB)
/** What gateway and worker may grow by while that passes: buffers and garbage, not the stream. */
const GROWTH_MIB = 96
const TIMEOUT_MS = 1000

const ALL_STREAMS: Record<string, Record<string, string>> = {
  'node async generator': { 'handler.js': 'streams/handler.js' },
  'node Response': { 'handler.js': 'streams-edge/handler.js', '_streams.js': 'streams/handler.js' },
  'python generator': { 'handler.py': 'streams/handler.py' },
  'python async generator': { 'handler.py': 'streams-async/handler.py', '_streams.py': 'streams/handler.py' },
  'php generator': { 'handler.php': 'streams/handler.php' },
}
const STREAMS = Object.fromEntries(
  Object.entries(ALL_STREAMS).filter(([name]) => TESTED.some(({ runtime }) => runtime === name.split(' ')[0])),
)

const toFolder = (name: string): string => name.replaceAll(' ', '-')

let gateway: Gateway
let tree: Tree
let port: number
let folders = 0

t.before(async () => {
  const entries: Record<string, TreeEntry> = {}
  for (const [name, files] of Object.entries(STREAMS)) {
    for (const [kind, timeoutMs] of [
      ['plain', 60_000],
      ['brief', TIMEOUT_MS],
    ] as const) {
      const folder = `${kind}/${toFolder(name)}`
      for (const [file, fixture] of Object.entries(files)) entries[`${folder}/${file}`] = readFixture(fixture)
      const adapter = name === 'node Response' ? 'edge-worker' : 'native'
      entries[`${folder}/fn.config.json`] = { json: { timeout_ms: timeoutMs, invoke: { adapter, methods: ['GET'] } } }
    }
  }
  tree = makeTree(entries)
  gateway = await createGateway({ functionsRoot: tree.root, runtimes: ['node', 'python', 'php'] })
  port = (await gateway.listen({ port: 0 })).port
})

/** All at once: most of the time is waiting. */
async function each(t: Test, check: (t: Test, name: string) => Promise<void>): Promise<void> {
  t.jobs = Object.keys(STREAMS).length
  await Promise.all(Object.keys(STREAMS).map(name => t.test(name, { buffered: true }, t => check(t, name))))
}

interface Stream {
  /** The folder in which client and handler meet. */
  dir: string
  outgoing: ClientRequest
  incoming: IncomingMessage
  /** Tells the handler. */
  say(word: string): void
  heard(word: string): boolean
}

/** Sends a request; resolves with the head of the answer. */
function open(
  name: string,
  answer: string,
  options: { kind?: string; method?: string; query?: string } = {},
): Promise<Stream> {
  const dir = tree.path(`.meet-${folders++}`)
  mkdirSync(dir)
  const path = `/${options.kind ?? 'plain'}/${toFolder(name)}?do=${answer}&dir=${dir}${options.query ?? ''}`
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: '127.0.0.1', port, path, method: options.method ?? 'GET', agent: false })
    outgoing.on('error', reject)
    outgoing.on('response', incoming => {
      const stream: Stream = {
        dir,
        outgoing,
        incoming,
        say: word => writeFileSync(join(dir, word), ''),
        heard: word => existsSync(join(dir, word)),
      }
      resolve(stream)
    })
    outgoing.end()
  })
}

/** The whole body, and whether it ended as it should. */
function readAll(incoming: IncomingMessage): Promise<{ text: string; isWhole: boolean }> {
  return new Promise(resolve => {
    let text = ''
    incoming.on('data', chunk => {
      text += chunk
    })
    incoming.on('error', () => {})
    incoming.on('close', () => resolve({ text, isWhole: incoming.complete }))
  })
}

const rssMib = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024

t.test(
  '[http/public.22, http/public.23, runtime/wire-protocol.13] each event arrives before the next is made, the head before the first',
  async t => {
    await each(t, async (t, name) => {
      const { incoming, say, heard } = await open(name, 'events')
      t.match(incoming.headers, {
        'content-type': 'text/event-stream',
        'cache-control': 'no-cache',
        'x-accel-buffering': 'no',
      })
      t.equal(incoming.headers['content-length'], undefined)
      t.notOk(heard('ended'))
      let text = ''
      let next = 0
      say(`go-${next++}`)
      for await (const chunk of incoming) {
        text += chunk
        while (text.split('\n\n').length > next) say(`go-${next++}`)
      }
      t.equal(text, 'data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n')
      t.ok(heard('ended'))
    })
  },
)

t.test(
  '[http/public.22, runtime/wire-protocol.15] a slow client holds its handler up, and memory stays flat',
  async t => {
    for (const name of Object.keys(STREAMS)) {
      const streamBytes =
        name === 'node async generator' || name === 'python generator' ? STREAM_BYTES : STREAM_BYTES / 4
      const { incoming, dir } = await open(name, 'bytes', { query: `&bytes=${streamBytes}` })
      const pid = Number(incoming.headers['x-pid'])
      const produced = (): number => Number(readFileSync(join(dir, 'produced'), 'utf8') || 0)
      incoming.pause()
      // Other requests pass meanwhile: time enough for a handler that nobody holds up.
      for (let i = 0; i < 4; i++) (await open(name, 'gaps', { method: 'HEAD' })).incoming.resume()
      const ahead = produced()
      t.ok(ahead < Math.min(32 * MIB, streamBytes / 2), `${name}: ${(ahead / MIB).toFixed(1)} MiB made, none read`)
      const before = { gateway: rssMib(process.pid), worker: rssMib(pid) }
      const most = { ...before }
      let bytes = 0
      let isRight = true
      for await (const chunk of incoming as AsyncIterable<Buffer>) {
        bytes += chunk.length
        isRight &&= chunk[0] === 0x61 && chunk[chunk.length - 1] === 0x61
        if (bytes % (8 * MIB) < chunk.length && isAlive(pid)) {
          most.gateway = Math.max(most.gateway, rssMib(process.pid))
          most.worker = Math.max(most.worker, rssMib(pid))
        }
      }
      t.ok(isRight)
      t.equal(bytes, streamBytes, `${name}: all of it`)
      const growth = { gateway: most.gateway - before.gateway, worker: most.worker - before.worker }
      t.ok(growth.gateway < GROWTH_MIB, `${name}: gateway grew by ${growth.gateway.toFixed(0)} MiB`)
      t.ok(growth.worker < GROWTH_MIB, `${name}: worker grew by ${growth.worker.toFixed(0)} MiB`)
    }
  },
)

t.test('[invocation/admission.7, runtime/wire-protocol.16] a client that leaves ends the generator', async t => {
  await each(t, async (t, name) => {
    const { incoming, outgoing, heard } = await open(name, 'forever')
    await new Promise(resolve => incoming.once('data', resolve))
    t.notOk(heard('ended'))
    outgoing.destroy()
    await until(() => heard('ended'))
    const next = await open(name, 'breaks')
    next.say('go-0')
    t.equal(next.incoming.statusCode, 200, 'the next call is served')
    next.outgoing.destroy()
  })
})

t.test('[runtime/worker-set.12] the timeout bounds the gap between chunks, not the stream', async t => {
  await each(t, async (t, name) => {
    const from = performance.now()
    const { incoming } = await open(name, 'gaps', { kind: 'brief' })
    const { text, isWhole } = await readAll(incoming)
    t.same([text, isWhole], ['01234567891011', true])
    t.ok(performance.now() - from > TIMEOUT_MS, 'longer than the timeout in all')
    const stalled = await open(name, 'stalls', { kind: 'brief' })
    const cut = await readAll(stalled.incoming)
    t.same([cut.text, cut.isWhole], ['first', false], 'cut after one gap')
    const other = await open(name, 'stalls')
    t.same(await readAll(other.incoming), { text: 'firstlate', isWhole: true }, 'with more time it goes on')
    // That one began later and waited as long: the first would have said so by now.
    t.notOk(stalled.heard('late'), 'no code of the cut one ran on')
  })
})

t.test('[http/public.22] an error in the middle cuts the connection, one before the first piece is a 500', async t => {
  await each(t, async (t, name) => {
    const { incoming, say } = await open(name, 'breaks')
    t.equal(incoming.statusCode, 200)
    incoming.once('data', () => say('go-0'))
    t.same(await readAll(incoming), { text: 'first', isWhole: false })
    const early = await open(name, 'early')
    t.equal(early.incoming.statusCode, 500)
    t.match(JSON.parse((await readAll(early.incoming)).text), { error: 'too early' })
  })
})

t.test('[invocation/response.6, http/public.22] HEAD of a stream sends the head and ends the generator', async t => {
  await each(t, async (t, name) => {
    const { incoming, heard } = await open(name, 'forever', { method: 'HEAD' })
    t.equal(incoming.statusCode, 200)
    t.same(await readAll(incoming), { text: '', isWhole: true })
    await until(() => heard('ended'))
  })
})

t.test('[runtimes/conformance.10] closing the gateway cuts what still streams', async t => {
  const streams = await Promise.all(Object.keys(STREAMS).map(name => open(name, 'forever')))
  const ends = streams.map(({ incoming }) => readAll(incoming))
  const pids = streams.map(({ incoming }) => Number(incoming.headers['x-pid']))
  await gateway.close({ timeoutMs: 100 })
  for (const end of ends) t.equal((await end).isWhole, false)
  await until(() => !pids.some(isAlive))
  tree.cleanup()
})
