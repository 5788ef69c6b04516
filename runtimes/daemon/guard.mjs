/**
 * The command line of a worker with the limits of this machine around it. Page: runtime/daemon.
 */

import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

// `ulimit -d` bounds native memory too; the kernel's own victim choice falls on workers first; no core files. The shell
// stays as the worker's parent: a handler that kills its parent then hits nobody else.
const GUARD_SCRIPT =
  'ulimit -c 0 2>/dev/null; ulimit -d "$0" 2>/dev/null; echo 1000 2>/dev/null >/proc/self/oom_score_adj; "$@"; exit $?'

/** Puts limits around command lines. */
export class Guard {
  /** Ends a process with its parent; null where the system has no such program. */
  #setpriv = process.platform === 'linux' ? findProgram('setpriv') : null

  /**
   * @param {string} command
   * @param {readonly string[]} args
   * @param {number} dataMb - megabytes of data the process may have; 0 means no limit
   * @param {number | null} uid - user and group that the command runs as, with no capability; null: those of this process
   * @returns {[string, string[]]}
   */
  wrap(command, args, dataMb, uid) {
    if (process.platform === 'win32') return [command, [...args]]
    // Each process dies with its parent, so all of them with the daemon, even when that is killed and cannot tell anybody.
    const bound = this.#setpriv === null ? [] : [this.#setpriv, '--pdeathsig', 'KILL', '--']
    const limit = dataMb > 0 && process.platform === 'linux' ? String(dataMb * 1024) : 'unlimited'
    const line = [...bound, '/bin/sh', '-c', GUARD_SCRIPT, limit, ...this.#toUser(bound, uid), command, ...args]
    return [/** @type {string} */ (line[0]), line.slice(1)]
  }

  /**
   * @param {string[]} bound - command line that ends a process with its parent
   * @param {number | null} uid
   */
  #toUser(bound, uid) {
    if (uid === null) return bound
    if (this.#setpriv === null) throw new Error(`a worker cannot run as user ${uid}: there is no setpriv (util-linux)`)
    const user = ['--reuid', String(uid), '--regid', String(uid), '--clear-groups']
    return [...bound.slice(0, -1), ...user, '--inh-caps=-all', '--ambient-caps=-all', '--']
  }
}

/**
 * @param {string} name
 * @returns {string | null} full path of a program on PATH
 */
function findProgram(name) {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, name)
    try {
      accessSync(path, constants.X_OK)
      return path
    } catch {
      // Not in this folder.
    }
  }
  return null
}
