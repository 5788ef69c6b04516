import { Writable } from 'node:stream'
import t from 'tap'
import { LineStream, LOG_FLUSH_BYTES, LOG_FLUSH_MS } from '../../lib/observe/line-buffer.ts'
import { FakeClock } from '../helpers/clock.ts'

/** A stream that takes a write only when the test says so. */
function setup(isWaiting = false) {
  const clock = new FakeClock()
  const writes: string[] = []
  const waiting: (() => void)[] = []
  const stream = new Writable({
    write(chunk, _encoding, done) {
      writes.push(String(chunk))
      if (isWaiting) waiting.push(done)
      else done()
    },
  })
  const lines = new LineStream({ clock, stream, toDropLine: count => `dropped ${count}` })
  const take = (): void => waiting.shift()?.()
  return { clock, writes, lines, take, stream }
}

const settled = () => new Promise<void>(resolve => setImmediate(resolve))

t.test('[observe/log-store.16] lines are written in batches, in order', async t => {
  const { clock, writes, lines } = setup()
  for (const line of ['a', 'b', 'c']) lines.append(line)
  clock.advance(LOG_FLUSH_MS - 1)
  t.same(writes, [])
  clock.advance(1)
  await settled()
  t.same(writes, ['a\nb\nc\n'])
  lines.append('d')
  await lines.flush()
  t.same([writes.at(-1), clock.pending], ['d\n', 0])
  await lines.flush()
  t.equal(writes.length, 2, 'nothing to write is no write')
})

t.test('[observe/log-store.16] lines and copies of lines keep their order', async t => {
  const { writes, lines } = setup()
  const bytes = Buffer.from('..b..')
  lines.append('a')
  lines.appendCopy({ bytes, from: 2, to: 3 })
  lines.appendRecord({ write: (record: string, to, from) => from + to.write(record, from) }, 'c')
  bytes.fill('x')
  const many = Buffer.from('d\ne\n')
  lines.appendLines(many)
  many.fill('x')
  await lines.flush()
  t.same(writes, ['a\nb\nc\nd\ne\n'])
})

t.test('[observe/log-store.16] many bytes do not wait', async t => {
  const { writes, lines } = setup()
  const line = 'x'.repeat(8000)
  for (let i = 0; i < LOG_FLUSH_BYTES / 8000 + 2; i++) lines.append(line)
  await settled()
  t.ok(writes.length > 0)
})

t.test(
  '[observe/log-store.16] a reader that stops costs a fixed amount of memory, and is told what it missed',
  async t => {
    const { clock, writes, lines, take } = setup(true)
    lines.append('first')
    const first = lines.flush()
    const line = 'x'.repeat(8000)
    for (let i = 0; i < 2000; i++) lines.append(line)
    t.equal(writes.length, 1, 'one write at a time')
    take()
    await first
    clock.advance(LOG_FLUSH_MS)
    for (let i = 0; i < 3000; i++) {
      await settled()
      take()
    }
    const text = writes.join('')
    t.ok(text.length < 8 * 1024 * 1024, `${text.length} bytes of 16 MB`)
    const dropped = Number(/dropped (\d+)\n$/.exec(text)?.[1])
    t.equal(text.split('\n').filter(one => one === line).length + dropped, 2000, 'every line is there or counted')
  },
)

t.test('[observe/log-store.16] a reader that goes away disturbs nobody', async t => {
  const { lines, stream, clock } = setup(true)
  lines.append('a')
  const flushed = lines.flush()
  stream.destroy(new Error('EPIPE'))
  await flushed
  lines.append('b')
  await lines.flush()
  t.equal(clock.pending, 0)
})
