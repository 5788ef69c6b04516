import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { getPriority } from 'node:os'
import t from 'tap'
import type { Clock } from '../../lib/core/clock.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { runTool, type ToolRun } from '../../lib/dependencies/run-tool.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

function run(more: Partial<ToolRun>, clock: Clock = systemClock) {
  return runTool(
    {
      command: process.execPath,
      args: [],
      cwd: '/',
      env: { PATH: process.env.PATH ?? '' },
      timeoutMs: 60_000,
      isPlain: false,
      signal: new AbortController().signal,
      ...more,
    },
    clock,
  )
}

const script = (text: string): Pick<ToolRun, 'args'> => ({ args: ['-e', text] })
const shell = (text: string): Pick<ToolRun, 'command' | 'args'> => ({ command: '/bin/sh', args: ['-c', text] })

t.test('[dependencies/resolve.8] both streams and the exit code of a tool', async t => {
  const both = await run(script('console.log("out"); console.error("err"); process.exitCode = 3'))
  t.match(both, { code: 3, timedOut: false, problem: null })
  t.match(both.output, /out\n/)
  t.match(both.output, /err\n/)
  t.match(await run(script('')), { code: 0, output: '', timedOut: false, problem: null })
})

t.test('[dependencies/resolve.10] a tool sees the environment it is given and nothing else', async t => {
  const names = 'console.log(Object.keys(process.env).sort().join()); console.log(process.cwd())'
  const { output } = await run({ ...script(names), env: { A: '1', PATH: '/bin' }, cwd: '/tmp' })
  t.equal(output, 'A,PATH\n/tmp\n')
})

t.test('[dependencies/resolve.8] of a long text the beginning and the end are kept', async t => {
  const { output } = await run(script('process.stdout.write("first" + "x".repeat(200_000) + "last")'))
  t.ok(Buffer.byteLength(output) < 66_000, String(Buffer.byteLength(output)))
  t.match(output, /^firstx+\n\[134473 bytes left out\]\nx+last$/)
})

t.test('[dependencies/resolve.8] a tool that cannot be started is a problem, not a throw', async t => {
  t.match(await run({ ...script(''), cwd: '/no/such/folder' }), { code: null, problem: /^cannot run .*ENOENT/ })
  const missing = await run({ command: '/no/such/tool', args: [] })
  t.ok(missing.code !== 0, JSON.stringify(missing))
  t.match(await run(shell('kill -TERM $$')), { problem: '/bin/sh was ended by SIGTERM', timedOut: false })
})

t.test(
  '[dependencies/resolve.9] the whole group of a tool ends: at its limit, at an abort, and with the tool',
  async t => {
    const clock = new FakeClock()
    const late = run({ ...shell('sleep 600 & sleep 600'), timeoutMs: 5000 }, clock)
    clock.advance(4999)
    clock.advance(1)
    t.match(await late, { code: null, timedOut: true, problem: null })
    t.equal(clock.pending, 0, 'no timer is left')

    const stop = new AbortController()
    const aborted = run({ ...shell('sleep 600'), signal: stop.signal }, clock)
    stop.abort()
    t.match(await aborted, { code: null, timedOut: false, problem: /ended by SIGKILL/ })
    t.match(await run({ ...shell('sleep 600'), signal: AbortSignal.abort() }, clock), { problem: /ended by SIGKILL/ })

    // The child it leaves behind holds the pipe open; it is killed, or this would last ten minutes.
    const { output, code } = await run(shell('sleep 600 & echo $!'))
    t.equal(code, 0)
    t.notOk(isRunning(Number(output)), 'the child left behind')
  },
)

t.test('[dependencies/resolve.8] what a tool wrote is read, however late the gateway comes to it', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  // Writes after the end of the tool, from a group of its own: output that nobody has read when the end is told.
  const { root } = tree
  const writer = `touch ${root}/ready; while [ ! -e ${root}/go ]; do :; done; echo late; touch ${root}/written`
  const late = `setsid sh -c '${writer}' & while [ ! -e ${root}/ready ]; do :; done`
  const busy: Clock = {
    ...systemClock,
    setTimeout: (due, ms) => {
      if (ms > 1000) return systemClock.setTimeout(due, ms)
      // A gateway that is kept busy for as long as it waits for the rest.
      const wait = `touch ${root}/go; while [ ! -e ${root}/written ]; do :; done`
      t.equal(spawnSync('/bin/sh', ['-c', wait]).status, 0)
      due()
      return systemClock.setTimeout(() => {}, 0)
    },
  }
  const { code, output } = await run(shell(late), busy)
  t.same([code, output], [0, 'late\n'])
})

function isRunning(pid: number): boolean {
  return existsSync(`/proc/${pid}/exe`)
}

t.test('[runtime/daemon.20] a tool stands back behind the gateway as functions do', async t => {
  // It may have begun a moment before.
  const untilLowered = `until [ "$(nice)" = ${Math.min(19, getPriority() + 2)} ]; do sleep 0.01; done; echo stands back`
  t.match(await run({ ...shell(untilLowered), nice: 2 }), { code: 0, output: 'stands back\n', timedOut: false })
})
