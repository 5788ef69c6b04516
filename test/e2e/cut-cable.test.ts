import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import type { Gateway } from '../../lib/index.ts'
import { FNGW, toEnv } from '../helpers/cli.ts'
import { gatewayAt, SECRET } from '../helpers/remote-bed.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

// The daemon is in a network namespace of its own, behind a cable of two ends. Cut, it swallows every packet: each end
// sends to a card that nobody has.
const PID = process.pid
const SPACE = `fngw${PID}`
const [HERE, THERE] = [`fc${PID}a`, `fc${PID}b`]
/** Of the block for tests of devices, 198.18.0.0/15. */
const NET = `198.18.${PID % 250}`
const NOBODY = '02:00:00:00:00:99'

function ip(...args: string[]): string | null {
  const { status, stderr } = spawnSync('ip', args, { encoding: 'utf8' })
  return status === 0 ? null : `ip ${args.join(' ')}: ${stderr || 'is not installed'}`
}

/** @returns why there is no such network here; null when it is made */
function makeNetwork(): string | null {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'network namespaces need Linux and root'
  const steps: string[][] = [
    ['netns', 'add', SPACE],
    ['link', 'add', HERE, 'type', 'veth', 'peer', 'name', THERE, 'netns', SPACE],
    ['addr', 'add', `${NET}.1/30`, 'dev', HERE],
    ['link', 'set', HERE, 'up'],
    ['-n', SPACE, 'addr', 'add', `${NET}.2/30`, 'dev', THERE],
    ['-n', SPACE, 'link', 'set', THERE, 'up'],
    ['-n', SPACE, 'link', 'set', 'lo', 'up'],
  ]
  for (const step of steps) {
    const problem = ip(...step)
    if (problem === null) continue
    removeNetwork()
    return problem
  }
  return null
}

function removeNetwork(): void {
  ip('netns', 'del', SPACE)
  ip('link', 'del', HERE)
}

function cut(): void {
  for (const [where, address] of [
    [['dev', HERE], `${NET}.2`],
    [['dev', THERE], `${NET}.1`],
  ] as const) {
    const space = where[1] === THERE ? ['-n', SPACE] : []
    const problem = ip(...space, 'neigh', 'replace', address, 'lladdr', NOBODY, ...where, 'nud', 'permanent')
    if (problem !== null) throw new Error(problem)
  }
}

function mend(): void {
  ip('neigh', 'del', `${NET}.2`, 'dev', HERE)
  ip('-n', SPACE, 'neigh', 'del', `${NET}.1`, 'dev', THERE)
}

/** Notes each run in a file, then waits for as long as it is told. */
const COUNT = `const fs = require('node:fs')
exports.handler = async e => {
  fs.appendFileSync(__dirname + '/../.runs', e.query.n + '\\n')
  if (e.query.wait) await new Promise(done => setTimeout(done, Number(e.query.wait)))
  return e.query.n
}`

interface Far {
  tree: Tree
  uri: string
  child: ChildProcess
  stderr: () => string
  /** Numbers of the calls that ran, each time they did. */
  runs: () => string[]
}

async function startFar(t: Test): Promise<Far> {
  const tree = makeTree({
    'count/handler.js': COUNT,
    'count/fn.config.json': { json: { name: 'count', timeout_ms: 1500, max_concurrency: 50 } },
  })
  const args = [...FNGW, 'daemon', 'node', '--listen', `tcp://${NET}.2:9001`, '--functions', tree.root]
  const child = spawn('ip', ['netns', 'exec', SPACE, ...args], {
    env: toEnv({ FN_RUNTIME_SECRET: SECRET }),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const ended = new Promise(resolve => child.once('close', resolve))
  t.teardown(async () => {
    child.kill('SIGTERM')
    await ended
    tree.cleanup()
  })
  let stderr = ''
  child.stderr.on('data', bytes => {
    stderr += bytes
  })
  const runs = (): string[] =>
    existsSync(tree.path('.runs')) ? readFileSync(tree.path('.runs'), 'utf8').split('\n').filter(Boolean) : []
  for await (const line of createInterface({ input: child.stdout }))
    return { tree, uri: line.replace('ready ', ''), child, stderr: () => stderr, runs }
  throw new Error(stderr)
}

const problem = makeNetwork()
t.teardown(removeNetwork)

interface Answered {
  n: string
  status: number
  ms: number
}

async function call(gateway: Gateway, n: string, wait = 0): Promise<Answered> {
  const startedAt = performance.now()
  const { status } = await gateway.inject(`/count?n=${n}${wait === 0 ? '' : `&wait=${wait}`}`)
  return { n, status, ms: performance.now() - startedAt }
}

t.test(
  '[remote/daemon-server.7, remote/daemon-server.9] a cut cable: bounded errors, recovery by itself, and nothing is run twice',
  { skip: problem ?? false, timeout: 150_000 },
  async t => {
    const far = await startFar(t)
    const { gateway } = await gatewayAt(t, far.tree, { node: [far.uri] })
    const isUp = () => !JSON.stringify(gateway.health()).includes('"up":false')
    const answers: Answered[] = []
    for (const n of ['a1', 'a2', 'a3']) answers.push(await call(gateway, n))
    t.same([...new Set(answers.map(({ status }) => status))], [200])

    // Some run when it happens, some are sent into it, and some come while nobody has noticed.
    const running = ['b1', 'b2', 'b3'].map(n => call(gateway, n, 60_000))
    await until(() => far.runs().filter(n => n.startsWith('b')).length === 3, 15_000)
    cut()
    const sent = ['c1', 'c2', 'c3', 'c4'].map(n => call(gateway, n))
    const cutOff = [...(await Promise.all(running)), ...(await Promise.all(sent))]
    for (const { n, status } of cutOff) t.ok([503, 504].includes(status), `${n} got ${status}`)
    t.equal(cutOff[0]!.status, 504, 'what ran is given up at its time limit')
    await until(() => !isUp(), 30_000)
    const late = await call(gateway, 'd1')
    const later = await Promise.all(['d2', 'd3'].map(n => call(gateway, n)))
    for (const { n, status } of [late, ...later]) t.equal(status, 503, n)
    t.match(
      JSON.stringify(gateway.health()),
      /no answer for 8 s|no answer to hello|reconnecting|EHOSTUNREACH|ETIMEDOUT/,
    )
    await until(() => far.stderr().includes(`the gateway at ${NET}.1 is gone`), 30_000)

    mend()
    const mendedAt = performance.now()
    await until(async () => (await call(gateway, 'e')).status === 200, 60_000)
    const backMs = performance.now() - mendedAt
    for (const n of ['f1', 'f2', 'f3']) answers.push(await call(gateway, n))
    const all = [...answers, ...cutOff, late, ...later]
    const runs = far.runs().filter(n => n !== 'e')
    t.same(new Set(runs).size, runs.length, 'no call ran twice')
    for (const { n, status } of all) if (status === 200) t.ok(runs.includes(n), `${n} was answered and ran`)
    for (const n of ['c1', 'd1', 'd2', 'd3']) t.notOk(runs.includes(n), `${n} did not run late`)
    t.equal(far.child.exitCode, null)
    const figures = (list: readonly Answered[]) => list.map(({ n, status, ms }) => `${n} ${status} ${ms.toFixed(0)} ms`)
    t.comment(figures([...cutOff, late, ...later]).join(', '))
    t.comment(`served again ${backMs.toFixed(0)} ms after it was mended`)
  },
)

t.test(
  '[remote/daemon-server.9] a cut that nobody notices in time is over as if it had not been',
  { skip: problem ?? false, timeout: 100_000 },
  async t => {
    const far = await startFar(t)
    const { gateway } = await gatewayAt(t, far.tree, { node: [far.uri] })
    t.equal((await call(gateway, 'a')).status, 200)
    cut()
    const lost = await call(gateway, 'b')
    t.ok([503, 504].includes(lost.status), `got ${lost.status} after ${lost.ms.toFixed(0)} ms`)
    mend()
    await until(async () => (await call(gateway, 'e')).status === 200, 40_000)
    const runs = far.runs().filter(n => n !== 'e')
    t.equal(new Set(runs).size, runs.length, 'no call ran twice')
  },
)
