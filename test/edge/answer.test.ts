import t from 'tap'
import { gzipSync } from 'node:zlib'
import type { GatewayError } from '../../lib/core/errors.ts'
import type { AnswerHead } from '../../lib/edge/answer-parser.ts'
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

/** A connection whose memory is used again after each read, as the real one's is. */
class Source {
  answer: EdgeAnswer | null = null
  isPaused = false
  readonly #waiting: (() => void)[] = []

  pause(): void {
    this.isPaused = true
  }

  resume(): void {
    this.isPaused = false
    while (!this.isPaused && this.#waiting.length > 0) this.#waiting.shift()!()
  }

  /** One read with these pieces of the body. */
  write(...pieces: (string | Buffer)[]): void {
    this.#do(() => {
      this.#hand(pieces)
      this.answer!.onRead()
    })
  }

  /** The last read. */
  end(...pieces: (string | Buffer)[]): void {
    this.#do(() => {
      this.#hand(pieces)
      this.answer!.onEnd()
    })
  }

  #hand(pieces: readonly (string | Buffer)[]): void {
    const buffers = pieces.map(piece => Buffer.from(piece))
    for (const buffer of buffers) this.answer!.onPiece(buffer)
    setImmediate(() => {
      for (const buffer of buffers) buffer.fill('!')
    })
  }

  #do(step: () => void): void {
    if (this.isPaused) this.#waiting.push(step)
    else step()
  }
}

/** An upstream's answer in memory, and what becomes of it. */
function makeAnswer({ status = 200, headers = [], method = 'GET', maxResponseBytes = 1000 }: Given = {}) {
  const clock = new FakeClock()
  const textOf = (name: string) => headers[headers.findIndex(text => text.toLowerCase() === name) + 1]
  const has = (name: string) => headers.some(text => text.toLowerCase() === name)
  const head: AnswerHead = {
    status,
    rawHeaders: headers,
    length: has('content-length') ? Number(textOf('content-length')) : null,
    coding: has('transfer-encoding') ? textOf('transfer-encoding')!.toLowerCase() : null,
    keepMs: null,
  }
  const source = new Source()
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
    time: { onUpstream: () => signs.push('sign'), onClient: () => signs.push('slow') },
    fail: error => {
      seen.push(`failed ${error.message}`)
      answer.stop()
    },
    complete: () => {
      signs.push('complete')
      answer.stop()
    },
  }
  const request = { method, maxResponseBytes, timeoutMs: null }
  const answer: EdgeAnswer = new EdgeAnswer(call as never, request as never, clock, owner, head, source)
  source.answer = answer
  return { clock, source, seen, signs, call, answer, bytes: () => bytes }
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

t.test('[edge/passthrough.17] a response that ends soon is answered whole', async t => {
  for (const pieces of [[], ['one'], ['one', ' two']]) {
    const { source, answer, seen, signs, clock, call } = makeAnswer()
    t.equal(answer.isBegun, false)
    for (const piece of pieces) source.write(piece)
    source.end()
    await settle()
    t.same(seen, [`whole 200 ${pieces.join('')}`])
    t.equal(signs.at(-1), 'complete')
    t.equal(answer.bytes, pieces.join('').length)
    t.equal(clock.pending, 0)
    t.equal(call.grantEdge, null)
  }
})

t.test('[edge/passthrough.17] a longer or slower response streams', async t => {
  const late = makeAnswer()
  late.source.write('first')
  await settle()
  late.clock.advance(EDGE_HOLD_MS - 1)
  t.same(late.seen, [])
  late.clock.advance(1)
  t.same(late.seen, ['stream 200 ', 'chunk 5'])
  t.equal(late.answer.isBegun, true)
  late.source.end('second')
  await settle()
  t.same(late.seen, ['stream 200 ', 'chunk 5', 'chunk 6', 'end ok'])
  const long = makeAnswer({ maxResponseBytes: 1_000_000 })
  long.source.write(Buffer.alloc(EDGE_WINDOW_BYTES))
  await settle()
  t.equal(long.answer.isBegun, false, '64 KiB are held')
  long.source.write('x')
  await settle()
  t.equal(long.answer.isBegun, true)
})

t.test('[edge/passthrough.18] one byte over the limit', async t => {
  const { source, seen } = makeAnswer({ maxResponseBytes: 10 })
  source.write('0123456789')
  await settle()
  t.same(seen, [])
  source.write('x')
  source.write('more')
  await settle()
  t.same(seen, [`${FAILED}upstream response too large: the limit is 10 bytes`], 'once')
})

t.test('[edge/passthrough.19, edge/passthrough.31] a client that is slow holds the upstream up', async t => {
  const { source, call, signs, clock, bytes } = makeAnswer({ maxResponseBytes: 10_000_000 })
  source.write()
  clock.advance(EDGE_HOLD_MS)
  source.write(Buffer.alloc(EDGE_WINDOW_BYTES - 1))
  await settle()
  t.equal(source.isPaused, false)
  source.write('x')
  await settle()
  t.equal(source.isPaused, true)
  t.equal(signs.at(-1), 'slow')
  const before = bytes()
  source.write('waits')
  await settle()
  t.equal(bytes(), before)
  call.grantEdge!(1)
  t.equal(bytes(), before + 5)
  t.same(signs.slice(-3), ['sign', 'sign', 'slow'], 'the upstream is waited for, and then the client again')
})

t.test('[edge/passthrough.20] coded bodies are counted before they are passed on', async t => {
  const body = gzipSync(Buffer.alloc(900))
  const good = makeAnswer({ headers: ['Content-Encoding', 'gzip'] })
  good.source.write(body.subarray(0, 5))
  good.source.end(body.subarray(5))
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
    bad.source.end(bytes)
    await new Promise<void>(resolve => {
      const look = () => (bad.seen.length > 0 ? resolve() : setImmediate(look))
      look()
    })
    t.same(bad.seen, [FAILED + why])
  }
})

t.test(
  '[edge/passthrough.17] an answer that comes in one read is handed on as it lies there, without a timer',
  async t => {
    for (const pieces of [[], ['x'], ['a', 'bc'], ['y'.repeat(64 * 1024)], ['z'.repeat(64 * 1024), '!']]) {
      const { source, seen, clock, call } = makeAnswer({ maxResponseBytes: 1_000_000 })
      const bodies: Buffer[] = []
      const { answer } = call
      call.answer = (head, body, isStream) => {
        bodies.push(body)
        return answer(head, body, isStream)
      }
      let timers = 0
      clock.setTimeout = () => {
        timers += 1
        throw new Error('a timer')
      }
      source.end(...pieces)
      const text = pieces.join('')
      if (text.length <= EDGE_WINDOW_BYTES) t.same(seen, [`whole 200 ${text}`])
      else t.same(seen, ['stream 200 ', 'chunk 65536', 'chunk 1', 'end ok'])
      t.equal(timers, 0)
      await settle()
      // The next read overwrites what it was.
      if (pieces.length === 1 && text.length > 0)
        t.ok(
          bodies[0]!.every(byte => byte === 33),
          'no copy',
        )
    }
  },
)

t.test('[edge/passthrough.17] a piece that is held back survives the next read', async t => {
  const { source, seen } = makeAnswer()
  source.write('one ', 'two ')
  await settle()
  source.write()
  source.write('three ')
  await settle()
  source.end('four')
  t.same(seen, ['whole 200 one two three four'])
})

t.test('[edge/passthrough.17] a call that is over', async t => {
  const stopped = makeAnswer()
  stopped.answer.stop()
  stopped.source.write('late')
  stopped.source.end()
  await settle()
  stopped.clock.advance(EDGE_HOLD_MS)
  t.same(stopped.seen, [])
  t.equal(stopped.clock.pending, 0)
})
