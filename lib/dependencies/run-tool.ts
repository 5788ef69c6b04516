/** Runs a build tool: own process group, time limit, bounded output. Owner: §2.16, page dependencies/resolve. */

import { execFile, spawn } from 'node:child_process'
import { existsSync, lstatSync, statSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { sep } from 'node:path'
import { canChangeUser, type ProcessPowers } from '../config/setting-checks.ts'
import type { Clock } from '../core/clock.ts'
import { lowerPriority } from '../core/host.ts'
import { handOver, OwnFolder } from '../files/own-folder.ts'

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
  /** Its user, where this process may change it; absent: that of this process. */
  user?: UserOfTool | null
  /** Steps of priority below this process; absent: none. */
  nice?: number
  /** Aborting kills it. */
  signal: AbortSignal
}

/** Another user than that of this process. */
interface UserOfTool {
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
const SETPRIV = '/usr/bin/setpriv'
/** Files that a tool writes as a user are for this user and, by the group, for a gateway that is not root. */
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
      // Its own group: compilers start compilers and linkers, and one kill takes them all.
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
      // Processes that it left in its group end with it, and those that a user's tool left elsewhere.
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
function toPrivileges({ isPlain, user = null }: Pick<ToolRun, 'isPlain' | 'user'>): string[] {
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

const PREFIX = 'b-'
const FOLDER_NAME = /^b-[A-Za-z0-9]{6}$/
/** Age at which a temporary folder counts as left behind, ms. */
const STALE_MS = 3_600_000
/** Errors of a tree that the gateway may not write to. */
const CLOSED: ReadonlySet<string> = new Set(['EROFS', 'EACCES', 'EPERM'])

/**
 * Makes a temporary folder for one tool below `parent`, or among the system's where the tree is read-only: the needs of its functions
 * are looked up there, too.
 * @throws Error, an UnsafePathError where a link is in the way
 */
export function makeToolFolder(parent: OwnFolder, clock: Clock): OwnFolder {
  try {
    parent.make()
  } catch (error) {
    if (!CLOSED.has((error as NodeJS.ErrnoException).code ?? '')) throw error
    return new OwnFolder(tmpdir()).makeTemporary(PREFIX)
  }
  removeStale(parent, FOLDER_NAME, clock)
  return parent.makeTemporary(PREFIX)
}

/** Deletes temporary folders that a gateway left when it was killed. @param names - of such folders */
export function removeStale(parent: OwnFolder, names: RegExp, clock: Clock): void {
  for (const { name, stats } of parent.list(names)) {
    if (stats.isDirectory() && clock.wall() - stats.mtimeMs > STALE_MS) parent.remove(name)
  }
}

// The user of tools below a gateway that is root: the owner of the functions folder, so that no code of a package is root's.

interface ToolOwnerOptions {
  functionsRoot: string
  powers: ProcessPowers
  /** Files that every tool reads: node, this package. Full paths. */
  reached: readonly string[]
  /** A tool runs as root, because the owner of the functions folder cannot reach what it needs. */
  onRefused(why: string): void
}

/** Prints the first path that cannot be used. */
const PROBE =
  'for path; do [ -r "$path" ] || [ -x "$path" ] || command -v "$path" >/dev/null || { printf %s "$path"; exit 1; }; done'

export class ToolOwner {
  readonly #options: ToolOwnerOptions
  readonly #user: UserOfTool
  /** By the full path of a program. */
  readonly #known = new Map<string, Promise<UserOfTool | null>>()

  private constructor(options: ToolOwnerOptions, user: UserOfTool) {
    this.#options = options
    this.#user = user
  }

  /** @returns null where tools run as this process does */
  static find(options: ToolOwnerOptions): ToolOwner | null {
    const { functionsRoot, powers } = options
    if (powers.uid !== 0 || !canChangeUser(powers) || !existsSync(SETPRIV)) return null
    const { uid, gid } = statSync(functionsRoot)
    if (uid === 0) return null
    const state = new OwnFolder(functionsRoot, '.svc')
    // Made by an earlier version as root, where its tools could not write.
    if (state.isThere() && lstatSync(state.path).uid === 0) handOver(state, uid, ['packs'], gid)
    return new ToolOwner(options, { uid, gid })
  }

  /** @param command - full path of a program, or its name. @returns null when the user cannot run it */
  of(command: string): Promise<UserOfTool | null> {
    const known = this.#known.get(command) ?? this.#find(command)
    this.#known.set(command, known)
    return known
  }

  async #find(command: string): Promise<UserOfTool | null> {
    const { functionsRoot, reached, onRefused } = this.#options
    const closed = await this.#probe([command, functionsRoot, ...reached])
    if (closed === null) return this.#user
    onRefused(`${command} runs as root: user ${this.#user.uid}, who owns the functions folder, cannot reach ${closed}`)
    return null
  }

  /** @returns the first path that the user cannot reach, null when all can be */
  #probe(paths: readonly string[]): Promise<string | null> {
    const args = [...toPrivileges({ isPlain: true, user: this.#user }), '--', '/bin/sh', '-c', PROBE, 'sh', ...paths]
    return new Promise(resolve => {
      execFile(SETPRIV, args, { cwd: '/', env: { PATH: process.env.PATH } }, (error, output) =>
        resolve(error === null ? null : output || paths[0]!),
      )
    })
  }

  /** With the user's own home in place of root's: what variables name there the user cannot use. */
  toEnv(env: Readonly<Record<string, string>>): Record<string, string> {
    const { HOME: home } = env
    const own = new OwnFolder(this.#options.functionsRoot, '.svc', 'home').make()
    const isRoots = (value: string) => home !== undefined && value.startsWith(home.replace(/\/?$/, sep))
    const kept = Object.entries(env).filter(([name, value]) => name === 'PATH' || !isRoots(value))
    return { ...Object.fromEntries(kept), HOME: own }
  }
}
