/** Runs build and package tools: own process group, time limit, bounded output, environment, user. Owner: §2.16, page dependencies/resolve. */

import { execFile, spawn } from 'node:child_process'
import { existsSync, lstatSync, statSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { sep } from 'node:path'
import { canChangeUser, type ProcessPowers } from '../config/setting-checks.ts'
import type { Clock } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { orNull } from '../core/errors.ts'
import { type HostEnv, lowerPriority, toToolHostEnv, toUserToolEnv } from '../core/host.ts'
import { handOver, OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'

/** Bytes kept of a tool's output: half from its beginning, with the first error, and half from its end, with the summary. */
const MAX_TOOL_OUTPUT_BYTES = 64 * 1024

export interface ToolRun {
  command: string
  args: readonly string[]
  cwd: string
  env: Readonly<Record<string, string>>
  timeoutMs: number
  /** True takes from it what capabilities this process has. */
  isPlain: boolean
  /** Its user, where this process may change it; absent: that of this process. */
  user?: UserOfTool | null
  /** Steps of priority below this process; absent: none. */
  nice?: number
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
    const output = new BoundedText(MAX_TOOL_OUTPUT_BYTES >> 1)
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
      const { pid } = child
      // One that has ended is no error.
      if (pid !== undefined && pid > 1) orNull(() => process.kill(-pid, constants.signals.SIGKILL))
      run.user?.killGroup?.(pid)
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
      const problem = signal === null || timedOut ? null : `${run.command} was ended by ${signal}`
      const end = () => void left.then(() => settle(code, problem))
      // A busy gateway comes to the timer before it comes to what is in the pipe: between two of these it reads that.
      const drain = clock.setTimeout(() => setImmediate(() => setImmediate(end)), OUTPUT_DRAIN_MS)
      child.once('close', () => {
        clock.clearTimeout(drain)
        end()
      })
    })
  })
}

function toPrivileges({ isPlain, user = null }: Pick<ToolRun, 'isPlain' | 'user'>): string[] {
  const identity = user === null ? [] : ['--reuid', `${user.uid}`, '--regid', `${user.gid}`, '--clear-groups']
  return [...identity, '--pdeathsig', 'KILL', ...(isPlain || user !== null ? PLAIN : [])]
}

function toCommandLine({ command, args, isPlain, user = null }: ToolRun): string[] {
  if (user === null && !existsSync(SETPRIV)) return [command, ...args]
  const line = [SETPRIV, ...toPrivileges({ isPlain, user }), '--']
  return user?.sharesFiles === true ? [...line, SHELL, '-c', AS_USER, command, ...args] : [...line, command, ...args]
}

/** Keeps the first and the last bytes of a text. */
class BoundedText {
  readonly #most: number
  #head = Buffer.alloc(0)
  #tail = Buffer.alloc(0)
  #dropped = 0

  constructor(most: number) {
    this.#most = most
  }

  add(bytes: Buffer): void {
    const room = this.#most - this.#head.length
    if (room > 0) this.#head = Buffer.concat([this.#head, bytes.subarray(0, room)])
    const tail = Buffer.concat([this.#tail, bytes.subarray(room)])
    const over = Math.max(0, tail.length - this.#most)
    this.#dropped += over
    this.#tail = tail.subarray(over)
  }

  text(): string {
    const note = this.#dropped > 0 ? `\n[${this.#dropped} bytes left out]\n` : ''
    return `${this.#head}${note}${this.#tail}`
  }
}

const PREFIX = 'b-'
const FOLDER_NAME = /^b-[A-Za-z0-9]{6}$/
/** Age at which a temporary folder counts as left behind, ms. */
const STALE_MS = 3_600_000

/**
 * Makes a temporary folder for one tool below `parent`, or among the system's where the tree is read-only: dependencies of its
 * functions are read there, too.
 * @throws Error, an UnsafePathError where a link is in the way
 */
export function makeToolFolder(parent: OwnFolder, clock: Clock): OwnFolder {
  try {
    parent.make()
  } catch (error) {
    if (!isDenied(error)) throw error
    return new OwnFolder(tmpdir()).makeTemporary(PREFIX)
  }
  removeStale(parent, FOLDER_NAME, clock)
  return parent.makeTemporary(PREFIX)
}

/** True for what the system does not let this process do. */
export function isDenied(thrown: unknown): boolean {
  return /^(?:EACCES|EPERM|EROFS)$/.test(String((thrown as NodeJS.ErrnoException).code))
}

/** Deletes temporary folders that a gateway left when it was killed. @param names - of such folders */
export function removeStale(parent: OwnFolder, names: RegExp, clock: Clock): void {
  for (const { name, stats } of parent.list(names)) {
    if (stats.isDirectory() && clock.wall() - stats.mtimeMs > STALE_MS) parent.remove(name)
  }
}

export interface BuildTools {
  /** Aborted when the work is not wanted any more; its tools are killed then. */
  readonly signal: AbortSignal
  /** The user of the tools; absent where functions are not kept apart by users. */
  readonly user?: ToolUser | null
  run(run: ToolCommand): Promise<ToolResult>
  /** The tools of a shared pack: no function may change what others load. @param folder - full path of the pack */
  forPack?(folder: string): BuildTools
}

interface ToolCommand extends Pick<ToolRun, 'command' | 'args' | 'cwd'> {
  env?: Readonly<Record<string, string>>
  /** The folder that the tool may write to where it runs as a user: below that of the user. */
  owns?: OwnFolder
}

export interface ToolsOptions {
  clock: Clock
  /** Folder for temporary files of tools; made when needed. */
  temporaryFolder: OwnFolder
  hostEnv: HostEnv
  /** Builds are closed to other users of the machine, and tools have no capability of this process. */
  isPrivate: boolean
  /**
   * The user whose rights tools have where functions are kept apart by users: null or absent elsewhere.
   * @param key - of a function, or `pack <folder>`
   * @throws Error when no user is left
   */
  toolUserOf?(key: string): ToolUser | null
  /** The user of package tools elsewhere; absent: that of this process. */
  toolOwner?: ToolOwner | null
  /** Steps of priority that tools stand below this process; absent: none. */
  nice?: number
}

/** What of a builder its tools depend on. */
interface ToolsBuilder {
  timeoutMs: number
  /** The environment of the tools; default that of builds. */
  toEnv?(hostEnv: HostEnv): Record<string, string>
}

/**
 * Calls work with the tools of a builder, and deletes their temporary files afterwards.
 * @param use - `key`: of the function whose user the tools have; null for none
 */
export async function withTools<T>(
  options: ToolsOptions,
  { timeoutMs, toEnv = toToolHostEnv }: ToolsBuilder,
  { key, signal }: { key: string | null; signal: AbortSignal },
  work: (tools: BuildTools) => T | Promise<T>,
): Promise<T> {
  const { clock, hostEnv, isPrivate, nice = 0, toolOwner, temporaryFolder, toolUserOf } = options
  const made: { folder: OwnFolder; user: ToolUser | null }[] = []
  const toTools = (name: string | null): BuildTools => {
    // One limit for all steps of a build.
    const endsAt = clock.monotonic() + timeoutMs
    const user = name === null ? null : (toolUserOf?.(name) ?? null)
    const owner = user === null ? (toolOwner ?? null) : null
    // Made when the first tool runs: most functions are ready as they are.
    let folder: OwnFolder | null = null
    const toFolder = (): string => {
      if (folder !== null) return folder.path
      folder = makeToolFolder(user?.folder ?? temporaryFolder, clock)
      made.push({ folder, user })
      user?.give(folder)
      return folder.path
    }
    return {
      signal,
      user,
      run: async ({ command, args, cwd, env, owns }) => {
        if (owns !== undefined) user?.give(owns)
        const asOwner = (await owner?.of(command)) ?? null
        const own = toEnv(hostEnv)
        const base = user !== null ? toUserToolEnv(own, user.home) : asOwner !== null ? owner!.toEnv(own) : own
        const temporary = toFolder()
        const run = {
          command,
          args,
          cwd,
          env: { ...base, TMPDIR: temporary, GOTMPDIR: temporary, ...env },
          timeoutMs: Math.max(1, endsAt - clock.monotonic()),
          isPlain: isPrivate,
          user: user ?? asOwner,
          nice,
          signal,
        }
        return runTool(run, clock)
      },
      forPack: path => toTools(`pack ${path}`),
    }
  }
  try {
    return await work(toTools(key))
  } finally {
    for (const { folder, user } of made) {
      if (user === null) folder.removeAll()
      else await user.remove(folder)
    }
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
    return getOrMake(this.#known, command, () => this.#find(command))
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
    const args = [...toPrivileges({ isPlain: true, user: this.#user }), '--', SHELL, '-c', PROBE, 'sh', ...paths]
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
