/**
 * The command line of a worker with the limits of this machine around it. Page: runtime/daemon.
 */

import { accessSync, constants, realpathSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { toPrlimit } from './user.mjs'

// `ulimit -d` bounds native memory too; the kernel's own victim choice falls on workers first; no core files.
const SHELL = '/bin/sh'
const LIMITS = 'ulimit -c 0 2>/dev/null; ulimit -d "$0" 2>/dev/null; echo 1000 2>/dev/null >/proc/self/oom_score_adj; '
// A file beyond its limit is an error of the write that the function can handle, as in node and python, and not the worker's end.
const FAIL_LARGE_WRITES = "trap '' XFSZ 2>/dev/null; "
/** The worker's parent stays: a handler that kills its parent then hits nobody else. */
const RUN_AS_SHELL = '"$@"; exit $?'
/**
 * Of GNU. It leads a process group in the session that it is started in, and neither node nor a shell without a terminal can do that: node knows
 * only how to begin a session, which Linux then gives as much of the processors as all of the gateway. No time limit; it ends as the worker does.
 */
const TIMEOUT = '/usr/bin/timeout'
const RUN_AS_GROUP = `exec ${TIMEOUT} 0 "$@"`

/**
 * The shell leads the group and adopts orphans of the worker (PR_SET_CHILD_SUBREAPER, 36), which node, shells and util-linux cannot ask for; perl
 * is where Debian and most others are. It also ends the shell with the daemon (PR_SET_PDEATHSIG, 1), which saves the start of setpriv.
 * What is left when the worker has ended ends here; the gateway ends what runs as a user of its own.
 */
const PERL = '/usr/bin/perl'
const ADOPT =
  '$p = shift @ARGV; syscall($p, 1, 9, 0, 0, 0); syscall($p, 36, 1, 0, 0, 0); setpgrp(0, 0); exec(@ARGV) or exit(127)'
/** Number of the syscall prctl. @type {Readonly<Record<string, number>>} */
const PRCTL = { x64: 157, arm64: 167, riscv64: 167, loong64: 167, ppc64: 171, s390x: 172 }
/** Each round forks once, because the shell reaps orphans only while it waits for a child. */
const END_ORPHANS =
  'i=0; while [ $i -lt 50 ]; do c=; read -r c </proc/$$/task/$$/children; [ "$c" ] || break; kill -9 $c || [ $i -lt 3 ] || break; (:); i=$((i+1)); done 2>/dev/null'
const RUN_AND_ADOPT = `trap : TERM HUP INT; "$@"; s=$?; ${END_ORPHANS}; exit $s`

/** Puts limits around command lines. */
export class Guard {
  /** Ends a process with its parent; null where the system has no such program. */
  #setpriv = process.platform === 'linux' ? findProgram('setpriv') : null
  /** False on systems of few files, such as some images: then a worker is a child of the daemon itself. */
  #hasShell = canRun(SHELL)
  /** Command line that makes a process a group's leader and the adopter of orphans; empty where the system has none. */
  #adopt = this.#hasShell ? toAdopter() : []
  /** The command line makes a process group in the daemon's session. Otherwise whoever starts it has to begin a session. */
  leadsGroup = this.#adopt.length > 0 || (this.#hasShell && process.platform === 'linux' && isProgramItself(TIMEOUT))
  /** Sets limits where no shell does; null where the system has no such program. */
  #prlimit = this.#hasShell ? null : findProgram('prlimit')

  /**
   * @param {string} command
   * @param {readonly string[]} args
   * @param {number} dataMb - megabytes of data the process may have; 0 means no limit
   * @param {import('./user.mjs').User | null} user - whom the command runs as, with no capability; null: as this process
   * @returns {[string, string[]]}
   */
  wrap(command, args, dataMb, user) {
    if (process.platform === 'win32') return [command, [...args]]
    // Each process dies with its parent, so all of them with the daemon, even when that is killed and cannot tell anybody.
    const bound = this.#setpriv === null ? [] : [this.#setpriv, '--pdeathsig', 'KILL', '--']
    const isLimited = dataMb > 0 && process.platform === 'linux'
    const line = this.#hasShell
      ? [
          ...(this.#adopt.length > 0 ? this.#adopt : bound),
          SHELL,
          '-c',
          (user?.limits.fsize === undefined ? '' : FAIL_LARGE_WRITES) +
            LIMITS +
            (this.#adopt.length > 0 ? RUN_AND_ADOPT : this.leadsGroup ? RUN_AS_GROUP : RUN_AS_SHELL),
          isLimited ? String(dataMb * 1024) : 'unlimited',
          ...this.#toUser(bound, user),
        ]
      : [...this.#toLimits(isLimited ? dataMb : 0), ...this.#toUser(bound, user)]
    const [program, ...words] = [...line, command, ...args]
    return [/** @type {string} */ (program), words]
  }

  /**
   * What the shell would have done for a process that has begun, and that only others can do.
   * @param {number} pid
   */
  settle(pid) {
    if (this.#hasShell || process.platform !== 'linux') return
    try {
      writeFileSync(`/proc/${pid}/oom_score_adj`, '1000')
    } catch {
      // It has ended, or runs as a user of its own.
    }
  }

  /** @param {number} dataMb - 0 means no limit */
  #toLimits(dataMb) {
    if (this.#prlimit === null) return []
    return [this.#prlimit, '--core=0', ...(dataMb > 0 ? [`--data=${dataMb * 1024 * 1024}`] : []), '--']
  }

  /**
   * @param {string[]} bound - command line that ends a process with its parent
   * @param {import('./user.mjs').User | null} user
   */
  #toUser(bound, user) {
    if (user === null) return bound
    const { uid, limits } = user
    if (this.#setpriv === null) throw new Error(`a worker cannot run as user ${uid}: there is no setpriv (util-linux)`)
    const become = ['--reuid', String(uid), '--regid', String(uid), '--clear-groups']
    const limit = toPrlimit(limits)
    // As the user: of the daemon's there may be more processes than one function may have.
    return [...bound.slice(0, -1), ...become, '--inh-caps=-all', '--ambient-caps=-all', '--', ...limit]
  }
}

function toAdopter() {
  const number = PRCTL[process.arch]
  return process.platform === 'linux' && number !== undefined && canRun(PERL) ? [PERL, '-e', ADOPT, String(number)] : []
}

/**
 * @param {string} name
 * @returns {string | null} full path of a program on PATH
 */
function findProgram(name) {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, name)
    if (canRun(path)) return path
  }
  return null
}

/** @param {string} path */
function canRun(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** False for a link: one program that goes by many names (busybox, a rewrite) does less under this one. @param {string} path */
function isProgramItself(path) {
  try {
    return canRun(path) && realpathSync(path) === path
  } catch {
    return false
  }
}
