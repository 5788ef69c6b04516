import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import t from 'tap'
import { toLogLine, toPrintable } from '../../lib/observe/log-line.ts'
import { LogStore, type LogStoreOptions } from '../../lib/observe/log-store.ts'
import { OutputBudget } from '../../lib/observe/function-output.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'
import { LOG_MEMORY_BYTES, MAX_LOG_LINE_BYTES } from '../../lib/observe/line-buffer.ts'

type Teardown = { teardown: (fn: () => void) => void }

function setup(t: Teardown, options: Partial<LogStoreOptions> = {}) {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const problems: string[] = []
  const clock = new FakeClock()
  const directory = tree.path('.svc/logs')
  const folder = new OwnFolder(tree.root, '.svc', 'logs')
  const make = () => new LogStore({ clock, directory: folder, onProblem: text => problems.push(text), ...options })
  const read = (file: string) => readFileSync(`${directory}/${file}`, 'utf8')
  return { tree, problems, clock, directory, make, read, store: make() }
}

const OUTPUT = { runtime: 'node', fn: 'hello', version: 'default', stream: 'stdout' as const, text: 'x' }

t.test('[observe/log-store.1, observe/log-store.5] lines go to their files, in batches and in order', async t => {
  const { store, clock, directory, read } = setup(t)
  await store.open()
  for (let i = 0; i < 100; i++) store.append('access', `line ${i}`)
  store.error('warn', 'careful')
  t.equal(existsSync(`${directory}/access.log`), false, 'not yet')
  clock.advance(100)
  await store.flush()
  t.equal(read('access.log'), Array.from({ length: 100 }, (_, i) => `line ${i}\n`).join(''))
  t.match(read('error.log'), /^\d{4}-\d\d-\d\dT[\d:.]+Z warn careful\n$/)
  t.equal(existsSync(`${directory}/runtime.log`), false)
  t.equal(statSync(`${directory}/access.log`).mode & 0o777, 0o600)
  store.append('access', 'a')
  const first = store.flush()
  store.append('access', 'b')
  const second = store.flush()
  store.append('access', 'c')
  await Promise.all([first, second, store.close()])
  t.ok(read('access.log').endsWith('line 99\na\nb\nc\n'))
  store.append('access', 'after the close')
  t.equal(clock.pending, 0)
  t.same(store.tail({ file: 'access', lines: 2 }), ['c', 'after the close'])
})

t.test('[observe/log-store.1, observe/log-store.2] memory only, and the newest lines', async t => {
  const { store, directory } = setup(t, { directory: null })
  await store.open()
  const line = (i: number) => `${i} ${'x'.repeat(i % 2000)} é`
  for (let i = 0; i < 5000; i++) store.append('error', line(i))
  await store.close()
  t.equal(existsSync(directory), false)
  const all = store.tail({ file: 'error', lines: 10_000 })
  t.same(
    all,
    all.map((_, index) => line(5000 - all.length + index)),
  )
  const bytes = Buffer.byteLength(all.join('\n'))
  t.ok(bytes <= LOG_MEMORY_BYTES && bytes > LOG_MEMORY_BYTES / 2, `${bytes} bytes`)
  t.same(store.tail({ file: 'error', lines: 2 }), [line(4998), line(4999)])
  t.same(store.tail({ file: 'access', lines: 2 }), [])
})

t.test('[observe/log-store.2] a restart remembers', async t => {
  const { store, make, directory } = setup(t)
  store.append('runtime', 'one')
  store.append('runtime', 'two')
  await store.close()
  const next = make()
  next.append('runtime', 'before it was open')
  await next.open()
  next.append('runtime', 'three')
  t.same(next.tail({ file: 'runtime', lines: 10 }), ['one', 'two', 'before it was open', 'three'])
  await next.close()
  writeFileSync(`${directory}/access.log`, `${`${'x'.repeat(1000)}\n`.repeat(1000)}last\nhalf a line`)
  const third = make()
  await third.open()
  const lines = third.tail({ file: 'access', lines: 10_000 })
  t.equal(lines.at(-1), 'last')
  t.ok(lines.length > 200 && lines.length < 300, 'the last 256 KiB')
  t.ok(
    lines.slice(0, -1).every(line => line.length === 1000),
    'whole lines',
  )
})

t.test('[observe/log-store.3] one bounded, readable line each', async t => {
  t.equal(toPrintable('plain é €'), 'plain é €')
  t.equal(toPrintable('a\r\nb\tc\u0000\u001b[31m\u009b\u2028\u202e'), 'a\\r\\nb  c\\x00\\x1b[31m\\x9b\\u2028\\u202e')
  for (const text of ['x'.repeat(100_000_000), '€'.repeat(5000), '\u0000'.repeat(8000), '\ud83d\ude00'.repeat(3000)]) {
    const line = toLogLine(text)
    t.ok(Buffer.byteLength(line) <= MAX_LOG_LINE_BYTES)
    t.match(line, /\.\.\. \(cut\)$/)
    t.notMatch(line, /\ufffd|[\u0000-\u001f]/)
  }
  t.equal(toLogLine('x'.repeat(MAX_LOG_LINE_BYTES)).length, MAX_LOG_LINE_BYTES)
  const { store, read } = setup(t)
  store.append('error', 'a\nb')
  store.append('error', '\ud800 lone')
  await store.close()
  t.equal(read('error.log'), 'a\\nb\n\ufffd lone\n')
})

t.test('[observe/log-store.4] captured output and its filters', async t => {
  const { store, read } = setup(t)
  store.output({ ...OUTPUT, text: 'one\ntwo\r\n\nthree' })
  store.output({ ...OUTPUT, stream: 'stderr', text: 'oops\n' })
  store.output({
    ...OUTPUT,
    fn: 'api/users',
    version: 'v2',
    runtime: 'php',
    text: '[node] [fn:hello@default stderr] forged',
  })
  await store.close()
  const texts = (filters: object) =>
    store.tail({ file: 'runtime', lines: 100, ...filters }).map(line => line.replace(/^\S+ /, ''))
  t.same(texts({}), [
    '[node] [fn:hello@default stdout] one',
    '[node] [fn:hello@default stdout] two',
    '[node] [fn:hello@default stdout] ',
    '[node] [fn:hello@default stdout] three',
    '[node] [fn:hello@default stderr] oops',
    '[php] [fn:api/users@v2 stdout] [node] [fn:hello@default stderr] forged',
  ])
  t.equal(read('runtime.log').split('\n').length, 7)
  for (const [filters, count] of [
    [{ stream: 'stderr' }, 1],
    [{ fn: 'hello' }, 5],
    [{ fn: 'hell' }, 0],
    [{ runtime: 'php' }, 1],
    [{ version: 'v2', fn: 'api/users' }, 1],
    [{ version: 'v2', fn: 'hello' }, 0],
  ] as const)
    t.equal(texts(filters).length, count, JSON.stringify(filters))
})

t.test('[observe/log-store.6] files are rotated', async t => {
  const { store, make, directory, read } = setup(t, { maxFileBytes: 100, keptFiles: 2 })
  for (let i = 0; i < 10; i++) {
    store.append('access', `${i}`.repeat(60))
    await store.flush()
  }
  t.same(readdirSync(directory).sort(), ['access.log', 'access.log.1', 'access.log.2'])
  t.match(read('access.log'), /^9+\n$/)
  t.match(read('access.log.1'), /^8+\n$/)
  t.match(read('access.log.2'), /^7+\n$/)
  const next = make()
  await next.open()
  next.append('access', 'x'.repeat(60))
  await next.close()
  t.match(read('access.log'), /^x+\n$/, 'the size is known after a restart')
})

t.test('[observe/log-store.7] a disk that cannot be written', async t => {
  const { tree, store, problems, directory, read } = setup(t)
  writeFileSync(tree.path('.svc'), 'a file where the folder should be')
  await store.open()
  for (let i = 0; i < 5; i++) {
    store.append('access', `line ${i}`)
    await store.flush()
  }
  t.equal(problems.filter(text => text.startsWith('access log')).length, 1)
  t.match(
    problems.join(),
    /access log cannot be written, its lines are kept in memory only: \.svc is a file, not a folder/,
  )
  t.equal(store.tail({ file: 'access', lines: 10 }).length, 5)
  rmSync(tree.path('.svc'))
  store.append('access', 'again')
  await store.flush()
  t.equal(read('access.log'), 'again\n')
  rmSync(directory, { recursive: true })
  writeFileSync(directory, '')
  store.append('access', 'gone')
  await store.close()
  t.equal(problems.filter(text => text.startsWith('access log')).length, 2, 'told again after it worked')
  chmodSync(directory, 0o600)
})

t.test('[observe/log-store.8] a slow disk does not fill the memory', async t => {
  const { store, read } = setup(t)
  const line = 'x'.repeat(8000)
  for (let i = 0; i < 700; i++) store.append('access', line)
  await store.close()
  const lines = read('access.log').split('\n')
  t.ok(lines.length < 580, 'what is on its way to the disk, and 4 MiB behind it')
  t.match(lines.at(-2), /^\.\.\. \d+ lines were dropped: the disk is too slow$/)
})

t.test('[observe/log-store.11] so many lines of one function, and a word about the rest', async t => {
  const clock = new FakeClock()
  const budget = new OutputBudget(clock)
  t.equal(budget.take('calm', 'a\nb'), 'a\nb')
  t.equal(budget.take('flood', '\n'.repeat(9_999)), '\n'.repeat(9_999))
  t.equal(budget.take('flood', 'last\none too many\n'), 'last\n[more than 2000 lines a second: output dropped]\n')
  t.equal(budget.take('flood', 'x\n'.repeat(50)), '', 'nothing while the flood goes on')
  t.equal(budget.take('calm', 'c\n'), 'c\n', 'another function has its own')
  clock.advance(1)
  t.equal(budget.take('flood', 'y\nz\n'), '[113 characters of output dropped]\ny\nz\n')
  t.equal(budget.take('flood', 'x\n'), '')
  clock.advance(3_600_000)
  const whole = '\n'.repeat(10_000)
  t.equal(budget.take('flood', whole), `[2 characters of output dropped]\n${whole}`)
  t.equal(budget.take('flood', '\n'), '')
})

t.test(
  '[observe/log-store.12, files/own-folder.8] a link, pipe or folder in the place of a log is not written to',
  async t => {
    for (const kind of ['link', 'dangling', 'pipe', 'folder', 'svc link', 'logs link']) {
      const { store, tree, directory, problems, make } = setup(t)
      tree.write({ 'outside/access.log': 'precious\n', 'outside/logs/access.log': 'precious\n' })
      if (!kind.endsWith(' link')) mkdirSync(directory, { recursive: true })
      const path = `${directory}/access.log`
      if (kind === 'link') symlinkSync(tree.path('outside/access.log'), path)
      if (kind === 'dangling') symlinkSync(tree.path('outside/new.log'), path)
      if (kind === 'pipe') t.equal(spawnSync('mkfifo', [path]).status, 0)
      if (kind === 'folder') mkdirSync(path)
      if (kind === 'svc link') symlinkSync(tree.path('outside'), tree.path('.svc'))
      if (kind === 'logs link') {
        mkdirSync(tree.path('.svc'))
        symlinkSync(tree.path('outside'), directory)
      }
      await store.open()
      store.append('access', 'of a client')
      await store.close()
      const problem = problems.find(text => text.startsWith('access log'))
      t.match(problem, /^access log cannot be written, .*: (?:access\.log|\.svc|\.svc[/\\]logs) is /, kind)
      t.same(store.tail({ file: 'access', lines: 2 }), ['of a client'], 'kept in memory')
      t.same(readdirSync(tree.path('outside')).sort(), ['access.log', 'logs'])
      for (const file of ['access.log', 'logs/access.log'])
        t.equal(readFileSync(tree.path(`outside/${file}`), 'utf8'), 'precious\n', kind)
      const next = make()
      await next.open()
      t.same(next.tail({ file: 'access', lines: 2 }), [], 'nothing is read through it either')
      await next.close()
    }
  },
)

t.test('[observe/log-store.19] who follows a log hears every line that matches, from then on', async t => {
  const { store } = setup(t, { directory: null })
  const heard: string[] = []
  store.output({ ...OUTPUT, text: 'before' })
  const stop = store.follow({ file: 'runtime', fn: 'hello' }, line => heard.push(line.replace(/^\S+ /, '')))
  const all: string[] = []
  const stopAll = store.follow({ file: 'runtime' }, line => all.push(line))
  store.output({ ...OUTPUT, text: 'one\ntwo\u001b[2J' })
  store.output({ ...OUTPUT, fn: 'other', text: 'other' })
  store.append('error', 'another file')
  stop()
  stop()
  store.output({ ...OUTPUT, text: 'after' })
  t.same(heard, ['[node] [fn:hello@default stdout] one', '[node] [fn:hello@default stdout] two\\x1b[2J'])
  t.equal(all.length, 4)
  stopAll()
  const lines: string[] = []
  store.follow({ file: 'access' }, line => lines.push(line))
  const writer = {
    write: (text: string, bytes: Buffer, from: number) => from + bytes.write(text, from),
  }
  for (const text of ['{"a":"é"}', '{"b":2}']) store.access(writer as never, text as never)
  store.accessLines(Buffer.from('{"c":3}\n{"d":"é"}\n'))
  t.same(lines, ['{"a":"é"}', '{"b":2}', '{"c":3}', '{"d":"é"}'])
})
