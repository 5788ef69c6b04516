/** Which process this is, and whether another one still lives: a number alone is soon somebody else's. Page files/root-lock. */

import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

/** A process as others on this machine, and later, can tell it from every other one. */
export interface ProcessMark {
  pid: number
  host: string
  /** When it began, in the kernel's count; null where the system does not tell. */
  started: string | null
  /** The run of the machine, and the namespace in which `pid` is meant; null where the system does not tell. */
  boot: string | null
  space: string | null
}

export function ownMark(): ProcessMark {
  return {
    pid: process.pid,
    host: hostname(),
    started: startOf(process.pid)?.started ?? null,
    boot: readOrNull(() => readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()),
    space: readOrNull(() => readlinkSync('/proc/self/ns/pid')),
  }
}

/** True or false where that can be told; null for a process of another machine, container or run of this machine. */
export function isAlive(mark: ProcessMark, own: ProcessMark = ownMark()): boolean | null {
  if (mark.host !== own.host || mark.boot !== own.boot || mark.space !== own.space) return null
  if (own.started === null) return answersSignal(mark.pid)
  const found = startOf(mark.pid)
  return found !== null && found.started === mark.started && !found.isGone
}

/** Field 22 of `/proc/<pid>/stat`; a process that ended and was not waited for yet is gone. */
function startOf(pid: number): { started: string; isGone: boolean } | null {
  const text = readOrNull(() => readFileSync(`/proc/${pid}/stat`, 'latin1'))
  if (text === null) return null
  // The name of the program, in brackets, may hold anything.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { started: fields[19] ?? '', isGone: fields[0] === 'Z' || fields[0] === 'X' }
}

function answersSignal(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function readOrNull(read: () => string): string | null {
  try {
    return read()
  } catch {
    return null
  }
}
