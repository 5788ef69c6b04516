/** Runs a build tool: own process group, time limit, bounded output. Owner: §2.16, page dependencies/resolve. */

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { constants } from 'node:os'
import type { Clock } from '../core/clock.ts'
import { lowerPriority } from '../core/priority.ts'

/** Bytes kept of a tool's output. */
const MAX_TOOL_OUTPUT_BYTES = 64 * 1024

export interface ToolRun {
  /** Full path. */
  command: string
  args: readonly string[]
  cwd: string
  /** The whole environment. */
  env: Readonly<Record<string, string>>
  timeoutMs: number
  /** True takes from it what capabilities this process has. */
  isPlain: boolean
  /** Whom it runs as, where this process may change it; absent: as this process. */
  user?: UserOfTool | null
  /** Steps of priority below this process; absent: none. */
  nice?: number
  /** Aborting kills it. */
  signal: AbortSignal
}

/** Another user than that of this process. */
export interface UserOfTool {
  readonly uid: number
  readonly gid: number
  /** True for the user of a function, whose files a gateway that is not root reads by its group. */
  readonly sharesFiles?: boolean
  /** Ends a process group that this process may not end. */
  killGroup?(pid: number | undefined): void
  /** Ends what the tool left elsewhere; never rejects. */
  killStrays?(): Promise<void>
}

export interface ToolResult {
  /** null when it was killed or could not be started. */
  code: number | null
  /** Standard output and standard error as they came; the middle of a long text is left out. */
  output: string
  timedOut: boolean
  /** Why it could not be started, null when it could. */
  problem: string | null
}

const PLAIN = ['--no-new-privs', '--inh-caps=-all', '--ambient-caps=-all']
/** Ends a tool with the process that started it, where the system offers that. */
export const SETPRIV = '/usr/bin/setpriv'
/** What a tool writes as a user is for this user and, by the group, for a gateway that is not root. */
const SHELL = '/bin/sh'
const AS_USER = 'umask 007; exec "$0" "$@"'
/** Milliseconds that output may still come after a tool's end: a child it left behind may hold the pipe open. */
const OUTPUT_DRAIN_MS = 100

/** Resolves when the tool has ended, whatever the cause; never rejects. */
export function runTool(run: ToolRun, clock: Clock): Promise<ToolResult> {
  return new Promise(resolve => {
    const output = new BoundedText(MAX_TOOL_OUTPUT_BYTES)
    const [command, ...args] = toCommandLine(run)
    const child = spawn(command as string, args, {
      cwd: run.cwd,
      env: run.env,
      // A group of its own: compilers start compilers and linkers, and one kill takes them all.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    // Where the system refuses that, it works all the same.
    lowerPriority(child.pid, run.nice ?? 0)
    let timedOut = false
    let settled = false
    const kill = () => {
      killGroup(child.pid)
      run.user?.killGroup?.(child.pid)
    }
    const timer = clock.setTimeout(() => {
      timedOut = true
      kill()
    }, run.timeoutMs)
    const settle = (code: number | null, problem: string | null) => {
      if (settled) return
      settled = true
      clock.clearTimeout(timer)
      run.signal.removeEventListener('abort', kill)
      child.stdout.destroy()
      child.stderr.destroy()
      resolve({ code, output: output.text(), timedOut, problem })
    }
    run.signal.addEventListener('abort', kill)
    if (run.signal.aborted) kill()
    child.stdout.on('data', bytes => output.add(bytes))
    child.stderr.on('data', bytes => output.add(bytes))
    child.once('error', error => settle(null, `cannot run ${run.command}: ${error.message}`))
    child.once('exit', (code, signal) => {
      // What it left behind in its group ends with it, and what a user's tool left elsewhere.
      kill()
      const left = run.user?.killStrays?.() ?? Promise.resolve()
      const end = () => left.then(() => settleEnd())
      const settleEnd = () => settle(code, signal === null || timedOut ? null : `${run.command} was ended by ${signal}`)
      // A busy gateway comes to the timer before it comes to what is in the pipe: between two of these it reads that.
      const drain = clock.setTimeout(() => setImmediate(() => setImmediate(end)), OUTPUT_DRAIN_MS)
      child.once('close', () => {
        clock.clearTimeout(drain)
        end()
      })
    })
  })
}

/** As `setpriv` takes them. */
export function toPrivileges({ isPlain, user = null }: Pick<ToolRun, 'isPlain' | 'user'>): string[] {
  const identity = user === null ? [] : ['--reuid', `${user.uid}`, '--regid', `${user.gid}`, '--clear-groups']
  return [...identity, '--pdeathsig', 'KILL', ...(isPlain || user !== null ? PLAIN : [])]
}

function toCommandLine({ command, args, isPlain, user = null }: ToolRun): string[] {
  if (user === null && !existsSync(SETPRIV)) return [command, ...args]
  const line = [SETPRIV, ...toPrivileges({ isPlain, user }), '--']
  return user?.sharesFiles === true ? [...line, SHELL, '-c', AS_USER, command, ...args] : [...line, command, ...args]
}

/** Keeps the first and the last part of a text: the first error and the summary. */
class BoundedText {
  readonly #half: number
  readonly #head: Buffer[] = []
  #headBytes = 0
  #tail = Buffer.alloc(0)
  #dropped = 0

  constructor(mostBytes: number) {
    this.#half = mostBytes >> 1
  }

  add(bytes: Buffer): void {
    const room = this.#half - this.#headBytes
    const head = bytes.subarray(0, room)
    if (head.length > 0) this.#head.push(head)
    this.#headBytes += head.length
    if (head.length === bytes.length) return
    const tail = Buffer.concat([this.#tail, bytes.subarray(head.length)])
    this.#dropped += Math.max(0, tail.length - this.#half)
    this.#tail = tail.subarray(Math.max(0, tail.length - this.#half))
  }

  text(): string {
    const note = this.#dropped > 0 ? `\n[${this.#dropped} bytes left out]\n` : ''
    return `${Buffer.concat(this.#head)}${note}${this.#tail}`
  }
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined || pid <= 1) return
  try {
    process.kill(-pid, constants.signals.SIGKILL)
  } catch {
    // Already gone.
  }
}
