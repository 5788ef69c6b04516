import { existsSync, readFileSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { spawnSync } from 'node:child_process'
import t from 'tap'
import { ownMark } from '../../lib/files/root-lock.ts'
import { runCli } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

const LUA = { FN_RUNTIMES: 'lua' }

interface Report {
  checks: { id: string; status: string; message: string; fix: string | null }[]
  fixed: string[]
}

/** The mark of a process that has ended. */
function deadMark(): object {
  const { pid } = spawnSync('true')
  return { ...ownMark(), pid, started: '1' }
}

t.test('[bin/doctor.1, bin/doctor.2] lines, exit codes, and a port that is taken', async t => {
  const tree = makeTree({ 'good.lua': 'function handler() return 1 end\n' })
  t.teardown(tree.cleanup)
  const taken = createServer()
  await new Promise<void>(done => taken.listen(0, '127.0.0.1', done))
  t.teardown(() => taken.close())
  const { port } = taken.address() as AddressInfo
  const looked = runCli(['doctor', '.', '--no-load', '--port', String(port)], { cwd: tree.root, env: LUA })
  t.match(looked.stdout, /^ok +runtime\.lua\.version .*1 function$/m)
  t.match(looked.stdout, /^warning +port\.public .*another program has it\n +fix: .*FN_PORT/m)
  t.ok(looked.status === 1 || looked.status === 2, `${looked.status}`)

  tree.write({ 'bad.lua': 'function handler( return\n' })
  const loaded = runCli(['doctor', '.', '--json'], { cwd: tree.root, env: LUA })
  const { checks } = JSON.parse(loaded.stdout) as Report
  t.match(
    checks.filter(({ id }) => id === 'function.load'),
    [{ message: '1 function loaded' }, { status: 'error', message: /bad\.lua:1/ }],
  )
  t.equal(loaded.status, 2)
  t.notOk(existsSync(tree.path('.svc')), 'nothing is written')

  const wrong = runCli(['doctor', '.', '--json'], { cwd: tree.root, env: { FN_PORT: 'many' } })
  t.match((JSON.parse(wrong.stdout) as Report).checks, [{ id: 'settings.value', status: 'error', message: /many/ }])
  t.equal(wrong.status, 2)
})

t.test('[bin/doctor.3] --fix removes what a killed gateway left, and nothing else', async t => {
  const lock = { ...deadMark(), id: '0123456789abcdef', since: 1 }
  const record = { ...deadMark(), url: 'http://127.0.0.1:1', control: null }
  const tree = makeTree({
    'good.lua': 'function handler() return 1 end\n',
    '.svc/gateway.lock': JSON.stringify(lock),
    '.svc/gateways/old-1.json': JSON.stringify(record),
    '.svc/jobs/kept': 'x',
  })
  t.teardown(tree.cleanup)
  const run = (...flags: string[]): Report =>
    JSON.parse(runCli(['doctor', '.', '--no-load', '--json', ...flags], { cwd: tree.root, env: LUA }).stdout) as Report
  t.match(
    run().checks.find(({ id }) => id === 'state.lock'),
    { status: 'warning', fix: /--fix/ },
  )
  const { checks, fixed } = run('--fix')
  t.match(fixed, [/gateway\.lock/, /records of gateways.*: 1/])
  t.match(
    checks.find(({ id }) => id === 'state.lock'),
    { status: 'ok' },
  )
  t.notOk(existsSync(tree.path('.svc/gateway.lock')))
  t.notOk(existsSync(tree.path('.svc/gateways/old-1.json')))
  t.ok(existsSync(tree.path('.svc/jobs/kept')))
})

t.test('[bin/doctor.3] --fix follows no link, and reports what it cannot remove', async t => {
  const lock = JSON.stringify({ ...deadMark(), id: '0123456789abcdef', since: 1 })
  const tree = makeTree({ 'functions/good.lua': 'function handler() return 1 end\n', 'functions/.svc/kept': 'x', lock })
  t.teardown(tree.cleanup)
  symlinkSync('../../lock', tree.path('functions/.svc/gateway.lock'))
  const words = ['doctor', 'functions', '--no-load', '--json', '--fix']
  const { status, stdout } = runCli(words, { cwd: tree.root, env: LUA })
  t.equal(status, 2)
  const { checks, fixed } = JSON.parse(stdout) as Report
  t.same(fixed, [])
  t.match(
    checks.find(({ id }) => id === 'state.fix'),
    { status: 'error', message: /^the lock was left as it is: \.svc\/gateway\.lock is a symbolic link/ },
  )
  t.equal(readFileSync(tree.path('lock'), 'utf8'), lock)
})
