/**
 * One gateway at a time keeps what lives in `.svc` of a functions root: jobs, schedules. Owner: page files/root-lock.
 *
 *   draft ─link─► gateway.lock      made whole at once; fails when it is taken
 *                     │ its process is gone
 *                     └─► gateway.lock.<id of the dead one>   the right to remove it, itself such a lock
 *
 * A gateway that finds a dead holder's lock may not simply remove it: between the check and the removal another one may have done
 * so and taken the lock. So the right to remove exactly that one is taken first, and the lock is checked again.
 */

import { randomBytes } from 'node:crypto'
import { linkSync, openSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { utimes } from 'node:fs/promises'
import { hostname } from 'node:os'
import { askDisk, closing, type OwnFolder, UnsafePathError } from './own-folder.ts'

const NAME = 'gateway.lock'
/**
 * Milliseconds between two signs of life, each with a look whether the lock is still there; and without one after which a holder
 * that cannot be asked counts as gone.
 */
export const LOCK_BEAT_MS = 1000
export const LOCK_SILENCE_MS = 30_000
/** Dead holders of the right to remove a dead holder's lock, and so on. */
const MAX_DEAD = 16

/** Who has the lock. */
export interface LockHolder extends ProcessMark {
  /** Of this one taking of the lock. */
  id: string
  /** Wall clock, ms. */
  since: number
}

interface LockClock {
  wall(): number
  setTimeout(callback: () => void, ms: number): NodeJS.Timeout
  clearTimeout(timer: NodeJS.Timeout): void
}

/**
 * The folder was deleted or moved while the lock was held.
 * @param holder - who took the lock meanwhile; null when it was taken again, in a folder without any other file
 */
type LockListener = (holder: LockHolder | null) => void

/** The lock of one functions root; the parts of a gateway share one object. */
export class RootLock {
  readonly #folder: OwnFolder
  readonly #clock: LockClock
  readonly #link: typeof linkSync
  #held: LockHolder | null = null
  #timer: NodeJS.Timeout | null = null
  readonly #listeners = new Set<LockListener>()

  /**
   * @param folder - `.svc` of the root; made when the lock is asked for
   * @param link - gives a file a second name, where the file system can
   */
  constructor(folder: OwnFolder, clock: LockClock, link: typeof linkSync = linkSync) {
    this.#folder = folder
    this.#clock = clock
    this.#link = link
  }

  get isHeld(): boolean {
    return this.#held !== null
  }

  /**
   * Takes the lock, or finds that this object has it already.
   * @returns null when it is ours; else who has it
   * @throws UnsafePathError for a link or folder in its place; Error of the file system when nothing can be written
   */
  acquire(): LockHolder | null {
    if (this.#held !== null) return null
    this.#folder.make()
    const mine: LockHolder = { ...ownMark(), id: randomBytes(8).toString('hex'), since: this.#clock.wall() }
    const holder = this.#take(NAME, mine, 0)
    if (holder !== null) return holder
    this.#held = mine
    this.#beat()
    return null
  }

  /** @returns a function that ends it */
  onReplaced(listener: LockListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Looks whether the lock is still there, and takes it again when the folder was deleted or moved.
   * @returns who has it now; null when it is ours, or was never taken
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
      // Nothing can be written there, by another gateway neither: it is tried again.
      return null
    }
  }

  /** The holder that is written there and whether it lives, without taking the lock; null when there is none. */
  look(): { holder: LockHolder; isAlive: boolean } | null {
    const holder = this.#read(NAME)
    return holder === null ? null : { holder, isAlive: this.#isAlive(NAME, holder) }
  }

  /** Releases the lock. */
  release(): void {
    const held = this.#held
    this.#drop()
    if (held !== null && this.#read(NAME)?.id === held.id) this.#folder.remove(NAME)
  }

  #drop(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer)
    this.#timer = null
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
      // Another gateway is about to remove it and may have it then.
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
    const draft = `.lock-${mine.id}`
    const path = this.#folder.pathOf(name)
    const text = JSON.stringify(mine)
    this.#folder.write(draft, text, 0o600)
    try {
      this.#link(this.#folder.pathOf(draft), path)
      return true
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'EEXIST') return false
      if (!WITHOUT_LINKS.has(code ?? '')) throw error
      return createExclusively(path, text)
    } finally {
      rmSync(this.#folder.pathOf(draft), { force: true })
    }
  }

  /** @returns null when it is gone. A lock that cannot be read was cut off by a crash of the machine; its age decides. */
  #read(name: string): LockHolder | null {
    const entry = this.#folder.list(/^gateway\.lock/).find(one => one.name === name)
    if (entry === undefined) return null
    if (!entry.stats.isFile()) {
      const what = entry.stats.isSymbolicLink() ? 'a symbolic link' : 'a folder or device'
      throw new UnsafePathError(this.#folder.pathOf(name), `.svc/${name}`, what, 'a file')
    }
    const text = this.#folder.read(name)
    return text === null ? null : toHolder(text.toString('utf8'))
  }

  #isAlive(name: string, holder: LockHolder): boolean {
    const known = isAlive(holder)
    if (known !== null) return known
    // A process of another container or machine that shares the folder: only its signs of life can be seen.
    const entry = this.#folder.list(/^gateway\.lock/).find(one => one.name === name)
    return entry !== undefined && Math.abs(this.#clock.wall() - entry.stats.mtimeMs) < LOCK_SILENCE_MS
  }

  #beat(): void {
    this.#timer = this.#clock.setTimeout(() => {
      if (this.check() !== null) return
      const now = this.#clock.wall() / 1000
      utimes(this.#folder.pathOf(NAME), now, now).catch(() => {})
      this.#beat()
    }, LOCK_BEAT_MS)
    this.#timer.unref?.()
  }
}

/** Errors of file systems without hard links. */
const WITHOUT_LINKS: ReadonlySet<string> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'])

function createExclusively(path: string, text: string): boolean {
  let file: number
  try {
    file = openSync(path, 'wx', 0o600)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
  closing(file, () => writeFileSync(file, text))
  return true
}

function toHolder(text: string): LockHolder {
  try {
    const value: unknown = JSON.parse(text)
    if (isHolder(value)) return value
  } catch {
    // Handled below.
  }
  return { id: 'unreadable', pid: 0, host: '', started: null, boot: null, space: null, since: 0 }
}

function isHolder(value: unknown): value is LockHolder {
  const { id, pid, host } = (value ?? {}) as Partial<LockHolder>
  return typeof id === 'string' && /^[0-9a-f]{16}$/.test(id) && typeof pid === 'number' && typeof host === 'string'
}

/** Identifies a process, also after its pid was given to another one. */
export interface ProcessMark {
  pid: number
  host: string
  /** When it began, in the kernel's count; null where the system does not report it. */
  started: string | null
  /** The run of the machine, and the namespace in which `pid` is meant; null where the system does not report it. */
  boot: string | null
  space: string | null
}

export function ownMark(): ProcessMark {
  return {
    pid: process.pid,
    host: hostname(),
    started: startOf(process.pid)?.started ?? null,
    boot: askDisk(() => readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()),
    space: askDisk(() => readlinkSync('/proc/self/ns/pid')),
  }
}

/** True or false where that is known; null for a process of another machine, container or run of this machine. */
export function isAlive(mark: ProcessMark, own: ProcessMark = ownMark()): boolean | null {
  if (mark.host !== own.host || mark.boot !== own.boot || mark.space !== own.space) return null
  if (own.started === null) return answersSignal(mark.pid)
  const found = startOf(mark.pid)
  return found !== null && found.started === mark.started && !found.isGone
}

/** Field 22 of `/proc/<pid>/stat`; a process that ended and was not waited for yet is gone. */
function startOf(pid: number): { started: string; isGone: boolean } | null {
  const text = askDisk(() => readFileSync(`/proc/${pid}/stat`, 'latin1'))
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
