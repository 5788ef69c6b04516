/**
 * Processes that a worker started and that left its group. Page: runtime/daemon.
 *
 *   while it runs   its descendants, by their parents
 *   after its end   processes with its mark in their environment; those of a user of its own the gateway ends
 */

import { readdirSync, readFileSync } from 'node:fs'
import { asUser } from './user.mjs'

/** Variable that marks the processes of one worker. */
export const MARK = 'FNGW_WORKER'
/** Looks after the end of a worker: what is killed may just have started another process. */
const MAX_ROUNDS = 20

/** @typedef {{ pid: number, parent: number }} Process */

/** Every process that the system shows; none where there is no /proc. @returns {Map<number, Process>} */
function listProcesses() {
  const found = new Map()
  for (const name of readOr(() => readdirSync('/proc'), [])) {
    if (!/^\d+$/.test(name)) continue
    const stat = readOr(() => readFileSync(`/proc/${name}/stat`, 'latin1'), '')
    // The command, in parentheses, may hold anything; state and parent are the fields behind it.
    const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (parent !== undefined && state !== 'Z') found.set(Number(name), { pid: Number(name), parent: Number(parent) })
  }
  return found
}

/** @param {number} pid @param {Map<number, Process>} processes */
function isBelow(pid, processes, /** @type {number} */ ancestor) {
  for (let at = processes.get(pid); at !== undefined; at = processes.get(at.parent)) {
    if (at.parent === ancestor) return true
  }
  return false
}

/** Kills what a process started, and what that started. @param {number} pid @param {number | null} uid - whom they may run as */
export function killDescendants(pid, uid) {
  const processes = listProcesses()
  for (const one of processes.keys()) if (isBelow(one, processes, pid)) kill(one, uid)
}

/** Kills what a worker that has ended left behind. @param {string} mark - of its environment */
export function killLeftovers(mark) {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const left = [...listProcesses().keys()].filter(pid => isMarked(pid, mark))
    if (left.length === 0) return
    for (const pid of left) kill(pid, null)
  }
}

/** @param {number} pid @param {string} mark */
function isMarked(pid, mark) {
  return readOr(() => readFileSync(`/proc/${pid}/environ`, 'latin1'), '')
    .split('\0')
    .includes(`${MARK}=${mark}`)
}

/** @param {number} pid @param {number | null} uid */
function kill(pid, uid) {
  asUser(uid, () => {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // Gone meanwhile.
    }
  })
}

/**
 * @template T
 * @param {() => T} look
 * @param {T} otherwise - the process has ended, belongs to another user, or there is no /proc
 */
function readOr(look, otherwise) {
  try {
    return look()
  } catch {
    return otherwise
  }
}
