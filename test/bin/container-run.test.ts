import { PassThrough, Writable } from 'node:stream'
import t, { type Test } from 'tap'
import { DevContainer } from '../../bin/container-run.ts'
import { type FakeSettings, makeFakeDocker } from './fake-docker.ts'

/** What runs in a container here: tells when it began, echoes keys, ends with its input. */
const ECHO = `
  process.stdout.write('begun\\n')
  process.stderr.write('words\\n')
  process.stdin.on('data', data => process.stdout.write('key ' + data + '\\n'))
  process.stdin.on('end', () => { process.stdout.write('drained\\n'); process.exitCode = 3 })`
const DEAF = "process.stdout.write('begun\\n'); process.stdin.resume(); setInterval(() => {}, 1000)"
const GRACE_MS = 60_000

interface Given extends FakeSettings {
  graceMs?: number
  stdout?: Writable
}

function open(t: Test, { graceMs = GRACE_MS, stdout, ...settings }: Given = {}) {
  const fake = makeFakeDocker({ inside: [process.execPath, '-e', ECHO, '--'], ...settings })
  t.teardown(fake.cleanup)
  const out = new PassThrough()
  const err = new PassThrough()
  const lines: string[] = []
  const waiting = new Map<string, () => void>()
  const container = new DevContainer({
    program: fake.program,
    name: 'one',
    env: { ...process.env, ...fake.env, FN_HOST: '0.0.0.0' },
    stdout: stdout ?? out,
    stderr: err,
    graceMs,
    onLine: line => {
      lines.push(line)
      waiting.get(line)?.()
    },
  })
  t.teardown(() => container.kill())
  /** Resolves at a line of standard output. */
  const line = (text: string) =>
    lines.includes(text) ? Promise.resolve() : new Promise<void>(resolve => waiting.set(text, resolve))
  const create = () =>
    container.create(['--name', 'one', '--env', 'FN_HOST', '--publish=127.0.0.1:1:8080', 'image', 'dev'])
  const textOf = (stream: PassThrough) => String(stream.read() ?? '')
  return { fake, container, create, line, out: () => textOf(out), err: () => textOf(err) }
}

t.setTimeout(120_000)

t.test('[bin/container.7, bin/container.9] output by itself, keys, and the end of its input', async t => {
  const { fake, container, create, line, out, err } = open(t)
  await create()
  const ended = container.start()
  await line('begun')
  t.equal(fake.containers().length, 1)
  container.send('r')
  await line('key r')
  container.stop()
  container.stop()
  container.send('l')
  t.equal(await ended, 3, 'its own exit code')
  await container.remove()
  t.same([out(), err()], ['begun\nkey r\ndrained\n', 'words\n'])
  t.same(fake.containers(), [])
  t.same(
    fake.calls().map(([command]) => command),
    ['create', 'start', 'rm'],
  )
})

t.test('[bin/container.9] killed at once', async t => {
  const { fake, container, create, line } = open(t, { inside: [process.execPath, '-e', DEAF, '--'] })
  await create()
  const ended = container.start()
  await line('begun')
  container.stop()
  await container.kill()
  t.equal(await ended, 137)
  t.same(fake.containers(), [])
})

t.test('[bin/container.10] one that does not end is killed when its time is over', async t => {
  const { fake, container, create, line } = open(t, { inside: [process.execPath, '-e', DEAF, '--'], graceMs: 1 })
  await create()
  const ended = container.start()
  await line('begun')
  container.stop()
  t.equal(await ended, 137)
  await container.remove()
  t.same(fake.containers(), [])
})

t.test('[bin/container.9] a stop before it is started', async t => {
  const before = open(t)
  await before.create()
  before.container.stop()
  t.equal(await before.container.start(), 0)
  await before.container.remove()
  t.same(before.fake.containers(), [])
  t.same(
    before.fake.calls().map(([command]) => command),
    ['create', 'rm'],
  )

  // As while an image is fetched.
  const during = open(t, { hangs: 'create' })
  const created = during.create()
  while (during.fake.containers().length === 0) await new Promise(setImmediate)
  during.container.stop()
  await created
  t.equal(await during.container.start(), 0)
  await during.container.remove()
  t.same(during.fake.containers(), [])
})

t.test('[bin/container.2] a container that cannot be made', async t => {
  const { create, container, err } = open(t, { createError: 'Error: image not known' })
  await t.rejects(create(), { message: /cannot make a container: Error: image not known$/, exitCode: 1 })
  t.equal(err(), 'Trying to pull image...\n', 'what the client says while it works; its last line is in the message')
  await container.remove()
  const missing = new DevContainer({
    ...{ program: '/none', name: 'one', env: {}, graceMs: 1, onLine: () => {} },
    ...{ stdout: new PassThrough(), stderr: new PassThrough() },
  })
  await t.rejects(missing.create([]), { message: 'cannot run /none: spawn /none ENOENT', exitCode: 1 })
  await missing.remove()
})

t.test('[bin/container.7] a reader that is gone does not stop it', async t => {
  const gone = new Writable({ write: (_chunk, _encoding, done) => done(new Error('EPIPE')) })
  gone.on('error', () => {})
  const { container, create, line } = open(t, { stdout: gone })
  await create()
  const ended = container.start()
  await line('begun')
  container.send('x')
  await line('key x')
  container.stop()
  t.equal(await ended, 3)
})
