/**
 * A lock, so that one gateway at a time keeps what is in `.svc` of a functions root: jobs, schedules. Owner: page files/root-lock.
 *
 *   draft ─link─► gateway.lock      complete at once; fails when it is taken
 *                     │ its process is gone
 *                     └─► gateway.lock.<id of the dead holder>   the right to remove it, a lock of the same kind
 *
 * A gateway that finds the lock of a dead holder cannot simply remove it: another gateway may have removed it and taken the lock since
 * the check. So it takes the right to remove exactly that lock first, and checks the lock again.
 */

import { randomBytes } from 'node:crypto'
import { linkSync, openSync, readFileSync, readlinkSync, rmSync, type Stats, writeFileSync } from 'node:fs'
import { utimes } from 'node:fs/promises'
import { hostname } from 'node:os'
import { type Clock, Timer } from '../core/clock.ts'
import { orNull } from '../core/errors.ts'
import { parseObject } from '../core/json.ts'
import { closing, nullFor, type OwnFolder } from './own-folder.ts'

const NAME = 'gateway.lock'
/** Milliseconds between two signs of life, each with a check of the lock. */
export const LOCK_BEAT_MS = 1000
/** Milliseconds without one after which a holder on another machine counts as gone. */
export const LOCK_SILENCE_MS = 30_000
/** Dead holders of the right to remove a dead holder's lock, and so on. */
const MAX_DEAD = 16
/** Errors of file systems without hard links. */
const WITHOUT_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK']

export interface LockHolder extends ProcessMark {
  /** Differs each time the lock is taken. */
  id: string
  /** Wall clock, ms. */
  since: number
}

/**
 * The folder was deleted or moved while the lock was held.
 * @param holder - has taken the lock meanwhile; null when it was taken again, in a folder without any other file
 */
type LockListener = (holder: LockHolder | null) => void

/** The lock of one functions root; the parts of a gateway share one object. */
export class RootLock {
  readonly #folder: OwnFolder
  readonly #clock: Clock
  readonly #link: typeof linkSync
  readonly #timer: Timer
  #held: LockHolder | null = null
  readonly #listeners = new Set<LockListener>()

  /**
   * @param folder - `.svc` of the root; made when the lock is taken
   * @param link - makes a hard link, where the file system can
   */
  constructor(folder: OwnFolder, clock: Clock, link: typeof linkSync = linkSync) {
    this.#folder = folder
    this.#clock = clock
    this.#link = link
    this.#timer = new Timer(clock, true)
  }

  get isHeld(): boolean {
    return this.#held !== null
  }

  /**
   * Takes the lock, unless this object has it already.
   * @returns null when this object has it; else the other holder
   * @throws UnsafePathError for a link or folder in its place; Error of the file system when nothing can be written
   */
  acquire(): LockHolder | null {
    if (this.#held !== null) return null
    this.#folder.make()
    const mine: LockHolder = { ...ownMark(), id: randomBytes(8).toString('hex'), since: this.#clock.wall() }
    const holder = this.#take(NAME, mine, 0)
    if (holder !== null) return holder
    this.#held = mine
    this.#timer.repeat(LOCK_BEAT_MS, () => this.#beat())
    return null
  }

  /** @returns a function that removes the listener */
  onReplaced(listener: LockListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Checks whether the lock still exists, and takes it again when the folder was deleted or moved.
   * @returns another gateway that has it now; null when it is held here, or was never taken
   */
  check(): LockHolder | null {
    const held = this.#held
    if (held === null) return null
    try {
      if (this.#read(NAME)?.id === held.id) return null
      this.#folder.make()
      const holder = this.#take(NAME, held, 0)
      if (holder !== null) this.#drop()
      for (const listener of [...this.#listeners]) listener(holder)
      return holder
    } catch {
      // Nothing can be written there, by another gateway neither: the next check tries again.
      return null
    }
  }

  /** The holder in the file and whether it is alive, without taking the lock; null without a lock. */
  look(): { holder: LockHolder; isAlive: boolean } | null {
    const holder = this.#read(NAME)
    return holder === null ? null : { holder, isAlive: this.#isAlive(NAME, holder) }
  }

  release(): void {
    const held = this.#held
    this.#drop()
    if (held !== null && this.#read(NAME)?.id === held.id) this.#folder.remove(NAME)
  }

  #drop(): void {
    this.#timer.clear()
    this.#held = null
  }

  #take(name: string, mine: LockHolder, dead: number): LockHolder | null {
    for (;;) {
      if (this.#create(name, mine)) return null
      const holder = this.#read(name)
      if (holder === null) continue
      if (dead === MAX_DEAD || this.#isAlive(name, holder)) return holder
      const right = `${NAME}.${holder.id}`
      const rival = this.#take(right, mine, dead + 1)
      // Another gateway is about to remove the lock and may take it then.
      if (rival !== null) return rival
      try {
        if (this.#read(name)?.id === holder.id) this.#folder.remove(name)
      } finally {
        this.#folder.remove(right)
      }
    }
  }

  /** @returns false when the name is taken */
  #create(name: string, mine: LockHolder): boolean {
    const text = JSON.stringify(mine)
    const path = this.#folder.pathOf(name)
    const draft = this.#folder.write(`.lock-${mine.id}`, text, 0o600)
    try {
      return nullFor(['EEXIST'], () => this.#link(draft, path)) !== null
    } catch (error) {
      if (!WITHOUT_LINKS.includes((error as NodeJS.ErrnoException).code ?? '')) throw error
      const file = nullFor(['EEXIST'], () => openSync(path, 'wx', 0o600))
      if (file !== null) closing(file, () => writeFileSync(file, text))
      return file !== null
    } finally {
      rmSync(draft, { force: true })
    }
  }

  /** @returns null when it is gone. A lock that cannot be read was cut off by a crash of the machine; its age decides. */
  #read(name: string): LockHolder | null {
    const text = this.#stat(name) === null ? null : this.#folder.read(name)
    return text === null ? null : toHolder(parseObject(text.toString('utf8')))
  }

  #stat(name: string): Stats | null {
    return this.#folder.isThere() ? this.#folder.statFile(name) : null
  }

  #isAlive(name: string, holder: LockHolder): boolean {
    const known = isAlive(holder)
    if (known !== null) return known
    // Of a process in another container or machine that shares the folder, only the signs of life can be seen.
    const stats = this.#stat(name)
    return stats !== null && Math.abs(this.#clock.wall() - stats.mtimeMs) < LOCK_SILENCE_MS
  }

  #beat(): void {
    if (this.check() !== null) return
    const now = this.#clock.wall() / 1000
    utimes(this.#folder.pathOf(NAME), now, now).catch(() => {})
  }
}

function toHolder(value: Record<string, unknown> | null): LockHolder {
  const { id, pid, host } = value ?? {}
  const isHolder =
    typeof id === 'string' && /^[0-9a-f]{16}$/.test(id) && typeof pid === 'number' && typeof host === 'string'
  if (isHolder) return value as unknown as LockHolder
  return { id: 'unreadable', pid: 0, host: '', started: null, boot: null, space: null, since: 0 }
}

/** Identifies a process, also after its pid was given to another one. */
export interface ProcessMark {
  pid: number
  host: string
  /** Start time in the kernel's count; null where the system does not report it. */
  started: string | null
  /** The run of the machine, and the namespace of `pid`; null where the system does not report it. */
  boot: string | null
  space: string | null
}

export function ownMark(): ProcessMark {
  return {
    pid: process.pid,
    host: hostname(),
    started: startOf(process.pid)?.started ?? null,
    boot: orNull(() => readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()),
    space: orNull(() => readlinkSync('/proc/self/ns/pid')),
  }
}

/** null when unknown: for a process of another machine, container or run of this machine. */
export function isAlive(mark: ProcessMark, own: ProcessMark = ownMark()): boolean | null {
  if (mark.host !== own.host || mark.boot !== own.boot || mark.space !== own.space) return null
  if (own.started === null) return acceptsSignal(mark.pid)
  const found = startOf(mark.pid)
  return found !== null && found.started === mark.started && !found.isGone
}

/** Field 22 of `/proc/<pid>/stat`; a process that ended and was not waited for yet is gone. */
function startOf(pid: number): { started: string; isGone: boolean } | null {
  const text = orNull(() => readFileSync(`/proc/${pid}/stat`, 'latin1'))
  if (text === null) return null
  // The name of the program, in brackets, may contain anything.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { started: fields[19] ?? '', isGone: fields[0] === 'Z' || fields[0] === 'X' }
}

function acceptsSignal(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
