/** Listening sockets that a service manager hands over: `LISTEN_FDS` as systemd sets it. Owner: page bin/production. */

import type { HandedSockets } from '../lib/index.ts'
import { CommandError } from './usage-error.ts'

type Env = Record<string, string | undefined>

/** The first descriptor behind standard input, output and error. */
const FIRST_FD = 3
const MAX_SOCKETS = 64
/** Name of the socket that serves the control plane alone. */
const CONTROL = 'control'
/** Stands for the id of a process that does not know its own yet: it runs as another user of this one. */
const SUCCESSOR = 'successor'
const VARIABLES = ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']

/**
 * Takes what is meant for this process, and takes the variables away: what is started from here has no such sockets.
 * @param pid - of this process
 * @returns null when nothing was handed over
 * @throws CommandError when the variables contradict each other
 */
export function takeHandedSockets(env: Env, pid: number): HandedSockets | null {
  const fds = listFds(env, pid)
  const names = (env.LISTEN_FDNAMES ?? '').split(':')
  for (const name of VARIABLES) delete env[name]
  if (fds.length === 0) return null
  const hasNames = names.length > 1 || names[0] !== ''
  if (hasNames && names.length !== fds.length)
    throw new CommandError(
      `LISTEN_FDNAMES has ${names.length} names for ${fds.length} sockets: leave it out, or name each`,
    )
  const control = fds.filter((_fd, at) => names[at] === CONTROL)
  if (control.length > 1) throw new CommandError(`${control.length} sockets are named ${CONTROL}: one can be`)
  return { public: fds.filter(fd => !control.includes(fd)), control: control[0] ?? null }
}

/** Descriptors that are meant for the process `pid`. */
export function listFds({ LISTEN_PID, LISTEN_FDS }: Env, pid: number): number[] {
  if (LISTEN_FDS === undefined || (LISTEN_PID !== String(pid) && LISTEN_PID !== SUCCESSOR)) return []
  const count = /^\d{1,3}$/.test(LISTEN_FDS) ? Number(LISTEN_FDS) : Number.NaN
  if (!(count <= MAX_SOCKETS))
    throw new CommandError(`LISTEN_FDS must be a count from 0 to ${MAX_SOCKETS}, got ${JSON.stringify(LISTEN_FDS)}`)
  return Array.from({ length: count }, (_, at) => FIRST_FD + at)
}

/** The environment of a process that replaces this one and inherits its descriptors. */
export function toSuccessorEnv(env: Env): Env {
  return { ...env, LISTEN_PID: SUCCESSOR }
}
