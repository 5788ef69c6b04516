import { PassThrough } from 'node:stream'
import t from 'tap'
import { gzipSync } from 'node:zlib'
import type { GatewayError } from '../../lib/core/errors.ts'
import { type AnswerOwner, EDGE_HOLD_MS, EDGE_WINDOW_BYTES, EdgeAnswer } from '../../lib/edge/answer.ts'
import type { ReplyHead } from '../../lib/invocation/response.ts'
import { FakeClock } from '../helpers/clock.ts'

interface Given {
  status?: number
  /** Names and values in turn. */
  headers?: string[]
  method?: string
  maxResponseBytes?: number
}

/** An upstream's answer in memory, and what becomes of it. */
function makeAnswer({ status = 200, headers = [], method = 'GET', maxResponseBytes = 1000 }: Given = {}) {
  const clock = new FakeClock()
  const named: Record<string, string> = {}
  for (let i = 0; i < headers.length; i += 2) named[headers[i]!.toLowerCase()] = headers[i + 1]!
  const res = Object.assign(new PassThrough(), { statusCode: status, rawHeaders: headers, headers: named })
  const seen: string[] = []
  let bytes = 0
  const call = {
    grantEdge: null as ((bytes: number) => void) | null,
    answer: (head: ReplyHead, body: Buffer, isStream: boolean) =>
      seen.push(`${isStream ? 'stream' : 'whole'} ${head.status} ${body.toString()}`),
    answerChunk: (body: Buffer) => {
      bytes += body.length
      seen.push(`chunk ${body.length}`)
    },
    answerEnd: (error: GatewayError | null) => seen.push(`end ${error === null ? 'ok' : error.message}`),
  }
  const signs: string[] = []
  const owner: AnswerOwner = {
    onSign: () => signs.push('sign'),
    onClientSlow: () => signs.push('slow'),
    onFailed: error => {
      seen.push(`failed ${error.message}`)
      answer.stop()
    },
    onComplete: () => {
      signs.push('complete')
      answer.stop()
    },
  }
  const request = { method, maxResponseBytes, timeoutMs: null }
  const answer = new EdgeAnswer(call as never, request as never, clock, owner, res as never)
  return { clock, res, seen, signs, call, answer, bytes: () => bytes }
}

/** Everything that was written has been read. */
const settle = async () => {
  for (let i = 0; i < 5; i++) await new Promise(setImmediate)
}

const FAILED = 'failed edge proxy failed: '

t.test('[edge/passthrough.16] heads that cannot be passed on', async t => {
  for (const [given, message] of [
    [{ status: 199 }, 'upstream answered with status 199'],
    [{ status: 600 }, 'upstream answered with status 600'],
    [{ headers: ['X', 'a\u0001'] }, 'upstream answered with a malformed header'],
    [
      { headers: ['Transfer-Encoding', 'gzip, chunked'] },
      'upstream answered with a Transfer-Encoding other than chunked',
    ],
    [{ headers: ['Content-Encoding', 'zstd'] }, 'upstream answered with a Content-Encoding that cannot be counted'],
    [{ headers: ['Content-Length', '1001'] }, 'upstream response too large: the limit is 1000 bytes'],
  ] as const)
    t.throws(() => makeAnswer(given as Given), { status: 502, message: `edge proxy failed: ${message}` })
  for (const given of [
    { headers: ['Content-Length', '1000'] },
    { headers: ['Transfer-Encoding', 'Chunked'] },
    { headers: ['Transfer-Encoding', 'identity'] },
    { headers: ['Content-Length', '9999', 'Content-Encoding', 'zstd'], method: 'HEAD' },
    { headers: ['Content-Length', '9999', 'Content-Encoding', 'zstd'], status: 304 },
    { status: 599 },
  ])
    t.doesNotThrow(() => makeAnswer(given), JSON.stringify(given))
})

t.test('[edge/passthrough.17] what ends soon is answered whole', async t => {
  for (const pieces of [[], ['one'], ['one', ' two']]) {
    const { res, answer, seen, signs, clock, call } = makeAnswer()
    answer.read()
    t.equal(answer.isBegun, false)
    for (const piece of pieces) res.write(piece)
    res.end()
    await settle()
    t.same(seen, [`whole 200 ${pieces.join('')}`])
    t.equal(signs.at(-1), 'complete')
    t.equal(answer.bytes, pieces.join('').length)
    t.equal(clock.pending, 0)
    t.equal(call.grantEdge, null)
  }
})

t.test('[edge/passthrough.17] what takes longer, or is longer, streams', async t => {
  const late = makeAnswer()
  late.answer.read()
  late.res.write('first')
  await settle()
  late.clock.advance(EDGE_HOLD_MS - 1)
  t.same(late.seen, [])
  late.clock.advance(1)
  t.same(late.seen, ['stream 200 ', 'chunk 5'])
  t.equal(late.answer.isBegun, true)
  late.res.end('second')
  await settle()
  t.same(late.seen, ['stream 200 ', 'chunk 5', 'chunk 6', 'end ok'])
  const long = makeAnswer({ maxResponseBytes: 1_000_000 })
  long.answer.read()
  long.res.write(Buffer.alloc(EDGE_WINDOW_BYTES))
  await settle()
  t.equal(long.answer.isBegun, false, '64 KiB are held')
  long.res.write('x')
  await settle()
  t.equal(long.answer.isBegun, true)
})

t.test('[edge/passthrough.18] one byte over the limit', async t => {
  const { res, answer, seen } = makeAnswer({ maxResponseBytes: 10 })
  answer.read()
  res.write('0123456789')
  await settle()
  t.same(seen, [])
  res.write('x')
  res.write('more')
  await settle()
  t.same(seen, [`${FAILED}upstream response too large: the limit is 10 bytes`], 'once')
})

t.test('[edge/passthrough.19, edge/passthrough.31] a client that is slow holds the upstream up', async t => {
  const { res, answer, call, signs, clock, bytes } = makeAnswer({ maxResponseBytes: 10_000_000 })
  answer.read()
  clock.advance(EDGE_HOLD_MS)
  res.write(Buffer.alloc(EDGE_WINDOW_BYTES - 1))
  await settle()
  t.equal(res.isPaused(), false)
  res.write('x')
  await settle()
  t.equal(res.isPaused(), true)
  t.equal(signs.at(-1), 'slow')
  const before = bytes()
  res.write('waits')
  await settle()
  t.equal(bytes(), before)
  call.grantEdge!(1)
  t.equal(signs.at(-1), 'sign')
  await settle()
  t.equal(bytes(), before + 5)
  t.equal(signs.filter(sign => sign === 'slow').length, 2, 'and is waited for again')
})

t.test('[edge/passthrough.20] coded bodies are counted before they are passed on', async t => {
  const body = gzipSync(Buffer.alloc(900))
  const good = makeAnswer({ headers: ['Content-Encoding', 'gzip'] })
  good.answer.read()
  good.res.write(body.subarray(0, 5))
  good.res.end(body.subarray(5))
  await new Promise<void>(resolve => {
    const look = () => (good.seen.length > 0 ? resolve() : setImmediate(look))
    look()
  })
  t.match(good.seen, [/^whole 200 /])
  for (const [bytes, why] of [
    [gzipSync(Buffer.alloc(1001)), 'upstream response too large: the limit is 1000 bytes'],
    [Buffer.from('no gzip'), 'upstream response does not match its Content-Encoding'],
    [gzipSync('cut off').subarray(0, 12), 'upstream response does not match its Content-Encoding'],
  ] as const) {
    const bad = makeAnswer({ headers: ['Content-Encoding', 'gzip'] })
    bad.answer.read()
    bad.res.end(bytes)
    await new Promise<void>(resolve => {
      const look = () => (bad.seen.length > 0 ? resolve() : setImmediate(look))
      look()
    })
    t.same(bad.seen, [FAILED + why])
  }
})

t.test('[edge/passthrough.17, edge/passthrough.22] an upstream that hangs up, and a call that is over', async t => {
  const cut = makeAnswer()
  cut.answer.read()
  cut.res.write('part')
  await settle()
  cut.res.destroy()
  await settle()
  t.same(cut.seen, [`${FAILED}proxy request failed: connection reset`])
  const stopped = makeAnswer()
  stopped.answer.read()
  stopped.answer.stop()
  stopped.res.write('late')
  stopped.res.end()
  await settle()
  stopped.clock.advance(EDGE_HOLD_MS)
  t.same(stopped.seen, [])
  t.equal(stopped.clock.pending, 0)
})
