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
 *
 * Waiting calls cost no timer each: one timer per function runs until the first of them has to be refused.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { CallPhase } from '../runtime/call.ts'
import { nextAdmission } from '../core/transitions.ts'
import { type AdmissionLimits, toAdmissionLimits } from './policy.ts'

/** A call as admission sees it. `slots`, `queue...`, `enteredAt` and `refuseAt` belong to this module. */
export interface AdmissionCall {
  readonly fn: FunctionVersion
  /** `queued` and `admitted` are set here. */
  phase: CallPhase
  /** Monotonic ms when it may run; 0 when that is not known. Set here for a call that waited. */
  handedAt: number
  /** True when its worker had to start for it: its duration says nothing about the next one. */
  readonly cold: boolean
  /** Where it is queued or has its slot, which may be in another process; null before and after. */
  slots: object | null
  queuePrevious: AdmissionCall | null
  queueNext: AdmissionCall | null
  /** Monotonic ms when it began to wait, and when it is refused. */
  enteredAt: number
  refuseAt: number
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
  /** Runs until `refuseAt` of a waiting call. */
  readonly timer: Timer
  timerAt: number
  /** Milliseconds that calls keep their slot, measured while others wait; 0 before that. */
  meanMs: number
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
export type AdmissionSnapshot = ReturnType<Admission['snapshot']>[number]

/** Weight of one duration in the mean. */
const MEAN_SHARE = 1 / 16

/** Milliseconds until a call that arrives now would have a slot; 0 when nothing was measured. */
function expectedWaitMs({ queued, meanMs, limits: { maxWorkers } }: FunctionSlots): number {
  return queued === 0 ? 0 : (queued / maxWorkers) * meanMs
}

/**
 * A queue whose first call has waited too long does not drain by itself: newcomers are refused. An expected wait must not decide
 * this: refused clients that try again at once would slow the function, and so confirm it.
 * @param now - monotonic ms
 */
function decide({ active, queued, first, meanMs, limits }: FunctionSlots, now: number) {
  const { maxWorkers, maxQueue, maxWaitMs } = limits
  const decision = nextAdmission({ active, queued, maxWorkers, maxQueue })
  // Before a call has ended its worker may be starting.
  const isStanding = first !== null && meanMs > 0 && now - first.enteredAt > maxWaitMs
  return decision === 'queue' && isStanding ? 'reject' : decision
}

function hasRoom(slots: FunctionSlots, now: number): boolean {
  const decision = decide(slots, now)
  return decision === 'run' || (decision === 'queue' && slots.limits.queueTimeoutMs > 0)
}

function noteDuration(slots: FunctionSlots, ms: number): void {
  slots.meanMs = slots.meanMs === 0 ? ms : slots.meanMs + (ms - slots.meanMs) * MEAN_SHARE
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
    const decision = decide(slots, call.handedAt || this.#clock.monotonic())
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
      return limits.overflow(expectedWaitMs(slots))
    }
    if (limits.queueTimeoutMs <= 0) {
      slots.queueTimeouts += 1
      return limits.queueTimeout(0)
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
    if (slots.queued > 0) {
      const now = this.#clock.monotonic()
      if (call.phase !== 'queued' && call.handedAt > 0 && !call.cold) noteDuration(slots, now - call.handedAt)
      this.#admit(slots, now)
    }
    if (slots.onRoom !== null) this.#announceRoom(slots)
  }

  /** True when a call would run or may wait: `enter` would not refuse it now. */
  canEnter(fn: FunctionVersion): boolean {
    const slots = this.#functions.get(fn.key)
    if (slots === undefined || hasRoom(slots, this.#clock.monotonic())) return true
    if (slots.leased > 0) this.#recall(slots)
    return false
  }

  /** Calls back once, when `canEnter` has become true or may have. One asker a function. */
  onceRoom(fn: FunctionVersion, callback: () => void): void {
    this.#slotsOf(fn).onRoom = callback
  }

  #announceRoom(slots: FunctionSlots): void {
    if (!hasRoom(slots, this.#clock.monotonic())) return
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
  snapshot() {
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
      timer: new Timer(this.#clock, true),
      timerAt: Number.POSITIVE_INFINITY,
      meanMs: 0,
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
      if (call.refuseAt !== Number.POSITIVE_INFINITY) continue
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
      call.onRefused((isFull ? overflow : queueTimeout)(expectedWaitMs(slots)))
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
    call.enteredAt = call.handedAt || this.#clock.monotonic()
    call.refuseAt = Number.POSITIVE_INFINITY
  }

  #limitWait(slots: FunctionSlots, call: AdmissionCall): void {
    call.refuseAt = call.enteredAt + slots.limits.queueTimeoutMs
    // A call that is let in leaves the timer alone unless none waits any more: it looks at those that wait when it fires.
    if (call.refuseAt < slots.timerAt) this.#setTimer(slots, call.refuseAt)
  }

  #setTimer(slots: FunctionSlots, at: number): void {
    slots.timerAt = at
    slots.timer.set(Math.max(0, at - this.#clock.monotonic()), () => this.#refuseLate(slots))
  }

  /** Refuses the calls that have waited too long. A reload may have given later ones less time. */
  #refuseLate(slots: FunctionSlots): void {
    const now = this.#clock.monotonic()
    const late: AdmissionCall[] = []
    let next = Number.POSITIVE_INFINITY
    for (let call = slots.first; call !== null; call = call.queueNext) {
      if (call.refuseAt <= now) late.push(call)
      else next = Math.min(next, call.refuseAt)
    }
    slots.timerAt = Number.POSITIVE_INFINITY
    if (next < Number.POSITIVE_INFINITY) this.#setTimer(slots, next)
    for (const call of late) {
      // A refusal before may have made it leave.
      if (call.slots !== slots) continue
      slots.queueTimeouts += 1
      this.leave(call)
      call.onRefused(slots.limits.queueTimeout(expectedWaitMs(slots)))
    }
  }

  #unlink(slots: FunctionSlots, call: AdmissionCall): void {
    if (call.queuePrevious === null) slots.first = call.queueNext
    else call.queuePrevious.queueNext = call.queueNext
    if (call.queueNext === null) slots.last = call.queuePrevious
    else call.queueNext.queuePrevious = call.queuePrevious
    call.queuePrevious = null
    call.queueNext = null
    slots.queued -= 1
    if (slots.queued > 0) return
    slots.timer.clear()
    slots.timerAt = Number.POSITIVE_INFINITY
  }

  /** Lets waiting calls in, first come first served, as far as there is room. */
  #admit(slots: FunctionSlots, now = this.#clock.monotonic()): void {
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
        call.handedAt = now
        call.onAdmitted()
      }
    } finally {
      slots.admitting = false
    }
  }
}
