import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { getPriority } from 'node:os'
import t, { type Test } from 'tap'
import { lowerPriority } from '../../lib/core/host.ts'
import { asNobody } from '../helpers/as-nobody.ts'

/** A process that waits for its end. */
async function startWaiting(t: Test): Promise<number> {
  const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
  await once(child, 'spawn')
  t.teardown(() => child.kill('SIGKILL'))
  return child.pid!
}

t.test(
  '[runtime/daemon.20] a process stands so many steps behind this one, and never further than there is',
  async t => {
    const own = getPriority()
    const pid = await startWaiting(t)
    t.equal(lowerPriority(pid, 0), null)
    t.equal(getPriority(pid), own)
    t.equal(lowerPriority(pid, 3), null)
    t.equal(getPriority(pid), Math.min(19, own + 3))
    t.equal(lowerPriority(pid, 19), null)
    t.equal(getPriority(pid), 19)
    t.equal(getPriority(), own, 'this one stays where it is')
  },
)

t.test('[runtime/daemon.20] one that has ended, or never began, is no matter', async t => {
  const child = spawn('true')
  await once(child, 'exit')
  t.equal(lowerPriority(child.pid, 5), null)
  t.equal(lowerPriority(undefined, 5), null)
})

t.test(
  '[runtime/daemon.20] a system that refuses it is told about, with the setting',
  { skip: process.geteuid?.() !== 0 && 'needs root, who becomes somebody with less rights' },
  async t => {
    const pid = await startWaiting(t)
    const told = await asNobody(async () => lowerPriority(pid, 5))
    t.match(told, /^its priority stays that of the gateway \(FN_WORKER_NICE=5\): .*setpriority/)
  },
)
