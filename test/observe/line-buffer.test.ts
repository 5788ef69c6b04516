import t from 'tap'
import {
  eachLine,
  LineBuffer,
  type LineWriter,
  LOG_MEMORY_BYTES,
  MAX_LOG_LINE_BYTES,
} from '../../lib/observe/line-buffer.ts'

const textOf = ({ views }: { views: Buffer[] }): string => Buffer.concat(views).toString()

t.test('[observe/log-store.5] lines come out as bytes, in order, each once', async t => {
  const lines = new LineBuffer(true)
  lines.append('a')
  lines.append('é€😀')
  t.equal(lines.pendingBytes, Buffer.byteLength('a\né€😀\n'))
  t.equal(textOf(lines.take()), 'a\né€😀\n')
  t.equal(lines.pendingBytes, 0)
  lines.append('b')
  lines.giveBack()
  t.equal(textOf(lines.take()), 'b\n')
  t.equal(textOf(lines.take()), '')
})

t.test('[observe/log-store.5] a record goes straight into the memory', async t => {
  const lines = new LineBuffer(true)
  const writer: LineWriter<string> = {
    write: (record, bytes, from) => {
      t.ok(bytes.length - from >= MAX_LOG_LINE_BYTES, 'with room for a line')
      return from + bytes.write(record, from)
    },
  }
  for (let i = 0; i < 100; i++) lines.appendRecord(writer, `${i}${'x'.repeat(MAX_LOG_LINE_BYTES - 10)}`)
  t.equal(textOf(lines.take()).split('\n').length, 101)
})

t.test('[observe/log-store.10] a line that was written is told, and copied into another memory', async t => {
  const writer: LineWriter<string> = { write: (record, bytes, from) => from + bytes.write(record, from) }
  const lines = new LineBuffer(true)
  const copies = new LineBuffer(true, 0)
  for (const record of ['one', 'é€😀', '', 'x'.repeat(MAX_LOG_LINE_BYTES)]) {
    const { bytes, from, to } = lines.appendRecord(writer, record)!
    t.equal(bytes.toString('utf8', from, to), record)
    copies.appendCopy({ bytes, from, to })
  }
  const taken = copies.take()
  t.equal(textOf(taken), textOf(lines.take()))
  t.equal(textOf(copies.take()), '')
})

t.test('[observe/log-store.20] lines of another process are copied many at a time, each whole', async t => {
  const many = ['one', 'é€😀', '', 'x'.repeat(MAX_LOG_LINE_BYTES)].map(line => `${line}\n`).join('')
  const lines = new LineBuffer(true)
  for (let length = 0; length < 200_000; length += Buffer.byteLength(many)) {
    lines.append('of this process')
    lines.appendLines(Buffer.from(many))
  }
  const { views } = lines.take()
  const text = textOf({ views })
  t.equal(text, `of this process\n${many}`.repeat(text.split('of this process').length - 1))
  t.ok(text.length > 190_000 && views.length < 8, `${views.length} pieces of memory`)
  for (const view of views) t.equal(view.at(-1), 10, 'no line lies in two')
  lines.appendLines(Buffer.alloc(0))
  t.equal(lines.pendingBytes, 0)
})

t.test('[observe/log-store.20] what is no whole line, or larger than any, is refused', async t => {
  const lines = new LineBuffer(true)
  lines.append('kept')
  for (const wrong of ['a line\nhalf a line', 'x', `${'x'.repeat(100_000)}\n`, `one\n${'x'.repeat(100_000)}\n`])
    t.throws(() => lines.appendLines(Buffer.from(wrong)), /lines of another process/)
  lines.appendLines(Buffer.from(`${'x'.repeat(MAX_LOG_LINE_BYTES)}\n`))
  t.equal(textOf(lines.take()), `kept\none\n${'x'.repeat(MAX_LOG_LINE_BYTES)}\n`)
})

t.test('[observe/log-store.8] of many lines those that find no room are counted', async t => {
  const lines = new LineBuffer(true)
  const many = Buffer.from(`${'x'.repeat(999)}\n`.repeat(30))
  for (let i = 0; i < 200; i++) lines.appendLines(many)
  const { views, dropped } = lines.take()
  t.equal(Buffer.concat(views).length / 1000 + dropped, 6000)
  t.ok(dropped > 1000, `${dropped} of 6 MB`)
})

t.test('[observe/log-store.20] each line is told, with its place', async t => {
  const told: string[] = []
  eachLine(Buffer.from('one\n\né€\n'), ({ bytes, from, to }) => told.push(bytes.toString('utf8', from, to)))
  t.same(told, ['one', '', 'é€'])
  eachLine(Buffer.alloc(0), () => t.fail('no line'))
  eachLine(Buffer.from('{}'), line => t.same([line.from, line.to], [0, 2], 'without its end'))
})

t.test('[observe/log-store.8] a line that finds no room is not told, as a copy neither is it kept', async t => {
  const writer: LineWriter<string> = { write: (record, bytes, from) => from + bytes.write(record, from) }
  const lines = new LineBuffer(true)
  const record = 'x'.repeat(8000)
  const line = lines.appendRecord(writer, record)!
  const copies = new LineBuffer(true, 0)
  for (let i = 0; i < 1000; i++) copies.appendCopy(line)
  const { views, dropped } = copies.take()
  t.equal(Buffer.concat(views).length / 8001 + dropped, 1000)
  while (lines.appendRecord(writer, record) !== null) t.ok(lines.pendingBytes < 8 * 1024 * 1024)
  t.equal(lines.take().dropped, 1)
})

t.test('[observe/log-store.16] a memory that keeps nothing uses the same pieces again', async t => {
  const lines = new LineBuffer(true, 0)
  const memory = new Set<ArrayBufferLike>()
  const line = 'x'.repeat(8000)
  for (let i = 0; i < 1000; i++) {
    lines.append(line)
    for (const view of lines.take().views) memory.add(view.buffer)
    lines.giveBack()
  }
  t.ok(memory.size <= 3, `${memory.size} pieces for 8 MB`)
})

t.test('[observe/log-store.2] the newest lines are kept, and those of an earlier run come first', async t => {
  for (const isWritten of [true, false]) {
    const lines = new LineBuffer(isWritten)
    lines.prepend(Buffer.from('old 1\nold 2\n'))
    lines.prepend(Buffer.alloc(0))
    lines.append('new')
    t.same([...lines.newestFirst()], ['new', 'old 2', 'old 1'])
    t.equal(textOf(lines.take()), isWritten ? 'new\n' : '', 'what is on the disk is not written again')
    lines.giveBack()
    const line = 'x'.repeat(1000)
    for (let i = 0; i < 5000; i++) {
      lines.append(`${i} ${line}`)
      lines.take()
      lines.giveBack()
    }
    const kept = [...lines.newestFirst()]
    t.equal(kept[0], `4999 ${line}`)
    const bytes = kept.reduce((sum, one) => sum + one.length + 1, 0)
    t.ok(bytes <= LOG_MEMORY_BYTES && bytes > LOG_MEMORY_BYTES / 2, `${bytes} bytes`)
  }
})

t.test('[observe/log-store.8] what waits is bounded, what found no room is counted', async t => {
  const lines = new LineBuffer(true)
  const line = 'x'.repeat(8000)
  for (let i = 0; i < 1000; i++) lines.append(line)
  const { views, dropped } = lines.take()
  const written = Buffer.concat(views).length / 8001
  t.equal(written + dropped, 1000)
  t.ok(dropped > 400, `${dropped} of 8 MB`)
  t.equal(lines.take().dropped, 0, 'told once')
  lines.append('again')
  t.equal(textOf(lines.take()), 'again\n')
})

t.test('[observe/log-store.5] bytes that the disk still reads are not used again', async t => {
  const lines = new LineBuffer(true)
  lines.append('first')
  const lent = lines.take()
  for (let i = 0; i < 300; i++) lines.append('y'.repeat(8000))
  t.equal(textOf(lent), 'first\n')
  lines.giveBack()
})
