/** Signals to processes of a function's user, and programs that run as this user. Owner: page files/tool-user. */

import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { orNull } from '../core/errors.ts'

const SHELL = '/bin/sh'
const TIMEOUT = '/usr/bin/timeout'
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
/** Largest real id of a sender. `FN_ISOLATION_UIDS` accepts none of the ids below it: no function can signal a sender. */
const MAX_SENDER = 0xffff_fff1
/** Ids that senders choose from: two with the same one would signal each other. In a user namespace, a part of those it maps. */
const SENDER_IDS = 0x10_0000
const MAPPED_PART = 1 / 64
/**
 * Signals as the user without becoming it: with only its effective id, the sender may signal the user's processes and they may not
 * signal the sender. A line is the user's id and words; each word is a signal and its targets, where -1 means every process of the user.
 */
const SIGNAL = `const own = process.geteuid()
let rest = ''
process.stdin.on('data', bytes => {
  const lines = (rest + bytes).split('\\n')
  rest = lines.pop()
  for (const line of lines) {
    const [uid, ...words] = line.split(' ')
    process.seteuid(Number(uid))
    for (const word of words) {
      const [signal, ...targets] = word.split(',')
      for (const target of targets) try { process.kill(Number(target), signal) } catch {}
    }
    process.seteuid(own)
    process.stdout.write('\\n')
  }
})`
/** With few threads and little memory: the sender runs as long as the gateway. */
const NODE_FLAGS = ['--v8-pool-size=0', '--max-semi-space-size=1']
/** One capability at most: with CAP_KILL, -1 would mean every process of the machine. */
const ONE_POWER = ['--inh-caps=-all,+setuid', '--ambient-caps=-all,+setuid']
const NO_POWER = ['--inh-caps=-all', '--ambient-caps=-all']
/** Maximum wait for the sender on a busy machine. */
const SENDER_LIMIT_MS = 30_000
/** Characters of the sender's last error. */
const MAX_ERROR_CHARS = 200
/** Searches for orphans of a user. */
const MAX_ROUNDS = 20
/** Maximum run of a program that blocks the gateway, seconds. */
const RUN_LIMIT_S = 30

type Signals = readonly (readonly [signal: 'KILL' | 'STOP' | 'CONT', ...targets: number[]])[]

/** False for root and for this process's own user: their processes are not a function's. */
function isOfFunction(uid: number): boolean {
  return Number.isInteger(uid) && uid > 0 && uid !== process.getuid?.() && uid !== process.geteuid?.()
}

/** Command line of a shell script that runs as a user, and does nothing when it cannot. */
function toScript(uid: number, script: string, args: readonly string[]): string[] {
  const user = ['--reuid', `${uid}`, '--regid', `${uid}`, '--clear-groups', ...NO_POWER]
  return ['setpriv', ...user, '--', SHELL, '-c', script, ...args]
}

/** A real id that no function and no sender of another gateway has. In a container whose users are mapped only mapped ones can be taken. */
function chooseSender(): number {
  const rows = readFileSync('/proc/self/uid_map', 'utf8').trim().split('\n')
  const ends = rows.map(row => row.trim().split(/\s+/).map(Number)).map(([first, , count]) => first! + count! - 1)
  const last = Math.min(MAX_SENDER, Math.max(...ends))
  return last - randomInt(Math.max(1, Math.min(SENDER_IDS, Math.floor(last * MAPPED_PART))))
}

interface Sender {
  child: ChildProcessWithoutNullStreams
  /** Callers in the order of their lines. */
  waiting: ((isDone: boolean) => void)[]
}

/**
 * Signals processes of functions' users. One process sends, from the first user until the gateway ends: none could be started later when
 * a function takes every process that its container may have.
 */
export class UserSignals {
  #sender: Sender | null = null
  #isClosed = false
  #lastError = ''

  /** Starts the sender unless it runs. @returns why that fails; null when it runs; never rejects */
  async start(): Promise<string | null> {
    // A line without signals.
    return (await this.#send(`${process.geteuid?.()}`)) ? null : this.#lastError.trim()
  }

  /** @returns whether the signals were sent, which they are to users of functions alone; never rejects */
  async signal(uid: number, signals: Signals): Promise<boolean> {
    if (!isOfFunction(uid)) return false
    return this.#send([uid, ...signals.map(([name, ...targets]) => [`SIG${name}`, ...targets].join(','))].join(' '))
  }

  /**
   * Kills processes of a user that came to an ancestor of this process, as orphans do. All of its processes stop for that moment: one that
   * forks and exits without pause is not found by searching, because its id is another one each time. Never rejects.
   */
  async endOrphans(uid: number): Promise<void> {
    let signals: Signals = [['STOP', -1]]
    for (let round = 0; round < MAX_ROUNDS; round++) {
      // A process that was about to exit is not stopped, and its end lets others go on: until a search finds none.
      if (!(await this.signal(uid, signals))) break
      const orphans = listOrphans(uid)
      if (orphans.length === 0) break
      const kill = ['KILL', ...orphans] as const
      // Whatever fights back for so long takes the function's other processes with it.
      signals = round === MAX_ROUNDS - 2 ? [['KILL', -1]] : [kill, ['STOP', -1]]
    }
    await this.signal(uid, [['CONT', -1]])
  }

  /** Kills a process group of a user, whom a gateway that is not root may not signal as itself. */
  killGroup(uid: number, pid: number | undefined): void {
    if (process.geteuid?.() !== 0 && pid !== undefined && pid > 1) void this.signal(uid, [['KILL', -pid]])
  }

  /** Lines that were sent before are still done. */
  close(): void {
    this.#isClosed = true
    this.#sender?.child.stdin.end()
  }

  #send(line: string): Promise<boolean> {
    if (this.#isClosed) return Promise.resolve(false)
    this.#sender ??= this.#start()
    const { child, waiting } = this.#sender
    child.ref()
    child.stdin.write(`${line}\n`)
    return new Promise(resolve => {
      const timer = setTimeout(() => child.kill('SIGKILL'), SENDER_LIMIT_MS)
      waiting.push(isDone => {
        clearTimeout(timer)
        resolve(isDone)
      })
    })
  }

  #start(): Sender {
    const line = ['--ruid', `${chooseSender()}`, ...ONE_POWER, '--', process.execPath, ...NODE_FLAGS, '-e', SIGNAL]
    // Processes of a user may read the environment of a sender. In a separate session it survives Ctrl-C.
    const child = spawn('setpriv', line, { stdio: 'pipe', env: { PATH }, cwd: '/', detached: true })
    const waiting: Sender['waiting'] = []
    const end = (why = ''): void => {
      this.#lastError = why || this.#lastError || 'the sender of signals ended'
      if (this.#sender?.child === child) this.#sender = null
      for (const settle of waiting.splice(0)) settle(false)
    }
    child.stdin.on('error', () => {})
    child.stderr.on('data', bytes => {
      this.#lastError = String(bytes).slice(0, MAX_ERROR_CHARS)
    })
    child.stdout.on('data', bytes => {
      for (const settle of waiting.splice(0, bytes.length)) settle(true)
      if (waiting.length === 0) child.unref()
    })
    child.once('error', error => end(error.message))
    child.once('close', () => end())
    for (const stream of [child.stdin, child.stdout, child.stderr]) (stream as Socket).unref()
    return { child, waiting }
  }
}

/** Runs a shell script as a user. @returns what it wrote; null when it could not be started; never rejects */
export function runAsUser(uid: number, script: string, args: readonly string[]): Promise<string | null> {
  if (!isOfFunction(uid)) return Promise.resolve(null)
  return new Promise(resolve => {
    // Processes of the user may read the environment.
    const [command, ...words] = toScript(uid, script, args)
    const child = spawn(command!, words, { stdio: ['ignore', 'pipe', 'ignore'], env: { PATH }, cwd: '/' })
    let text = ''
    child.stdout.on('data', bytes => {
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
  for (const pid of readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number)) {
    const status = orNull(() => readFileSync(`/proc/${pid}/status`, 'latin1'))
    // It ended meanwhile, or was not waited for.
    if (status === null || /^State:\s+[ZX]/m.test(status)) continue
    parents.set(pid, Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]))
    if (Number(/^Uid:\s+(\d+)/m.exec(status)?.[1]) === uid) own.add(pid)
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
