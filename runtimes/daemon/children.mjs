/**
 * The processes that a process started, as far as the system tells. Page: runtimes/node.
 */

import { readdirSync, readFileSync } from 'node:fs'

/** @param {number} pid @returns {number[]} */
export function listChildren(pid) {
  const found = []
  for (const thread of read(() => readdirSync(`/proc/${pid}/task`), [])) {
    // A child belongs to the thread that started it.
    const children = read(() => readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8'), '')
    found.push(...children.split(' ').filter(Boolean).map(Number))
  }
  return found
}

/** False for one that has ended, also while nobody has asked for its exit code. @param {number} pid */
export function isRunning(pid) {
  const status = read(() => readFileSync(`/proc/${pid}/status`, 'utf8'), '')
  return status !== '' && !/^State:\s+[ZX]/m.test(status)
}

/**
 * @template T
 * @param {() => T} look
 * @param {T} otherwise - the process or thread has ended, or there is no /proc
 */
function read(look, otherwise) {
  try {
    return look()
  } catch {
    return otherwise
  }
}
