import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { type ClientRequest, get } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { FNGW, startCli, toEnv } from '../helpers/cli.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { childrenOf, commandOf, descendantsOf, isRunning, placeOf } from '../helpers/processes.ts'
import { type HeldProgram, holdSockets } from './socket-holder.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(240_000)

const TREE = {
  'hello.js': "export const handler = () => ({ status: 200, body: 'hello' })\n",
  // Goes on until the test says so.
  'stream.js': `import { existsSync } from 'node:fs'
import { join } from 'node:path'
export async function handler({ query }) {
  async function* body() {
    yield 'begun '
    while (!existsSync(query.until)) await new Promise(done => setTimeout(done, 20))
    yield 'done'
  }
  return { status: 200, body: body() }
}
`,
  'fn.config.json': '{ "timeout_ms": 60000 }',
}

/** One request on a connection of its own. */
function ask(url: string, onChunk: (text: string) => void = () => {}): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const request: ClientRequest = get(url, { agent: false }, response => {
      let body = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk
        onChunk(body)
      })
      response.on('end', () => resolve({ status: response.statusCode!, body }))
      response.on('error', reject)
    })
    request.on('error', reject)
  })
}

/** A request and its first piece. */
function follow(url: string) {
  let begin = (): void => {}
  const begun = new Promise<void>(resolve => {
    begin = resolve
  })
  return { begun, answer: ask(url, begin) }
}

t.test(
  '[bin/production.1, bin/production.2, bin/production.3] a restart under load refuses no connection and finishes what runs',
  async t => {
    const tree = makeTree(TREE)
    t.teardown(tree.cleanup)
    const holder = await holdSockets(t, 'http')
    const url = `http://127.0.0.1:${holder.ports[0]}`
    // The stream goes on until the next one serves, which takes long on a busy machine.
    const env = { FN_RUNTIMES: 'node', FN_ACCESS_LOG: '0', FN_SHUTDOWN_TIMEOUT: '120' }
    const start = (): Promise<HeldProgram> => holder.start(['run', '.'], { cwd: tree.root, env })
    let running = await start()
    // Asked before anybody takes connections: it waits in the socket, then for the tree.
    t.same(await ask(`${url}/hello`), { status: 200, body: 'hello' })
    t.ok(await running.ready)
    t.match(holder.text(), new RegExp(`"event":"ready".*"url":"${url}"`), 'the address is that of the socket')

    let asked = 0
    let isOver = false
    t.teardown(() => {
      isOver = true
    })
    const failures: unknown[] = []
    const client = async (): Promise<void> => {
      while (!isOver) {
        asked++
        const answer = await ask(`${url}/hello`).catch(error => error)
        if (answer.status !== 200 || answer.body !== 'hello') failures.push(answer)
      }
    }
    const clients = Array.from({ length: 8 }, client)
    for (let restarts = 0; restarts < 3; restarts++) {
      const mark = `mark-${restarts}`
      const { answer: stream, begun } = follow(`${url}/stream?until=${tree.path(mark)}`)
      await begun
      const before = asked
      process.kill(running.pid, 'SIGTERM')
      // The next one starts while the last one still finishes.
      const next = await start()
      t.ok(await next.ready)
      while (asked < before + 50) await ask(`${url}/hello`)
      tree.write({ [mark]: '' })
      t.same(await stream, { status: 200, body: 'begun done' }, 'a stream that ran is finished')
      t.equal(await running.ended, 0)
      running = next
    }
    isOver = true
    await Promise.all(clients)
    t.same(failures, [], `${asked} requests`)
    process.kill(running.pid, 'SIGTERM')
    t.equal(await running.ended, 0)
    t.notMatch(holder.text(), /Warning|"level":"error"/)
  },
)

t.test(
  '[bin/production.2, bin/production.4] names, the socket of the control plane, and who gets none of them',
  async t => {
    const tree = makeTree(TREE)
    t.teardown(tree.cleanup)
    const holder = await holdSockets(t, 'http', 'control', 'more')
    const [first, control, second] = holder.ports.map(port => `http://127.0.0.1:${port}`)
    const running = await holder.start(['run', '.'], { cwd: tree.root, env: { FN_RUNTIMES: 'node' } })
    for (const url of [first, second]) {
      t.equal((await ask(`${url}/hello`)).status, 200)
      t.equal((await ask(`${url}/_fn/health`)).status, 404, 'the control plane is on its own socket alone')
    }
    t.same(JSON.parse((await ask(`${control}/_fn/health?ready=1`)).body), { ready: true })
    t.equal((await ask(`${control}/hello`)).status, 404)
    if (process.platform === 'linux') {
      const socketsOf = (pid: number) =>
        readdirSync(`/proc/${pid}/fd`).flatMap(fd => {
          const target = readlinkSync(`/proc/${pid}/fd/${fd}`)
          return target.startsWith('socket:') ? [target] : []
        })
      const handed = [3, 4, 5].map(fd => readlinkSync(`/proc/${running.pid}/fd/${fd}`))
      const [daemon, ...others] = childrenOf(running.pid)
      t.ok(daemon !== undefined)
      for (const pid of [daemon!, ...others, ...childrenOf(daemon!)]) {
        t.same(
          socketsOf(pid).filter(one => handed.includes(one)),
          [],
          'nothing below has the sockets',
        )
        t.notMatch(readFileSync(`/proc/${pid}/environ`, 'utf8'), /LISTEN_/)
      }
    }
    process.kill(running.pid, 'SIGTERM')
    t.equal(await running.ended, 0)
  },
)

const NO_ROOT =
  process.platform !== 'linux' || process.geteuid?.() !== 0 ? 'changing users needs Linux and root' : false

t.test('[bin/production.2] a gateway that runs as a user of its own gets the sockets', { skip: NO_ROOT }, async t => {
  const tree = makeTree({ 'hello.lua': 'function handler() return { status = 200, body = "hello" } end\n' })
  t.teardown(tree.cleanup)
  chmodSync(tree.root, 0o755)
  const holder = await holdSockets(t, 'http', 'control')
  const env = { FN_RUNTIMES: 'lua', FN_ISOLATION: 'user', FN_ISOLATION_FILES: 'close' }
  const running = await holder.start(['run', tree.root], { cwd: tree.root, env })
  const [everybody, control] = holder.ports.map(port => `http://127.0.0.1:${port}`)
  t.same(await ask(`${everybody}/hello`), { status: 200, body: 'hello' })
  t.equal((await ask(`${control}/_fn/health?ready=1`)).status, 200)
  process.kill(running.pid, 'SIGTERM')
  t.equal(await running.ended, 0)
})

t.test('[bin/production.4] sockets that cannot be used', async t => {
  const tree = makeTree(TREE)
  t.teardown(tree.cleanup)
  for (const [names, env, said] of [
    [['unix'], {}, /descriptor 3 is not a TCP socket.*ListenStream=/],
    [['control', 'control'], {}, /2 sockets are named control: one can be/],
  ] as const) {
    const holder = await holdSockets(t, ...names)
    const running = await holder.start(['run', '.'], { cwd: tree.root, env: { FN_RUNTIMES: 'node', ...env } })
    t.equal(await running.ended, 1)
    t.match(holder.text(), said)
    t.notMatch(holder.text(), /"event":"ready"/)
  }
})

t.test('[bin/production.5, gateway/gateway.18] a stop, step by step', async t => {
  const tree = makeTree({
    'slow.js': `import { existsSync, writeFileSync } from 'node:fs'
export async function handler({ query }) {
  writeFileSync(query.folder + '/begun', '')
  while (!existsSync(query.folder + '/go')) await new Promise(done => setTimeout(done, 20))
  return { status: 200, body: 'finished' }
}
`,
    'tick/handler.js': `import { appendFileSync } from 'node:fs'
export const handler = ({ query }) => { appendFileSync(query.folder + '/ticks', 'x'); return 1 }
`,
    'fn.config.json': '{ "timeout_ms": 60000 }',
    ticks: '',
  })
  t.teardown(tree.cleanup)
  tree.write({
    'tick/fn.config.json': { json: { schedule: { enabled: true, every_seconds: 1, query: { folder: tree.root } } } },
  })
  const ticks = () => readFileSync(tree.path('ticks'), 'utf8').length
  const args = ['run', '.', '--port', '0', '--log-files', '--shutdown-delay-ms', '3000']
  const env = { FN_RUNTIMES: 'node', FN_SHUTDOWN_TIMEOUT: '60', FN_CONSOLE_WRITE_ENABLED: '1' }
  const fngw = await startCli(args, { cwd: tree.root, env })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  const made = await fetch(`${fngw.url}/_fn/jobs`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ name: 'tick', delay_ms: 3_600_000 }),
  })
  t.equal(made.status, 201)
  const job = (await made.json()) as { id: string }
  const slow = ask(`${fngw.url}/slow?folder=${tree.root}`)
  await waitUntil(() => existsSync(tree.path('begun')) && ticks() >= 1, 'the request and the schedule run')
  const below = allBelow(fngw.child.pid!)
  t.ok(below.length >= 2)

  fngw.child.kill('SIGTERM')
  const ready = () => ask(`${fngw.url}/_fn/health?ready=1`).catch(() => null)
  let answer = await ready()
  while (answer?.status === 200) answer = await ready()
  t.match(answer, { status: 503, body: /the gateway is stopping/ }, 'first it is not ready, and still answers')
  const ticked = ticks()
  while (answer !== null) answer = await ready()
  t.pass('then nothing is accepted')
  t.equal(fngw.child.exitCode, null, 'while a request runs')
  t.ok(ticks() <= ticked + 1, 'no schedule began meanwhile')
  tree.write({ go: '' })
  t.same(await slow, { status: 200, body: 'finished' })
  t.same(await fngw.ended, { code: 0, signal: null })
  t.same(below.filter(isRunning), [], 'workers and daemons have ended')
  t.match(readFileSync(tree.path('.svc/logs/access.log'), 'utf8'), /"path":"\/slow"/, 'logs are on disk')
  const states = JSON.parse(readFileSync(tree.path('.svc/scheduler-state.json'), 'utf8')) as object
  t.match(JSON.stringify(states), /tick/, 'states of schedules too')

  const again = await startCli(['run', '.', '--port', '0'], { cwd: tree.root, env })
  t.teardown(() => void again.child.kill('SIGKILL'))
  t.match(JSON.parse((await ask(`${again.url}/_fn/jobs/${job.id}`)).body), { id: job.id, status: 'queued' })
  again.child.kill('SIGTERM')
  t.same(await again.ended, { code: 0, signal: null })
})

/** Every process below that one. */
function allBelow(pid: number): number[] {
  return childrenOf(pid).flatMap(child => [child, ...allBelow(child)])
}

const UNITS = ['fngw.service', 'fngw.socket', 'fngw-control.socket']

function readUnit(name: string): string {
  return readFileSync(new URL(`../../examples/deploy/systemd/${name}`, import.meta.url), 'utf8')
}

/** The value of a line `key=value` of a unit. */
function entryOf(unit: string, key: string): string {
  return new RegExp(`^${key}=(.*)$`, 'm').exec(unit)![1]!
}

t.test('[bin/production.7] the units start a gateway, and say when it is ready', async t => {
  const tree = makeTree(TREE)
  t.teardown(tree.cleanup)
  const [service, ...sockets] = UNITS.map(readUnit)
  const holder = await holdSockets(t, ...sockets.map(unit => entryOf(unit, 'FileDescriptorName')))
  // The ports of the units are those of this machine here, and the folder is the test's.
  const ports = new Map(sockets.map((unit, at) => [/\d+$/.exec(entryOf(unit, 'ListenStream'))![0], holder.ports[at]!]))
  const toArgs = (line: string): string[] => {
    const [program, ...words] = line.split(' ')
    t.equal(program, '/usr/local/bin/fngw')
    return words.map(word => (word.startsWith('/') ? tree.root : String(ports.get(word) ?? word)))
  }
  const nice = /^Environment=FN_WORKER_NICE=(\d+)$/m.exec(service!)![1]!
  t.equal(entryOf(service!, 'CPUWeight'), '100', 'others on the machine are not concerned')
  const env = { FN_RUNTIMES: 'node', FN_WORKER_NICE: nice }
  const running = await holder.start(toArgs(entryOf(service!, 'ExecStart')), { cwd: tree.root, env })
  const started = await startToEnd(toArgs(entryOf(service!, 'ExecStartPost')), tree.root)
  t.same(started, { code: 0, stdout: 'ready\n', stderr: '' })
  t.equal((await ask(`http://127.0.0.1:${holder.ports[0]}/hello`)).status, 200)
  const functions = descendantsOf(running.pid)
  t.ok(functions.length > 1)
  const expected = Math.min(19, placeOf(running.pid).nice + Number(nice))
  for (const pid of functions) t.equal(placeOf(pid).nice, expected, commandOf(pid))
  process.kill(running.pid, 'SIGTERM')
  t.equal(await running.ended, 0)
  const stopSeconds = Number(/FN_SHUTDOWN_TIMEOUT=(\d+)/.exec(service!)![1])
  t.ok(Number(entryOf(service!, 'TimeoutStopSec')) > stopSeconds, 'systemd waits longer than the gateway')
})

const CHECKER = findOnPath('systemd-analyze', process.env.PATH ?? '')

t.test(
  '[bin/production.7] systemd understands the units',
  { skip: CHECKER === null && 'systemd-analyze is not installed' },
  async t => {
    const tree = makeTree()
    t.teardown(tree.cleanup)
    // Program and user of the machine that it is for are not here.
    const toLocal = (unit: string) =>
      unit.replaceAll('/usr/local/bin/fngw', '/bin/true').replace(/^User=.*/m, 'User=root')
    tree.write(Object.fromEntries(UNITS.map(name => [name, toLocal(readUnit(name))])))
    const verify = () =>
      spawnSync(CHECKER!, ['verify', '--man=no', ...UNITS.map(name => tree.path(name))], { encoding: 'utf8' })
    t.equal(verify().stderr, '')
    tree.write({ 'fngw.service': toLocal(readUnit('fngw.service')).replace('KillMode=mixed', 'KillMode=mixd') })
    t.match(verify().stderr, /mixd/, 'and would tell what is wrong')
  },
)

/** Runs a command while others run. */
async function startToEnd(args: readonly string[], cwd: string) {
  const child = spawn(FNGW[0], [...FNGW.slice(1), ...args], {
    cwd,
    env: toEnv({}),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  return { code: code as number, stdout, stderr }
}

t.test('[bin/production.6, bin/dev.7] a manager that cannot be told is a line of the log', async t => {
  const tree = makeTree({ 'hello.lua': 'function handler() return 1 end\n' })
  t.teardown(tree.cleanup)
  const env = { FN_RUNTIMES: 'lua', NOTIFY_SOCKET: tree.path('nobody'), PATH: '/nowhere' }
  const fngw = await startCli(['run', '.', '--port', '0'], { cwd: tree.root, env })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  fngw.child.kill('SIGTERM')
  t.same(await fngw.ended, { code: 0, signal: null })
  const logged = fngw.stderr().trim().split('\n')
  t.match(
    logged.map(line => JSON.parse(line) as object),
    [{ msg: /^serving/ }, { msg: /systemd-notify is not installed/ }, { msg: /^SIGTERM/ }],
  )
})

t.test('[bin/production.1] PORT, as platforms give it', async t => {
  const tree = makeTree(TREE)
  t.teardown(tree.cleanup)
  const free = createServer().listen(0, '127.0.0.1')
  await new Promise(done => free.once('listening', done))
  const { port } = free.address() as AddressInfo
  await new Promise(done => free.close(done))
  const fngw = await startCli(['run'], { cwd: tree.root, env: { PORT: String(port), FN_RUNTIMES: 'node' } })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  t.equal(fngw.url, `http://127.0.0.1:${port}`)
  fngw.child.kill('SIGTERM')
  t.same(await fngw.ended, { code: 0, signal: null })
})
