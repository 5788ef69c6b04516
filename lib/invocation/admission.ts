/**
 * Places and queue of each function, one counter for every door. Spec: §2.8, §3 admission rows.
 *
 *   enter ──run──► active ──leave──► gone          leave also admits the first of the queue
 *     ├──queue──► queued ──(place free)──► active
 *     │             ├──queue_timeout_ms──► refused
 *     │             └──leave (client left)──► gone
 *     └──reject──► refused
 *
 * A call is in exactly one of these states, and `leave` may be called in any of them, any number of times: whatever path
 * a call takes, its place comes back once.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import { nextAdmission } from '../core/transitions.ts'
import { type AdmissionLimits, toAdmissionLimits } from './concurrency.ts'

/** A call as admission sees it. The fields belong to this module. */
export interface Applicant {
  readonly fn: FunctionVersion
  admission: 'outside' | 'queued' | 'active'
  places: FunctionPlaces | null
  queuePrevious: Applicant | null
  queueNext: Applicant | null
  queueTimer: NodeJS.Timeout | null
  /** A queued call got its place. */
  onAdmitted(): void
  /** A queued call waited too long. */
  onRefused(error: GatewayError): void
}

/** Places and queue of one function. */
export interface FunctionPlaces {
  readonly key: string
  /** The version whose policy made `limits`: a reload brings another object. */
  fn: FunctionVersion
  limits: AdmissionLimits
  active: number
  queued: number
  first: Applicant | null
  last: Applicant | null
  /** True while the queue is being admitted: a call that ends at once must not start a second round inside the first. */
  admitting: boolean
  overflows: number
  queueTimeouts: number
}

/** What health and metrics show of one function. */
export interface AdmissionSnapshot {
  key: string
  active: number
  queued: number
  max_workers: number
  max_queue: number
  overflows: number
  queue_timeouts: number
}

/** Admission of all functions of a gateway. */
export class WorkerPool {
  readonly #clock: Clock
  readonly #functions = new Map<string, FunctionPlaces>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Asks for a place.
   * @returns null when the call may run now; the refusal when it may not; `'queued'` when `onAdmitted` or `onRefused`
   *   will tell, unless `leave` comes first
   */
  enter(call: Applicant): null | 'queued' | GatewayError {
    const places = this.#placesOf(call.fn)
    const { limits } = places
    const decision = nextAdmission({
      active: places.active,
      queued: places.queued,
      maxWorkers: limits.maxWorkers,
      maxQueue: limits.maxQueue,
    })
    if (decision === 'run') {
      places.active += 1
      call.places = places
      call.admission = 'active'
      return null
    }
    if (decision === 'reject') {
      places.overflows += 1
      return limits.overflow
    }
    if (limits.queueTimeoutMs <= 0) {
      places.queueTimeouts += 1
      return limits.queueTimeout
    }
    this.#append(places, call)
    return 'queued'
  }

  /** Gives back the place or leaves the queue; does nothing for a call that has neither. */
  leave(call: Applicant): void {
    const places = call.places
    if (places === null) return
    call.places = null
    if (call.admission === 'active') places.active -= 1
    else this.#unlink(places, call)
    call.admission = 'outside'
    if (places.queued > 0) this.#admit(places)
  }

  /**
   * A reload: counters stay, limits follow the new policies, and a higher limit lets waiting calls in at once.
   * @param functions - the new catalog's versions by key
   */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    for (const [key, places] of this.#functions) {
      const fn = functions.get(key)
      if (fn === undefined) {
        if (places.active === 0 && places.queued === 0) this.#functions.delete(key)
      } else if (fn !== places.fn) {
        places.fn = fn
        places.limits = toAdmissionLimits(fn.policy)
        this.#admit(places)
      }
    }
  }

  /** Functions that were called, by key. */
  snapshot(): AdmissionSnapshot[] {
    return [...this.#functions.values()]
      .map(places => ({
        key: places.key,
        active: places.active,
        queued: places.queued,
        max_workers: places.limits.maxWorkers,
        max_queue: places.limits.maxQueue,
        overflows: places.overflows,
        queue_timeouts: places.queueTimeouts,
      }))
      .sort((a, b) => (a.key < b.key ? -1 : 1))
  }

  /** Calls running and waiting over all functions: a stop waits for 0. */
  total(): number {
    let total = 0
    for (const places of this.#functions.values()) total += places.active + places.queued
    return total
  }

  #placesOf(fn: FunctionVersion): FunctionPlaces {
    const known = this.#functions.get(fn.key)
    if (known !== undefined) return known
    const places: FunctionPlaces = {
      key: fn.key,
      fn,
      limits: toAdmissionLimits(fn.policy),
      active: 0,
      queued: 0,
      first: null,
      last: null,
      admitting: false,
      overflows: 0,
      queueTimeouts: 0,
    }
    this.#functions.set(fn.key, places)
    return places
  }

  #append(places: FunctionPlaces, call: Applicant): void {
    const { limits } = places
    call.places = places
    call.admission = 'queued'
    call.queuePrevious = places.last
    call.queueNext = null
    if (places.last === null) places.first = call
    else places.last.queueNext = call
    places.last = call
    places.queued += 1
    call.queueTimer = this.#clock.setTimeout(() => {
      places.queueTimeouts += 1
      this.leave(call)
      call.onRefused(limits.queueTimeout)
    }, limits.queueTimeoutMs)
  }

  #unlink(places: FunctionPlaces, call: Applicant): void {
    if (call.queueTimer !== null) this.#clock.clearTimeout(call.queueTimer)
    call.queueTimer = null
    if (call.queuePrevious === null) places.first = call.queueNext
    else call.queuePrevious.queueNext = call.queueNext
    if (call.queueNext === null) places.last = call.queuePrevious
    else call.queueNext.queuePrevious = call.queuePrevious
    call.queuePrevious = null
    call.queueNext = null
    places.queued -= 1
  }

  /** Lets waiting calls in, first come first served, as far as there is room. */
  #admit(places: FunctionPlaces): void {
    if (places.admitting) return
    places.admitting = true
    try {
      while (places.first !== null) {
        const { maxWorkers } = places.limits
        if (maxWorkers !== 0 && places.active >= maxWorkers) break
        const call = places.first
        this.#unlink(places, call)
        places.active += 1
        call.admission = 'active'
        call.onAdmitted()
      }
    } finally {
      places.admitting = false
    }
  }
}
