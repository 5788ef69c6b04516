/**
 * Slots and queue of each function, one counter for every door. Spec: §2.8, §3 admission rows.
 *
 *   enter ──run──► active ──leave──► gone          leave also admits the first of the queue
 *     ├──queue──► queued ──(slot free)──► active
 *     │             ├──queue_timeout_ms──► refused
 *     │             └──leave (client left)──► gone
 *     └──reject──► refused
 *
 * A call is in exactly one of these states, and `leave` may be called in any of them, any number of times: whatever path
 * a call takes, its slot comes back once.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { CallPhase } from '../runtime/call.ts'
import { nextAdmission } from '../core/transitions.ts'
import { type AdmissionLimits, toAdmissionLimits } from './policy.ts'

/** A call as admission sees it. All fields but `fn` and `phase` belong to this module. */
export interface AdmissionCall {
  readonly fn: FunctionVersion
  /** `queued` and `admitted` are set here. */
  phase: CallPhase
  /** Where it is queued or has its slot, which may be in another process; null before and after. */
  slots: object | null
  queuePrevious: AdmissionCall | null
  queueNext: AdmissionCall | null
  queueTimer: NodeJS.Timeout | null
  /** A queued call got its slot. */
  onAdmitted(): void
  /** A queued call waited too long; it has left the queue already. */
  onRefused(error: GatewayError): void
}

/** Slots and queue of one function. */
interface FunctionSlots {
  readonly key: string
  /** The version whose policy made `limits`: a reload brings another object. */
  fn: FunctionVersion
  limits: AdmissionLimits
  active: number
  queued: number
  first: AdmissionCall | null
  last: AdmissionCall | null
  /** True while the queue is being admitted: a call that ends at once must not start a second round inside the first. */
  admitting: boolean
  /** Runs once when a call may enter again; null without one. */
  onRoom: (() => void) | null
  overflows: number
  queueTimeouts: number
  /** Of `active`, slots that other processes of the gateway may use as they like until they are asked back. */
  leased: number
  /** Calls that run on those, as reported last. */
  usedElsewhere: number
  /** True while leased slots are asked back: calls without a slot wait, whatever the queue's length. */
  isRecalling: boolean
}

/** One function in health and metrics. */
export interface AdmissionSnapshot {
  key: string
  active: number
  queued: number
  max_workers: number
  max_queue: number
  overflows: number
  queue_timeouts: number
}

function decide({ active, queued, limits: { maxWorkers, maxQueue } }: FunctionSlots) {
  return nextAdmission({ active, queued, maxWorkers, maxQueue })
}

function hasRoom(slots: FunctionSlots): boolean {
  const decision = decide(slots)
  return decision === 'run' || (decision === 'queue' && slots.limits.queueTimeoutMs > 0)
}

/** Admission of all functions of a gateway. */
export class Admission {
  readonly #clock: Clock
  readonly #functions = new Map<string, FunctionSlots>()
  /** Asks leased slots of a function back; `settleRecall` follows. Null where none are leased. */
  onRecall: ((key: string) => void) | null = null

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Asks for a slot.
   * @returns null when the call may run now; the refusal when it may not; `'queued'` when `onAdmitted` or `onRefused`
   *   follows, unless `leave` comes first
   */
  enter(call: AdmissionCall): null | 'queued' | GatewayError {
    const slots = this.#slotsOf(call.fn)
    const { limits } = slots
    const decision = decide(slots)
    if (decision === 'run') {
      slots.active += 1
      call.slots = slots
      call.phase = 'admitted'
      return null
    }
    if (slots.leased > 0) {
      this.#append(slots, call)
      this.#recall(slots)
      return 'queued'
    }
    if (decision === 'reject') {
      slots.overflows += 1
      return limits.overflow
    }
    if (limits.queueTimeoutMs <= 0) {
      slots.queueTimeouts += 1
      return limits.queueTimeout
    }
    this.#append(slots, call)
    this.#limitWait(slots, call)
    return 'queued'
  }

  /** Gives back the slot or leaves the queue; does nothing for a call that has neither. */
  leave(call: AdmissionCall): void {
    const slots = call.slots as FunctionSlots | null
    if (slots === null) return
    call.slots = null
    if (call.phase === 'queued') this.#unlink(slots, call)
    else slots.active -= 1
    if (slots.queued > 0) this.#admit(slots)
    if (slots.onRoom !== null) this.#announceRoom(slots)
  }

  /** True when a call would run or may wait: `enter` would not refuse it now. */
  canEnter(fn: FunctionVersion): boolean {
    const slots = this.#functions.get(fn.key)
    if (slots === undefined || hasRoom(slots)) return true
    if (slots.leased > 0) this.#recall(slots)
    return false
  }

  /** Calls back once, when `canEnter` has become true or may have. One asker a function. */
  onceRoom(fn: FunctionVersion, callback: () => void): void {
    this.#slotsOf(fn).onRoom = callback
  }

  #announceRoom(slots: FunctionSlots): void {
    if (!hasRoom(slots)) return
    const callback = slots.onRoom
    slots.onRoom = null
    callback?.()
  }

  /**
   * A reload: counters stay, limits follow the new policies, and a higher limit lets waiting calls in at once.
   * @param functions - the new catalog's versions by key
   */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    for (const [key, slots] of this.#functions) {
      const fn = functions.get(key)
      if (fn === undefined) {
        if (slots.active === 0 && slots.queued === 0) this.#functions.delete(key)
      } else if (fn !== slots.fn) {
        slots.fn = fn
        slots.limits = toAdmissionLimits(fn.policy)
        this.#admit(slots)
        this.#announceRoom(slots)
      }
    }
  }

  /** Functions that were called, by key. */
  snapshot(): AdmissionSnapshot[] {
    return [...this.#functions.values()]
      .map(slots => ({
        key: slots.key,
        active: slots.active - slots.leased + slots.usedElsewhere,
        queued: slots.queued,
        max_workers: slots.limits.maxWorkers,
        max_queue: slots.limits.maxQueue,
        overflows: slots.overflows,
        queue_timeouts: slots.queueTimeouts,
      }))
      .sort((a, b) => (a.key < b.key ? -1 : 1))
  }

  /** Functions with calls that wait for a slot, and how many. */
  *waiting(): Generator<readonly [key: string, queued: number]> {
    for (const slots of this.#functions.values()) if (slots.queued > 0) yield [slots.key, slots.queued]
  }

  /** Calls running and waiting over all functions, and slots that are leased. */
  total(): number {
    let total = 0
    for (const slots of this.#functions.values()) total += slots.active + slots.queued
    return total
  }

  #slotsOf(fn: FunctionVersion): FunctionSlots {
    const known = this.#functions.get(fn.key)
    if (known !== undefined) return known
    const slots: FunctionSlots = {
      key: fn.key,
      fn,
      limits: toAdmissionLimits(fn.policy),
      active: 0,
      queued: 0,
      first: null,
      last: null,
      admitting: false,
      onRoom: null,
      overflows: 0,
      queueTimeouts: 0,
      leased: 0,
      usedElsewhere: 0,
      isRecalling: false,
    }
    this.#functions.set(fn.key, slots)
    return slots
  }

  /**
   * Hands free slots to another process.
   * @returns how many; 0 while calls wait. Of an unlimited function none need be handed over
   */
  lease(fn: FunctionVersion, most: number): number {
    const slots = this.#slotsOf(fn)
    const { maxWorkers } = slots.limits
    if (slots.queued > 0 || slots.isRecalling || maxWorkers === 0) return 0
    const count = Math.max(0, Math.min(most, maxWorkers - slots.active))
    slots.active += count
    slots.leased += count
    return count
  }

  /** Leased slots come back: `free` of them at once, `used` ones by `giveBack`, each when its call ends. */
  endLease(key: string, free: number, used: number): void {
    const slots = this.#functions.get(key)
    if (slots === undefined) return
    slots.leased -= free + used
    slots.active -= free
    this.#admit(slots)
    if (slots.leased === 0) this.settleRecall(key)
    if (slots.onRoom !== null) this.#announceRoom(slots)
  }

  giveBack(key: string, count: number): void {
    const slots = this.#functions.get(key)
    if (slots === undefined) return
    slots.active -= count
    if (slots.queued > 0) this.#admit(slots)
    if (slots.onRoom !== null) this.#announceRoom(slots)
  }

  /** How many calls of a function run on leased slots: for those who look. */
  noteElsewhere(key: string, count: number): void {
    const slots = this.#functions.get(key)
    if (slots !== undefined) slots.usedElsewhere = count
  }

  /** The leased slots that came back are in: calls that still have no slot wait in the queue, as far as it goes, and the others are refused. */
  settleRecall(key: string): void {
    const slots = this.#functions.get(key)
    if (slots === undefined || !slots.isRecalling) return
    slots.isRecalling = false
    const refused: AdmissionCall[] = []
    const { maxQueue, queueTimeoutMs, overflow, queueTimeout } = slots.limits
    let place = 0
    for (let call = slots.first; call !== null; call = call.queueNext) {
      place += 1
      if (call.queueTimer !== null) continue
      if (place > maxQueue || queueTimeoutMs <= 0) {
        refused.push(call)
        place -= 1
      } else this.#limitWait(slots, call)
    }
    for (const call of refused) {
      const isFull = place >= maxQueue
      if (isFull) slots.overflows += 1
      else slots.queueTimeouts += 1
      this.leave(call)
      call.onRefused(isFull ? overflow : queueTimeout)
    }
  }

  #recall(slots: FunctionSlots): void {
    if (slots.isRecalling) return
    slots.isRecalling = true
    this.onRecall?.(slots.key)
  }

  #append(slots: FunctionSlots, call: AdmissionCall): void {
    call.slots = slots
    call.phase = 'queued'
    call.queuePrevious = slots.last
    call.queueNext = null
    if (slots.last === null) slots.first = call
    else slots.last.queueNext = call
    slots.last = call
    slots.queued += 1
  }

  #limitWait(slots: FunctionSlots, call: AdmissionCall): void {
    const { limits } = slots
    call.queueTimer = this.#clock.setTimeout(() => {
      slots.queueTimeouts += 1
      this.leave(call)
      call.onRefused(limits.queueTimeout)
    }, limits.queueTimeoutMs)
  }

  #unlink(slots: FunctionSlots, call: AdmissionCall): void {
    if (call.queueTimer !== null) this.#clock.clearTimeout(call.queueTimer)
    call.queueTimer = null
    if (call.queuePrevious === null) slots.first = call.queueNext
    else call.queuePrevious.queueNext = call.queueNext
    if (call.queueNext === null) slots.last = call.queuePrevious
    else call.queueNext.queuePrevious = call.queuePrevious
    call.queuePrevious = null
    call.queueNext = null
    slots.queued -= 1
  }

  /** Lets waiting calls in, first come first served, as far as there is room. */
  #admit(slots: FunctionSlots): void {
    if (slots.admitting) return
    slots.admitting = true
    try {
      while (slots.first !== null) {
        const { maxWorkers } = slots.limits
        if (maxWorkers !== 0 && slots.active >= maxWorkers) break
        const call = slots.first
        this.#unlink(slots, call)
        slots.active += 1
        call.phase = 'admitted'
        call.onAdmitted()
      }
    } finally {
      slots.admitting = false
    }
  }
}
