/**
 * The user that a worker runs as, where the gateway keeps functions apart by users. Page: runtime/isolation.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Of util-linux. */
const PRLIMIT = '/usr/bin/prlimit'
/** Of Linux: `CAP_SETGID` and `CAP_SETUID`. */
const NEEDED_CAPABILITIES = (1n << 6n) | (1n << 7n)

/**
 * `folder` is its own: sockets, and temporary files in `tmp`; `limits` are of each process, as `prlimit` names them.
 * @typedef {{ uid: number, folder: string, limits: Readonly<Record<string, number>> }} User
 */
/** Rows of /proc/self/limits. @type {Readonly<Record<string, string>>} */
const LIMITS = { nproc: 'Max processes', nofile: 'Max open files', fsize: 'Max file size' }

/**
 * @param {Record<string, any>} header - of a `start`
 * @returns {User | null} null when it names none
 * @throws Error why it cannot be done
 */
export function parseUser({ user }) {
  if (user === undefined || user === null) return null
  const { uid, folder, limits = {} } = user
  if (!Number.isInteger(uid) || uid < 1 || typeof folder !== 'string')
    throw new Error('user must have uid, above 0, and folder')
  if (!canChangeUser())
    throw new Error(`a worker cannot run as user ${uid}: the daemon has neither root nor CAP_SETUID and CAP_SETGID`)
  for (const [name, value] of Object.entries(limits))
    if (!(name in LIMITS) || !Number.isInteger(value)) throw new Error(`user.limits has no ${name} of ${value}`)
  return { uid, folder, limits }
}

/**
 * Command line that sets limits, without the process that it sets them for.
 * @param {User['limits']} limits
 * @returns {string[]} empty where the system has no such program, or nothing is limited
 */
export function toPrlimit(limits) {
  if (Object.keys(limits).length === 0) return []
  // Nobody but root raises a limit: what is lower already holds.
  const own = readFileSync('/proc/self/limits', 'utf8')
  const flags = Object.entries(limits).map(([name, value]) => {
    const hard = Number(new RegExp(`^${LIMITS[name]}\\s+\\S+\\s+(\\d+)`, 'm').exec(own)?.[1] ?? value)
    return `--${name}=${Math.min(value, hard)}`
  })
  return existsSync(PRLIMIT) ? [PRLIMIT, ...flags] : []
}

function canChangeUser() {
  if (process.geteuid?.() === 0) return true
  try {
    const digits = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]
    return digits !== undefined && (BigInt(`0x${digits}`) & NEEDED_CAPABILITIES) === NEEDED_CAPABILITIES
  } catch {
    return false
  }
}

/**
 * Does something as another user, who cannot get at this process meanwhile. Root may do all of it as itself.
 * @param {number | null} uid - null: as who it is
 * @param {() => void} act
 */
export function asUser(uid, act) {
  const own = process.geteuid?.() ?? 0
  if (uid === null || own === 0 || uid === own) {
    act()
    return
  }
  process.seteuid?.(uid)
  try {
    act()
  } finally {
    process.seteuid?.(own)
  }
}

/**
 * Kills a process group, also the part of it that runs as another user.
 * @param {number} pid - of its leader
 * @param {number | null} uid
 * @param {boolean} isLeaderGone - what it left behind is meant: its number may be another's by now
 */
export function killGroup(pid, uid, isLeaderGone) {
  // The leader may not have made its group yet. It comes first: after that it starts nobody who could be missed.
  const targets = isLeaderGone ? [-pid] : [pid, -pid]
  for (const sender of uid === null ? [null] : [uid, null])
    asUser(sender, () => {
      for (const target of targets) {
        try {
          process.kill(target, 'SIGKILL')
        } catch {
          // Already gone.
        }
      }
    })
}

/**
 * @param {NodeJS.ProcessEnv} env
 * @param {User} user
 * @returns {NodeJS.ProcessEnv} with the user's own folders
 */
export function withUserFolders(env, { folder }) {
  const { TMP, TEMP, USER, LOGNAME, ...rest } = env
  const own = join(folder, 'tmp')
  return { ...rest, HOME: own, TMPDIR: own }
}

/**
 * Gives up root, or the capabilities to become anybody, for good. What the process did before is the product's own; what
 * follows may be a function's.
 * @param {User} user
 */
export function becomeUser(user) {
  const { uid, limits } = user
  const [command, ...flags] = toPrlimit(limits)
  // Before the user changes: what a process of this user may still do is to change no user.
  if (command !== undefined && spawnSync(command, [...flags, '--pid', String(process.pid)]).status !== 0)
    throw new Error(`${command} cannot limit this process`)
  process.umask(0o077)
  process.setgroups?.([])
  process.setgid?.(uid)
  // Only who leaves root loses all capabilities with it.
  if (process.geteuid?.() !== 0) process.setuid?.(0)
  process.setuid?.(uid)
  const env = withUserFolders(process.env, user)
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name]
  Object.assign(process.env, env)
}
