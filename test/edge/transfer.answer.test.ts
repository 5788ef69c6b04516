import t from 'tap'
import { gzipSync } from 'node:zlib'
import type { GatewayError } from '../../lib/core/errors.ts'
import { UpstreamAddresses } from '../../lib/edge/addresses.ts'
import type { AnswerHead } from '../../lib/edge/answer-parser.ts'
import { type EdgeContext, EDGE_HOLD_MS, EDGE_WINDOW_BYTES, EdgeTransfer } from '../../lib/edge/transfer.ts'
import type { AnswerTaker } from '../../lib/edge/upstream-connection.ts'
import type { ReplyHead } from '../../lib/invocation/response.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'

interface Given {
  status?: number
  /** Names and values in turn. */
  headers?: string[]
  method?: string
  maxResponseBytes?: number
}

/** A connection whose memory is used again after each read, as the real one's is. */
class Source {
  taker: AnswerTaker | null = null
  isPaused = false
  isOverUsed = false
  readonly #waiting: (() => void)[] = []

  pause(): void {
    this.isPaused = true
  }

  destroy(): void {}

  resume(): void {
    this.isPaused = false
    while (!this.isPaused && this.#waiting.length > 0) this.#waiting.shift()!()
  }

  /** One read with these pieces of the body. */
  write(...pieces: (string | Buffer)[]): void {
    this.#do(() => {
      this.#hand(pieces)
      this.taker!.onRead()
    })
  }

  /** The last read. */
  end(...pieces: (string | Buffer)[]): void {
    this.#do(() => {
      this.#hand(pieces)
      this.taker!.onEnd()
    })
  }

  #hand(pieces: readonly (string | Buffer)[]): void {
    const buffers = pieces.map(piece => Buffer.from(piece))
    for (const buffer of buffers) this.taker!.onPiece(buffer)
    setImmediate(() => {
      for (const buffer of buffers) buffer.fill('!')
    })
  }

  #do(step: () => void): void {
    if (this.isPaused) this.#waiting.push(step)
    else step()
  }
}

const TIMEOUT_MS = 15_000

/** An upstream's answer in memory, and what becomes of it. */
async function makeAnswer({ status = 200, headers = [], method = 'GET', maxResponseBytes = 1000 }: Given = {}) {
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
    fn: makeFn({ policy: { timeoutMs: TIMEOUT_MS } }),
    startedAt: 0,
    trace: '',
    traceState: null,
    span: null,
    sharesOrigin: true,
    stopEdge: null,
    grantEdge: null as ((bytes: number) => void) | null,
    answer: (head: ReplyHead, body: Buffer, isStream: boolean) =>
      seen.push(`${isStream ? 'stream' : 'whole'} ${head.status} ${body.toString()}`),
    answerChunk: (body: Buffer) => {
      bytes += body.length
      seen.push(`chunk ${body.length}`)
    },
    answerEnd: (error: GatewayError | null) => seen.push(`end ${error === null ? 'ok' : error.message}`),
    fail: (error: GatewayError) => seen.push(`failed ${error.message}`),
  }
  const results: string[] = []
  const to = { isTls: false, hostname: '127.0.0.1', port: 80, host: 'x', path: '/', spellings: [] }
  const context = {
    clock,
    addresses: new UpstreamAddresses(() => []),
    connections: {
      send: (...given: unknown[]) => {
        source.taker = given.at(-1) as AnswerTaker
        return source
      },
    },
    forget: ({ result }: EdgeTransfer) => results.push(result),
  }
  const request = { to, method, headers: [], maxResponseBytes, timeoutMs: null }
  const transfer = new EdgeTransfer(context as unknown as EdgeContext, call as never, request, Buffer.alloc(0))
  await transfer.start(true)
  source.taker!.onHead(head)
  return { clock, source, seen, results, call, transfer, bytes: () => bytes }
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
    t.same((await makeAnswer(given as Given)).seen, [`${FAILED}${message}`])
  for (const given of [
    { headers: ['Content-Length', '1000'] },
    { headers: ['Transfer-Encoding', 'Chunked'] },
    { headers: ['Transfer-Encoding', 'identity'] },
    { headers: ['Content-Length', '9999', 'Content-Encoding', 'zstd'], method: 'HEAD' },
    { headers: ['Content-Length', '9999', 'Content-Encoding', 'zstd'], status: 304 },
    { status: 599 },
  ])
    t.same((await makeAnswer(given)).seen, [], JSON.stringify(given))
})

t.test('[edge/passthrough.17] a response that ends soon is answered whole', async t => {
  for (const pieces of [[], ['one'], ['one', ' two']]) {
    const { source, seen, results, clock, call } = await makeAnswer()
    for (const piece of pieces) source.write(piece)
    source.end()
    await settle()
    t.same(seen, [`whole 200 ${pieces.join('')}`])
    t.same(results, ['answered'])
    t.equal(clock.pending, 0)
    t.equal(call.grantEdge, null)
  }
})

t.test('[edge/passthrough.17] a longer or slower response streams', async t => {
  const late = await makeAnswer()
  late.source.write('first')
  await settle()
  late.clock.advance(EDGE_HOLD_MS - 1)
  t.same(late.seen, [])
  late.clock.advance(1)
  t.same(late.seen, ['stream 200 ', 'chunk 5'])
  late.source.end('second')
  await settle()
  t.same(late.seen, ['stream 200 ', 'chunk 5', 'chunk 6', 'end ok'])
  const long = await makeAnswer({ maxResponseBytes: 1_000_000 })
  long.source.write(Buffer.alloc(EDGE_WINDOW_BYTES))
  await settle()
  t.same(long.seen, [], '64 KiB are held')
  long.source.write('x')
  await settle()
  t.same(long.seen, ['stream 200 ', 'chunk 65536', 'chunk 1'])
})

t.test('[edge/passthrough.18] one byte over the limit', async t => {
  const { source, seen } = await makeAnswer({ maxResponseBytes: 10 })
  source.write('0123456789')
  await settle()
  t.same(seen, [])
  source.write('x')
  source.write('more')
  await settle()
  t.same(seen, [`${FAILED}upstream response too large: the limit is 10 bytes`], 'once')
})

t.test('[edge/passthrough.19, edge/passthrough.31] a client that is slow holds the upstream up', async t => {
  const { source, call, seen, clock, bytes } = await makeAnswer({ maxResponseBytes: 10_000_000 })
  source.write()
  clock.advance(EDGE_HOLD_MS)
  source.write(Buffer.alloc(EDGE_WINDOW_BYTES - 1))
  await settle()
  t.equal(source.isPaused, false)
  source.write('x')
  await settle()
  t.equal(source.isPaused, true)
  const before = bytes()
  source.write('waits')
  await settle()
  t.equal(bytes(), before)
  call.grantEdge!(1)
  t.equal(bytes(), before + 5)
  source.taker!.onPiece(Buffer.from('of the same read'))
  t.equal(bytes(), before + 21, 'what was read with it is handed on')
  t.equal(source.isPaused, true, 'the upstream is waited for, and then the client again')
  clock.advance(TIMEOUT_MS)
  t.equal(seen.at(-1), `end edge proxy failed: client timeout: too little of the answer taken within ${TIMEOUT_MS} ms`)
})

t.test('[edge/passthrough.20] coded bodies are counted before they are passed on', async t => {
  const body = gzipSync(Buffer.alloc(900))
  const good = await makeAnswer({ headers: ['Content-Encoding', 'gzip'] })
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
    const bad = await makeAnswer({ headers: ['Content-Encoding', 'gzip'] })
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
      const { source, seen, clock, call } = await makeAnswer({ maxResponseBytes: 1_000_000 })
      const bodies: Buffer[] = []
      const { answer } = call
      call.answer = (head, body, isStream) => {
        bodies.push(body)
        return answer(head, body, isStream)
      }
      const timers = clock.pending
      clock.setTimeout = () => {
        throw new Error('a timer')
      }
      source.end(...pieces)
      const text = pieces.join('')
      if (text.length <= EDGE_WINDOW_BYTES) t.same(seen, [`whole 200 ${text}`])
      else t.same(seen, ['stream 200 ', 'chunk 65536', 'chunk 1', 'end ok'])
      t.equal(timers, 1, 'that of the time limit')
      t.equal(clock.pending, 0)
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
  const { source, seen } = await makeAnswer()
  source.write('one ', 'two ')
  await settle()
  source.write()
  source.write('three ')
  await settle()
  source.end('four')
  t.same(seen, ['whole 200 one two three four'])
})

t.test('[edge/passthrough.17] a call that is over', async t => {
  const stopped = await makeAnswer()
  stopped.transfer.stop()
  stopped.source.write('late')
  stopped.source.end()
  await settle()
  stopped.clock.advance(EDGE_HOLD_MS)
  t.same(stopped.seen, [])
  t.equal(stopped.clock.pending, 0)
})
