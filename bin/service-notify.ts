/**
 * Notifies a service manager (`sd_notify`): ready, stopping, still alive. node has no sockets of the kind that
 * systemd listens on, so its own program `systemd-notify` is asked; it is there where systemd is. Owner: page bin/production.
 */

import { spawn } from 'node:child_process'
import { findOnPath } from '../lib/runtime/binaries.ts'

type Env = Record<string, string | undefined>

type Warn = (text: string) => void

interface ServiceNotify {
  /** @param warn - called with the reason when notifications are disabled */
  ready(status: string, warn: Warn): void
  stopping(): void
  /** Resolves when every notification is sent. */
  close(): Promise<void>
}

const VARIABLES = ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']
const MISSING =
  'NOTIFY_SOCKET is set and systemd-notify is not installed: the service manager is not notified; use Type=exec in the unit'
const SILENT: ServiceNotify = { ready: () => {}, stopping: () => {}, close: () => Promise.resolve() }

/**
 * Takes the variables away: what is started from here is not to speak for the service.
 * @param env - of this process
 */
export function takeServiceNotify(env: Env, pid: number): ServiceNotify {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: watchdog, WATCHDOG_PID: watched } = env
  for (const name of VARIABLES) delete env[name]
  if (socket === undefined || socket === '') return SILENT
  const program = findOnPath('systemd-notify', env.PATH ?? '')
  if (program === null) return { ...SILENT, ready: (_status, warn) => warn(MISSING) }
  const aliveMs = watched === undefined || watched === String(pid) ? toAliveMs(watchdog) : null
  return createNotify((words, done) => {
    const child = spawn(program, words, { env: { PATH: env.PATH, NOTIFY_SOCKET: socket }, stdio: 'ignore' })
    child.once('error', error => done(error.message))
    child.once('close', code => done(code === 0 ? null : `it ended with ${code}`))
  }, aliveMs)
}

/** Milliseconds between two signs of life, half of what the manager waits. */
function toAliveMs(usec: string | undefined): number | null {
  const ms = Number(usec) / 2000
  return Number.isFinite(ms) && ms >= 1 ? ms : null
}

type Notify = (words: readonly string[], done: (failure: string | null) => void) => void

function createNotify(notify: Notify, aliveMs: number | null): ServiceNotify {
  let warn: Warn = () => {}
  let last: Promise<void> = Promise.resolve()
  let alive: NodeJS.Timeout | null = null
  let hasFailed = false
  // One after the other: a late READY=1 must not undo a STOPPING=1.
  const say = (...words: string[]): void => {
    const before = last
    last = before.then(
      () =>
        new Promise<void>(resolve => {
          notify(words, failure => {
            if (failure !== null && !hasFailed) warn(`systemd-notify ${words.join(' ')}: ${failure}`)
            hasFailed ||= failure !== null
            resolve()
          })
        }),
    )
  }
  return {
    ready(status, onProblem) {
      warn = onProblem
      say('READY=1', `STATUS=${status}`)
      if (aliveMs !== null) alive = setInterval(() => say('WATCHDOG=1'), aliveMs).unref()
    },
    stopping: () => say('STOPPING=1', 'STATUS=finishing what runs'),
    close() {
      if (alive !== null) clearInterval(alive)
      return last
    },
  }
}
