import t from 'tap'
import { LogStream, OpenStreams } from '../../lib/control/log-endpoints.ts'
import type { Exchange } from '../../lib/http/exchange.ts'
import { FakeClock } from '../helpers/clock.ts'

const FORM = {
  type: 'text/plain',
  toText: ({ line }: { line: string }) => `${line}\n`,
  toSkipText: (count: number) => `(${count})\n`,
}
const toLine = (line: string) => ({ file: 'runtime', line }) as const

/** A client that takes what is written while it is not slow. */
function setup() {
  const clock = new FakeClock()
  const written: string[] = []
  const client = { isSlow: false, drain: (): void => {}, isClosed: false }
  const exchange = {
    ended: false,
    responder: {
      writeStream: (_: unknown, chunk: Buffer) => {
        written.push(chunk.toString())
        return !client.isSlow
      },
      onDrain: (_: unknown, callback: () => void) => {
        client.drain = callback
      },
      closeStream: () => {
        client.isClosed = true
      },
    },
  } as unknown as Exchange
  return { clock, written, client, stream: new LogStream(exchange, clock, FORM) }
}

t.test('[control/logs.6] lines are gathered for a moment', async t => {
  const { clock, written, stream, client } = setup()
  stream.begin(['a', 'b'].map(toLine))
  t.same(written, ['a\nb\n'])
  stream.push(toLine('c'))
  stream.push(toLine('d'))
  t.equal(written.length, 1)
  clock.advance(50)
  t.same(written, ['a\nb\n', 'c\nd\n'])
  stream.push(toLine('e'))
  stream.end()
  t.same(written.slice(2), ['e\n'])
  t.ok(client.isClosed)
  t.equal(clock.pending, 0)
  const left = setup()
  left.stream.push(toLine('x'))
  left.stream.stop()
  t.equal(left.clock.pending, 0)
  left.clock.advance(100)
  t.same(left.written, [])
})

t.test('[control/logs.7] a slow client is told how many lines it missed, and nothing piles up', async t => {
  const { clock, written, client, stream } = setup()
  client.isSlow = true
  const line = 'x'.repeat(1023)
  stream.begin(Array.from({ length: 1000 }, () => toLine(line)))
  t.equal(written.length, 1, 'what was there goes out whole')
  for (let i = 0; i < 10_000; i++) stream.push(toLine(line))
  clock.advance(1000)
  t.equal(written.length, 1)
  client.isSlow = false
  client.drain()
  t.equal(written.length, 2)
  const lines = written[1]!.split('\n')
  t.equal(lines.pop(), '')
  const skipped = Number(/^\((\d+)\)$/.exec(lines.pop()!)![1])
  t.equal(lines.length + skipped, 10_000)
  t.ok(written[1]!.length < 300 * 1024, `${written[1]!.length}`)
  stream.push(toLine('again'))
  clock.advance(50)
  t.equal(written[2], 'again\n')
})

t.test('[control/logs.8] the gateway ends streams when it stops, and the oldest when there are too many', async t => {
  const streams = new OpenStreams()
  const ended: number[] = []
  const forget = Array.from({ length: 64 }, (_, i) => streams.add(() => ended.push(i)))
  forget[1]!()
  streams.add(() => ended.push(64))
  t.same(ended, [])
  streams.add(() => ended.push(65))
  t.same(ended, [0])
  streams.close()
  t.equal(ended.length, 65)
  t.notOk(ended.includes(1))
  streams.add(() => ended.push(66))
  t.equal(ended.at(-1), 66)
  streams.close()
  t.equal(ended.length, 66)
})
