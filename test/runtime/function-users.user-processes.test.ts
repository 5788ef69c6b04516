import { spawn } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import t from 'tap'
import { UserSignals } from '../../lib/files/user-signals.ts'
import { UserProcesses } from '../../lib/runtime/function-users.ts'
import { isRunning, statusOf } from '../helpers/processes.ts'
import { until } from '../helpers/worker-client.ts'

const UID = 34_777

t.test(
  '[runtime/isolation.18] orphans of a user are ended after each of its workers, one turn for several',
  async t => {
    const ended: number[] = []
    const finish: (() => void)[] = []
    const processes = new UserProcesses({
      endOrphans: uid => {
        ended.push(uid)
        return new Promise(resolve => finish.push(resolve))
      },
    })
    processes.leave(UID)
    processes.leave(UID + 1)
    t.same(ended, [UID, UID + 1])
    processes.leave(UID)
    processes.leave(UID)
    t.equal(ended.length, 2, 'one turn at a time')
    let isSettled = false
    const settled = processes.settle().then(() => {
      isSettled = true
    })
    for (const go of finish.splice(0)) go()
    await new Promise(setImmediate)
    t.same(ended, [UID, UID + 1, UID])
    t.notOk(isSettled)
    for (const go of finish.splice(0)) go()
    await settled
    processes.leave(UID)
    t.equal(ended.length, 4)
  },
)

const NO_ROOT =
  process.platform === 'linux' && process.geteuid?.() === 0 ? false : 'changing users needs Linux and root'

t.test(
  '[runtime/isolation.18] orphans are killed, also one that forks without pause; other processes go on',
  { skip: NO_ROOT },
  async t => {
    const start = (...words: string[]) => {
      const child = spawn(words[0]!, words.slice(1), { uid: UID, gid: UID, stdio: ['ignore', 'pipe', 'ignore'] })
      t.teardown(() => void child.kill('SIGKILL'))
      return new Promise<number>(resolve => child.stdout.once('data', bytes => resolve(Number(bytes))))
    }
    const orphan = await start('setsid', '-f', 'env', '-i', 'sh', '-c', 'echo $$; exec sleep 1000')
    const child = await start('sh', '-c', 'echo $$; exec sleep 1000')
    if (existsSync('/usr/bin/perl'))
      await start(
        'perl',
        '-e',
        'use POSIX; $| = 1; print "1\\n"; close STDOUT; while (1) { exit if fork; POSIX::setsid() }',
      )
    const signals = new UserSignals()
    t.teardown(() => signals.close())
    const processes = new UserProcesses(signals)
    processes.leave(UID)
    await processes.settle()
    await until(() => !isRunning(orphan), 5000)
    // A process that this one started is not an orphan: it goes on.
    await until(() => /^State:\s+S/m.test(statusOf(child)), 5000)
    const names = readdirSync('/proc').map(pid => (/^\d+$/.test(pid) ? statusOf(Number(pid)) : ''))
    const left = names.filter(status => status.includes(`Uid:\t${UID}\t`) && !/^State:\s+[ZX]/m.test(status))
    t.same(
      left.map(status => /^Name:\s+(.*)$/m.exec(status)?.[1]),
      ['sleep'],
    )
  },
)
