import { spawn } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { runAsUser, runAsUserSync, UserSignals } from '../../lib/files/user-signals.ts'
import { childrenOf, isRunning, statusOf } from '../helpers/processes.ts'
import { until } from '../helpers/worker-client.ts'

const UID = 34_781
const signals = new UserSignals()
t.teardown(() => signals.close())
const NO_ROOT =
  process.platform === 'linux' && process.geteuid?.() === 0 ? false : 'changing users needs Linux and root'
const NO_PERL = existsSync('/usr/bin/perl') ? false : 'it needs perl'

t.test('[files/tool-user.5] nothing is done as root or as the user of this process', async t => {
  const marker = join(t.testdir(), 'marker')
  for (const uid of [0, process.geteuid!(), -1, 1.5, Number.NaN]) {
    t.notOk(await signals.signal(uid, [['CONT', process.pid]]))
    t.equal(await runAsUser(uid, 'touch "$0"', [marker]), null)
    runAsUserSync(uid, 'touch "$0"', [marker])
    await signals.endOrphans(uid)
  }
  t.notOk(existsSync(marker))
})

/** Resolves when a program of the user, an orphan, has written something. */
function startOrphan(...words: string[]): Promise<void> {
  const user = ['--reuid', `${UID}`, '--regid', `${UID}`, '--clear-groups']
  const stdio = ['ignore', 'pipe', 'ignore'] as const
  const child = spawn('setsid', ['-f', 'setpriv', ...user, '--', ...words], { stdio: [...stdio] })
  return new Promise(resolve => child.stdout!.once('data', () => resolve()))
}

function namesOfUser(): string[] {
  return readdirSync('/proc').flatMap(pid => {
    const status = /^\d+$/.test(pid) ? statusOf(Number(pid)) : ''
    const isIts = status.includes(`Uid:\t${UID}\t`) && !/^State:\s+[ZX]/m.test(status)
    return isIts ? [/^Name:\s+(.*)$/m.exec(status)![1]!] : []
  })
}

/** Each kills, stops or continues what is to end it, and most have another process id each time. */
const HOSTILE = {
  'forks without pause': 'while (1) { exit if fork; POSIX::setsid() }',
  'continues what is stopped': 'while (1) { exit if fork; POSIX::setsid(); kill "CONT", -1 }',
  'stops all others': 'while (1) { kill "STOP", -1 }',
  'stops all others and forks': 'while (1) { exit if fork; POSIX::setsid(); kill "STOP", -1 }',
  'kills all others': 'while (1) { kill "KILL", -1 }',
}
for (const [name, script] of Object.entries(HOSTILE)) {
  t.test(`[runtime/isolation.18] an orphan that ${name} is ended`, { skip: NO_ROOT || NO_PERL }, async t => {
    t.teardown(() => signals.signal(UID, [['KILL', -1]]))
    await startOrphan('perl', '-e', `use POSIX; fork; fork; $| = 1; print "1"; close STDOUT; ${script}`)
    await signals.endOrphans(UID)
    for (let i = 0; i < 20; i++) t.same(namesOfUser(), [])
  })
}

t.test('[files/tool-user.5] programs of a user see no environment of this process', { skip: NO_ROOT }, async t => {
  process.env.FNGW_TEST_PLANTED = 'planted'
  t.teardown(() => delete process.env.FNGW_TEST_PLANTED)
  const text = await runAsUser(UID, 'env; id -u; id -G; grep ^CapEff /proc/$$/status; echo "$0"', ['word'])
  t.notMatch(text, /planted/)
  t.match(text, new RegExp(`^${UID}\n${UID}\nCapEff:\\s+0+\nword\n$`, 'm'))
})

t.test('[files/tool-user.5] a signal reaches processes of the user alone', { skip: NO_ROOT }, async t => {
  const other = spawn('sleep', ['1000'], { uid: UID + 1, gid: UID + 1, stdio: 'ignore' })
  t.teardown(() => void other.kill('SIGKILL'))
  await startOrphan('sh', '-c', 'echo 1; exec sleep 1000')
  t.ok(
    await signals.signal(UID, [
      ['KILL', other.pid!],
      ['STOP', -1],
      ['KILL', -1],
    ]),
  )
  await until(() => namesOfUser().length === 0, 10_000)
  t.ok(isRunning(other.pid!))
  t.match(statusOf(other.pid!), /^State:\s+S/m)
})

t.test('[files/tool-user.5] one process sends, and no function can signal it', { skip: NO_ROOT }, async t => {
  const own = new UserSignals()
  const before = new Set(childrenOf(process.pid))
  t.equal(await own.start(), null)
  const sender = childrenOf(process.pid).find(pid => !before.has(pid))!
  for (const uid of [UID, UID + 1]) t.ok(await own.signal(uid, [['CONT', -1]]))
  t.same(await Promise.all([UID, UID + 1].map(uid => own.signal(uid, [['CONT', -1]]))), [true, true])
  t.same(
    childrenOf(process.pid).filter(pid => !before.has(pid)),
    [sender],
  )
  const attack = await runAsUser(UID, 'kill -9 "$0" 2>&1; cat /proc/"$0"/environ 2>&1', [`${sender}`])
  t.match(attack, /not permitted\s.*denied/s)
  own.close()
  await until(() => !isRunning(sender), 10_000)
  t.notOk(await own.signal(UID, [['CONT', -1]]))
})

t.test('[files/tool-user.5] a sender that ends is replaced', { skip: NO_ROOT }, async t => {
  const own = new UserSignals()
  t.teardown(() => own.close())
  const before = new Set(childrenOf(process.pid))
  await own.start()
  const sender = childrenOf(process.pid).find(pid => !before.has(pid))!
  process.kill(sender, 'SIGSTOP')
  const sent = own.signal(UID, [['CONT', -1]])
  process.kill(sender, 'SIGKILL')
  t.notOk(await sent)
  t.ok(await own.signal(UID, [['CONT', -1]]))
})

t.test('[files/tool-user.5] senders of two gateways do not signal each other', { skip: NO_ROOT }, async t => {
  const [one, other] = [new UserSignals(), new UserSignals()]
  t.teardown(() => [one, other].map(signals => signals.close()))
  const before = new Set(childrenOf(process.pid))
  t.same([await one.start(), await other.start()], [null, null])
  const senders = childrenOf(process.pid).filter(pid => !before.has(pid))
  t.equal(senders.length, 2)
  for (const signals of [one, other]) t.ok(await signals.signal(UID, [['KILL', -1]]))
  for (const signals of [one, other]) t.ok(await signals.signal(UID, [['CONT', -1]]))
  t.same(
    childrenOf(process.pid).filter(pid => !before.has(pid)),
    senders,
  )
})
