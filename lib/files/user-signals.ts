/** Signals to processes of a function's user, and programs that run as this user. Owner: page files/tool-user. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'

const SHELL = '/bin/sh'
const PERL = '/usr/bin/perl'
const TIMEOUT = '/usr/bin/timeout'
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
/** Above all ids that `FN_ISOLATION_UIDS` accepts: a process with this real id can be signalled by no function. */
const SENDER = 0xffff_fff1
/**
 * Signals as the user without becoming it: with its effective id alone, the sender may signal the user's processes and they may not
 * signal the sender. Each word is a signal and its targets; -1 means every process of the user.
 */
const SIGNAL = `my $uid = shift @ARGV; $< = ${SENDER}; $> = $uid;
exit 1 unless $< == ${SENDER} && $> == $uid;
for (@ARGV) { my ($signal, @targets) = split /,/; kill $signal, @targets }`
/** One capability at most: with CAP_KILL, -1 would mean every process of the machine. */
const ONE_POWER = ['--inh-caps=-all,+setuid', '--ambient-caps=-all,+setuid']
const NO_POWER = ['--inh-caps=-all', '--ambient-caps=-all']
/** Longest run of a sender on a busy machine, and of a shell that runs as the user, whose processes may stop it. */
const SENDER_LIMIT_MS = 30_000
const SHELL_LIMIT_MS = 5000
/** Searches for orphans of a user. */
const MAX_ROUNDS = 20
/** Longest run of a program that the gateway waits for. */
const RUN_LIMIT_S = 30

type Signal = 'KILL' | 'STOP' | 'CONT'
type Signals = readonly (readonly [signal: Signal, ...targets: number[]])[]

/** False for root and for this process's own user: their processes are not a function's. */
function isOfFunction(uid: number): boolean {
  return Number.isInteger(uid) && uid > 0 && uid !== process.getuid?.() && uid !== process.geteuid?.()
}

/** Command line of a shell script that runs as a user, and does nothing when it cannot. */
function toScript(uid: number, script: string, args: readonly string[]): string[] {
  const user = ['--reuid', `${uid}`, '--regid', `${uid}`, '--clear-groups', ...NO_POWER]
  return ['setpriv', ...user, '--', SHELL, '-c', script, ...args]
}

/**
 * Starts a program that becomes another user after its start. With the `uid` option of `spawn` a process of that user could stop
 * the child before it runs the program, which `spawn` waits for.
 */
function start(line: readonly string[], stdio: 'ignore' | ['ignore', 'pipe', 'ignore']): ChildProcess {
  const [command, ...args] = line
  // Processes of the user may read the environment.
  return spawn(command!, args, { stdio, env: { PATH }, cwd: '/' })
}

/** @returns whether the program ended with 0 in time; never rejects */
function runBriefly(line: readonly string[], limitMs: number): Promise<boolean> {
  return new Promise(resolve => {
    const child = start(line, 'ignore')
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      child.unref()
      resolve(false)
    }, limitMs)
    const end = (isDone: boolean) => {
      clearTimeout(timer)
      resolve(isDone)
    }
    child.once('error', () => end(false))
    child.once('exit', code => end(code === 0))
  })
}

/** @returns whether the signals were sent, which they are to users of functions alone; never rejects */
export async function signalAsUser(uid: number, signals: Signals): Promise<boolean> {
  if (!isOfFunction(uid)) return false
  if (existsSync(PERL)) {
    const words = signals.map(one => one.join(','))
    const line = ['setpriv', ...ONE_POWER, '--', PERL, '-e', SIGNAL, `${uid}`, ...words]
    if (await runBriefly(line, SENDER_LIMIT_MS)) return true
  }
  const lines = signals.map(([signal, ...targets]) => `kill -s ${signal} -- ${targets.join(' ')}`)
  return runBriefly(toScript(uid, [...lines, 'exit 0'].join('\n'), []), SHELL_LIMIT_MS)
}

/**
 * Kills processes of a user that came to an ancestor of this process, as orphans do. All of its processes stop for that moment: one that
 * forks and exits without pause is not found by searching, because its id is another one each time. Never rejects.
 */
export async function endOrphans(uid: number): Promise<void> {
  let signals: Signals = [['STOP', -1]]
  for (let round = 0; round < MAX_ROUNDS; round++) {
    // A process that was about to exit is not stopped, and its end lets others go on: until a search finds none.
    if (!(await signalAsUser(uid, signals))) break
    const orphans = listOrphans(uid)
    if (orphans.length === 0) break
    const kill = ['KILL', ...orphans] as const
    // Whatever fights back for so long takes the function's other processes with it.
    signals = round === MAX_ROUNDS - 2 ? [['KILL', -1]] : [kill, ['STOP', -1]]
  }
  await signalAsUser(uid, [['CONT', -1]])
}

/** Kills a process group of a user, whom a gateway that is not root may not signal as itself. */
export function killGroupAsUser(uid: number, pid: number | undefined): void {
  if (process.geteuid?.() !== 0 && pid !== undefined && pid > 1) void signalAsUser(uid, [['KILL', -pid]])
}

/** Runs a shell script as a user. @returns what it wrote; null when it could not be started; never rejects */
export function runAsUser(uid: number, script: string, args: readonly string[]): Promise<string | null> {
  if (!isOfFunction(uid)) return Promise.resolve(null)
  return new Promise(resolve => {
    const child = start(toScript(uid, script, args), ['ignore', 'pipe', 'ignore'])
    let text = ''
    child.stdout!.on('data', bytes => {
      text += bytes
    })
    child.once('error', () => resolve(null))
    child.once('close', () => resolve(text))
  })
}

/** As `runAsUser`, and this process waits: where no process of the user is left. */
export function runAsUserSync(uid: number, script: string, args: readonly string[]): void {
  if (!isOfFunction(uid)) return
  // `timeout` may not kill a process of the user; it kills the shell that waits for it.
  const bound = existsSync(TIMEOUT) ? [TIMEOUT, `${RUN_LIMIT_S}`, SHELL, '-c', '"$@" & wait', 'sh'] : []
  const [command, ...rest] = [...bound, ...toScript(uid, script, args)]
  spawnSync(command!, rest, { stdio: 'ignore', env: { PATH }, cwd: '/' })
}

/** Processes of workers, tools, and of another gateway that gives out the same ids are below processes that are not the user's. */
function listOrphans(uid: number): number[] {
  const parents = new Map<number, number>()
  const own = new Set<number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const status = readFileSync(`/proc/${name}/status`, 'latin1')
      if (/^State:\s+[ZX]/m.test(status)) continue
      parents.set(Number(name), Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]))
      if (Number(/^Uid:\s+(\d+)/m.exec(status)?.[1]) === uid) own.add(Number(name))
    } catch {
      // It ended meanwhile.
    }
  }
  const above = new Set<number>()
  for (let at = parents.get(process.pid); at !== undefined; at = parents.get(at)) above.add(at)
  const parentOf = (pid: number): number => {
    const parent = parents.get(pid) ?? 0
    return own.has(parent) ? parentOf(parent) : parent
  }
  // A parent that is missing ended during this search; that of a worker does not.
  return [...own].filter(pid => above.has(parentOf(pid)) || !parents.has(parentOf(pid)))
}
