import { createHash, randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { encodeFrame, KIND } from '../../lib/runtime/wire-protocol.ts'
import { Call } from '../../runtimes/node/call.mjs'
import { GivenBody } from '../../runtimes/node/event.mjs'
import { FrameMemory } from '../../runtimes/node/frame-memory.mjs'
import { FrameReader } from '../../runtimes/node/wire.mjs'
import { startDaemon, type WorkerStart } from '../helpers/worker-client.ts'

const KIB = 1024
const MIB = KIB * KIB
const LIMITS = { context: { timeout_ms: 20_000, max_body_bytes: 4 * MIB } }
const root = mkdtempSync(join(tmpdir(), 'fngw-frame-memory-'))
const daemon = await startDaemon('node', { root })
t.teardown(async () => {
  await daemon.close()
  rmSync(root, { recursive: true, force: true })
})

const sha = (bytes: Buffer | string): string => createHash('sha256').update(bytes).digest('hex')

/** Bytes of their own for each number: text for even ones. */
function makeBody(size: number, at: number): Buffer {
  if (at % 2 === 0) return Buffer.from(`${at}:`.padEnd(size, String(at)))
  const bytes = randomBytes(size)
  bytes[0] = 0xff
  return bytes
}

async function withHandler(name: string, text: string, start: Partial<WorkerStart> = {}) {
  writeFileSync(join(root, name), text)
  const worker = await daemon.worker({ dir: root, entry: name, ...LIMITS, ...start })
  t.equal((await worker.ready()).kind, KIND.ready)
  return worker
}

t.test('[runtimes/node.40] memory of large frames is used again, by what fits, and little of it is kept', async t => {
  const memory = new FrameMemory()
  const first = memory.take(MIB + 300)
  t.equal(first.length, MIB + 300)
  memory.giveBack(first)
  t.equal(memory.freeBytes, MIB + 16 * KIB)
  const again = memory.take(MIB + 700)
  t.equal(again.buffer, first.buffer, 'a header that is a little longer')
  t.not(memory.take(MIB + 300).buffer, again.buffer, 'what somebody has is nobody else’s')
  memory.giveBack(again.subarray(700))
  memory.giveBack(again)
  t.equal(memory.freeBytes, MIB + 16 * KIB, 'given back once')
  t.not(memory.take(64 * KIB).buffer, first.buffer, 'a small frame takes no large memory')
  t.not(memory.take(2 * MIB).buffer, first.buffer, 'nor a large frame small memory')
  memory.giveBack(Buffer.alloc(64 * KIB))
  memory.giveBack(memory.take(5 * MIB))
  t.equal(memory.freeBytes, MIB + 16 * KIB, 'neither foreign memory nor much of it is kept')
  const many = Array.from({ length: 9 }, () => memory.take(600 * KIB))
  for (const one of many) memory.giveBack(one)
  t.ok(memory.freeBytes <= 4 * MIB, `${memory.freeBytes} bytes kept`)
  t.equal(memory.take(600 * KIB).buffer, many.at(-1)!.buffer, 'the newest are kept')
  const view = Buffer.alloc(20 * KIB, 'a')
  const copy = memory.copy(view)
  view.fill('b')
  t.ok(copy.equals(Buffer.alloc(20 * KIB, 'a')))
})

t.test(
  '[runtimes/node.40] frames that are read into used memory are as they were sent, however they are cut',
  async t => {
    const bodies = Array.from({ length: 24 }, (_, at) => makeBody([16, 17, 40, 64, 300][at % 5]! * KIB + at, at))
    const stream = Buffer.concat(bodies.map((body, at) => encodeFrame(KIND.call, at + 1, '{"a":1}', body)))
    for (const step of [1000, 16 * KIB, 100_000, stream.length]) {
      const memory = new FrameMemory()
      const buffers = new Set<unknown>()
      let frames = 0
      const onFrame: ConstructorParameters<typeof FrameReader>[0] = (_kind, id, _header, body, isOwn) => {
        frames += 1
        t.ok(body.equals(bodies[id - 1]!), `frame ${id} in pieces of ${step}`)
        if (!isOwn) return
        buffers.add(body.buffer)
        memory.giveBack(body)
      }
      const reader = new FrameReader(onFrame, 0, memory)
      for (let at = 0; at < stream.length; at += step) {
        const { room } = reader
        const piece = stream.subarray(at, at + step)
        if (room === null || room.length < piece.length) reader.push(piece)
        else {
          room.set(piece)
          reader.fill(piece.length)
        }
      }
      t.equal(frames, bodies.length)
      t.ok(buffers.size <= 5, `${buffers.size} pieces of memory`)
    }
  },
)

t.test(
  '[runtimes/node.40] a body is given back when its answer is written, and only when nobody can need it',
  async t => {
    const end = (read: (given: GivenBody) => unknown, kind: number = KIND.reply, isWritten = false) => {
      const reclaimed: Uint8Array[] = []
      let tell = () => {}
      const wait = new Promise<void>(resolve => (tell = resolve))
      const call = new Call(1, {
        send: () => (isWritten ? null : wait),
        sendOutput: () => {},
        handleEnd: () => {},
        addBackground: () => {},
        keep: bytes => bytes,
        reclaim: bytes => reclaimed.push(bytes),
      })
      const bytes = makeBody(20 * KIB, 1)
      call.given = new GivenBody(bytes)
      read(call.given)
      call.finish(kind, '', null)
      return { bytes, reclaimed, tell, wait }
    }
    const held = end(given => given.base64)
    t.same(held.reclaimed, [], 'the answer may be the body, and the socket has it still')
    held.tell()
    await held.wait
    t.equal(held.reclaimed[0], held.bytes)
    const written = end(given => given.base64, KIND.reply, true)
    t.equal(written.reclaimed[0], written.bytes)
    const whys: [string, (given: GivenBody) => unknown, number][] = [
      ['its text may be read yet', () => {}, KIND.reply],
      ['its text may be read yet, of which the kind is known', given => given.isBase64, KIND.reply],
      ['the handler has the bytes', given => [given.base64, given.lend()], KIND.reply],
      ['pieces of it may be on their way', given => given.base64, KIND.end],
      ['the call failed', given => given.base64, KIND.error],
    ]
    for (const [why, read, kind] of whys) t.same(end(read, kind, true).reclaimed, [], why)
  },
)

const KEEPER = `
import { createHash } from 'node:crypto'
const sha = text => text === null ? null : createHash('sha256').update(text).digest('hex')
const kept = []
const give = e => e.is_base64 ? { status: 200, is_base64: true, body_base64: e.body_base64 } : { status: 200, body: e.body }
const ways = {
  unread: () => 1,
  kind: e => e.is_base64,
  back: give,
  later: async e => { const answer = give(e); await new Promise(setImmediate); return answer },
  read: e => (e.body ?? e.body_base64).length,
  fails: e => { give(e); throw new Error('no') },
  proxied: e => ({ proxy: { path: '/', ...give(e), status: undefined } }),
  pieces: async function* (e) { const { body, body_base64 } = give(e); yield body ?? body_base64; await new Promise(setImmediate); yield '.' },
}
export const handler = e => {
  if (e.query.way === 'kept') return kept.map(one => [sha(one.body), one.is_base64, sha(one.body_base64)])
  kept.push(e)
  return ways[e.query.way](e)
}
`
const WAYS = ['unread', 'kind', 'back', 'later', 'read', 'fails', 'proxied', 'pieces']

t.test('[runtimes/node.40] events that a handler keeps have their bodies, whatever came after them', async t => {
  const worker = await withHandler('keeper.mjs', KEEPER)
  const sizes = [16 * KIB, 40 * KIB, 64 * KIB, 300 * KIB, MIB - 1]
  const bodies = Array.from({ length: 80 }, (_, at) => makeBody(sizes[at % sizes.length]!, at))
  const answers = bodies.map((body, at) => worker.call({ query: { way: WAYS[at % WAYS.length]! } }, body))
  for (const [at, answer] of (await Promise.all(answers)).entries()) {
    const way = WAYS[at % WAYS.length]!
    t.equal(answer.kind, way === 'fails' ? 'error' : 'reply', way)
    if (['back', 'later', 'proxied'].includes(way)) t.ok(answer.body.equals(bodies[at]!), `${way} of call ${at}`)
  }
  const kept = JSON.parse((await worker.call({ query: { way: 'kept' } })).text) as unknown[]
  const expected = bodies.map((body, at) =>
    at % 2 === 0 ? [sha(body), false, null] : [null, true, sha(body.toString('base64'))],
  )
  t.same(kept, expected)
  await worker.close()
})

t.test('[runtimes/node.40] answers that a gateway reads late are what was given', async t => {
  const worker = await withHandler(
    'late.mjs',
    'import { writeSync } from "node:fs"\nlet calls = 0\nexport const handler = e => {\n  if (++calls === 12) setImmediate(() => writeSync(2, "all have run\\n"))\n  return { status: 200, is_base64: true, body_base64: e.body_base64 }\n}\n',
  )
  const bodies = Array.from({ length: 12 }, (_, at) => makeBody(MIB, at * 2 + 1))
  worker.socket.pause()
  const ids = bodies.map(body => worker.open({}, body))
  await daemon.control.wait(({ kind, body }) => kind === KIND.log && body.includes('all have run'))
  worker.socket.resume()
  for (const [at, id] of ids.entries()) t.ok((await worker.collect(id)).body.equals(bodies[at]!), `answer ${at}`)
  await worker.close()
})

const REUSER = `
import { writeSync } from 'node:fs'
const memory = Buffer.alloc(1024 * 1024)
const ways = {
  bytes: bytes => bytes,
  body: body => ({ status: 200, body }),
  buffer: bytes => memory.buffer.slice(0, bytes.length),
  proxied: body => ({ proxy: { path: '/', body } }),
}
let calls = 0
export const handler = e => {
  if (++calls === 12) setImmediate(() => writeSync(2, 'all have used it\\n'))
  const bytes = memory.subarray(0, Number(e.query.size)).fill(calls)
  return ways[e.query.way](bytes)
}
`

t.test('[runtimes/node.41] bytes that a handler answers with may change once it has answered', async t => {
  const worker = await withHandler('reuser.mjs', REUSER)
  const sizes = [MIB, 16 * KIB, 16 * KIB + 1, 200 * KIB]
  const calls = Array.from({ length: 12 }, (_, at) => ({
    size: sizes[at % sizes.length]!,
    way: ['bytes', 'body', 'proxied', 'body', 'proxied', 'buffer', 'bytes'][at % 7]!,
  }))
  worker.socket.pause()
  const ids = calls.map(query => worker.open({ query }))
  await daemon.control.wait(({ kind, body }) => kind === KIND.log && body.includes('all have used it'))
  worker.socket.resume()
  for (const [at, id] of ids.entries()) {
    const { size, way } = calls[at]!
    const { body } = await worker.collect(id)
    t.ok(body.equals(Buffer.alloc(size, at + 1)), `answer ${at}: ${way}, ${size} bytes`)
  }
  await worker.close()
})

t.test('[runtimes/node.41] memory of such bytes is used again when they are written', async t => {
  const reclaimed: Uint8Array[] = []
  const sent: unknown[] = []
  let tell = () => {}
  const wait = new Promise<void>(resolve => (tell = resolve))
  const copy = Buffer.alloc(KIB)
  const call = new Call(1, {
    send: (...frame) => {
      sent.push(frame)
      return wait
    },
    sendOutput: () => {},
    handleEnd: () => {},
    addBackground: () => {},
    keep: () => copy,
    reclaim: bytes => reclaimed.push(bytes),
  })
  call.reply({ fields: '', body: Buffer.alloc(KIB, 1), isTheirs: true, stream: null, status: '', headers: '' })
  t.same(sent, [[KIND.reply, 1, '{}', copy]])
  t.same(reclaimed, [], 'the socket has it still')
  tell()
  await wait
  t.equal(reclaimed[0], copy)
})

t.test('[runtimes/node.40] a Request that is read after its answer has its own body', async t => {
  const worker = await withHandler(
    'request.mjs',
    'import { createHash } from "node:crypto"\nconst sha = bytes => createHash("sha256").update(new Uint8Array(bytes)).digest("hex")\nconst kept = []\nexport default { async fetch(request) {\n  if (request.method === "GET") return Response.json(await Promise.all(kept.map(async one => sha(await one.arrayBuffer()))))\n  kept.push(request)\n  return new Response("kept")\n} }\n',
    { adapter: 'edge-worker' },
  )
  const bodies = Array.from({ length: 12 }, (_, at) => makeBody(200 * KIB, at))
  const headers = { 'content-type': 'application/octet-stream' }
  for (const body of bodies) t.equal((await worker.call({ method: 'POST', headers }, body)).text, 'kept')
  t.same(JSON.parse((await worker.call({ method: 'GET' })).text), bodies.map(sha))
  await worker.close()
})
