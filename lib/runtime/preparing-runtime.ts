/**
 * A runtime whose functions need something made before a worker can start: a program, packages. Calls wait for it, each
 * at most its own time limit; after that the runtime around it takes over. Owner: §2.16, page dependencies/resolve.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { BUILD_RETRY_AFTER_SECONDS } from '../core/limits.ts'
import type { Runtime, RuntimeCall, RuntimeHealth } from './call.ts'

/** Makes what functions need. */
export interface Preparer {
  /**
   * Resolves when a worker may start; calls for one version share the work.
   * @returns full path of the function's program; null for one that needs none
   * @throws GatewayError
   */
  prepare(fn: FunctionVersion): Promise<string | null>
  /** What goes on, for a call that could not wait: `building go function hello`. */
  toStep(fn: FunctionVersion): string
}

/** A runtime whose daemons can be started ahead. */
export interface OpenableRuntime extends Runtime {
  /** Starts the daemons, functions or not. */
  open(): Promise<void>
}

interface Held {
  call: RuntimeCall
  timer: NodeJS.Timeout
}

export class PreparingRuntime implements OpenableRuntime {
  readonly name: RuntimeName
  readonly #inner: OpenableRuntime
  readonly #preparer: Preparer
  readonly #clock: Clock
  /** Versions whose workers may start, with their programs. */
  readonly #ready = new WeakMap<FunctionVersion, string | null>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  /** Calls that wait, by version. */
  readonly #held = new Map<FunctionVersion, Set<Held>>()
  #isClosing = false

  constructor(inner: OpenableRuntime, preparer: Preparer, clock: Clock) {
    this.name = inner.name
    this.#inner = inner
    this.#preparer = preparer
    this.#clock = clock
  }

  start(): Promise<void> {
    return this.#hasFunctions() ? this.#inner.open() : Promise.resolve()
  }

  open(): Promise<void> {
    return this.#inner.open()
  }

  health(): RuntimeHealth {
    return this.#inner.health()
  }

  /** Program of a version that is ready, null when it needs none. */
  binaryOf(fn: FunctionVersion): string | null {
    return this.#ready.get(fn) ?? null
  }

  workerCount(key: string): number {
    return this.#inner.workerCount(key)
  }

  dispatch(call: RuntimeCall): void {
    if (this.#ready.has(call.fn)) this.#inner.dispatch(call)
    else this.#hold(call)
  }

  abandon(call: RuntimeCall): void {
    const calls = this.#held.get(call.fn)
    for (const held of calls ?? []) {
      if (held.call !== call) continue
      this.#release(held, calls!)
      return
    }
    this.#inner.abandon(call)
  }

  warm(fn: FunctionVersion, count: number): void {
    if (this.#ready.has(fn)) this.#inner.warm(fn, count)
    else
      this.#prepare(fn).then(
        () => this.#inner.warm(fn, count),
        () => {},
      )
  }

  /** Prepares every function of the runtime, so that first calls find it done. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    if (this.#isClosing) return
    this.#retainReady()
    if (!this.#hasFunctions()) return
    if (this.health().up) void this.#inner.open()
    for (const fn of functions.values()) {
      if (fn.runtime === this.name && !this.#ready.has(fn)) this.#prepare(fn).catch(() => {})
    }
  }

  async close(timeoutMs: number): Promise<void> {
    this.#isClosing = true
    const error = new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
    for (const fn of [...this.#held.keys()]) this.#failAll(fn, error)
    await this.#inner.close(timeoutMs)
  }

  #hasFunctions(): boolean {
    for (const fn of this.#functions.values()) if (fn.runtime === this.name) return true
    return false
  }

  /** The runtime inside knows only functions that are ready: it may start workers of all it knows. */
  #retainReady(): void {
    const known = new Map<string, FunctionVersion>()
    for (const [key, fn] of this.#functions) {
      if (fn.runtime === this.name && this.#ready.has(fn)) known.set(key, fn)
    }
    this.#inner.retain(known)
  }

  async #prepare(fn: FunctionVersion): Promise<void> {
    const binary = await this.#preparer.prepare(fn)
    if (this.#ready.has(fn) || this.#isClosing) return
    this.#ready.set(fn, binary)
    if (this.#functions.get(fn.key) === fn) this.#retainReady()
  }

  #hold(call: RuntimeCall): void {
    const { fn } = call
    if (this.#isClosing) {
      call.state = 'done'
      call.onError(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
      return
    }
    const current = this.#functions.get(fn.key)
    if (current !== undefined && current !== fn) {
      // Its catalog is gone, and what it needed was never made: the version of today answers the next call.
      call.state = 'done'
      call.onError(this.#toPending(current))
      return
    }
    call.state = 'waiting'
    const calls = this.#held.get(fn) ?? new Set()
    const held: Held = { call, timer: this.#clock.setTimeout(() => this.#giveUp(held, calls), fn.policy.timeoutMs) }
    calls.add(held)
    this.#held.set(fn, calls)
    this.#prepare(fn).then(
      () => this.#dispatchAll(fn),
      error => this.#failAll(fn, toGatewayError(error)),
    )
  }

  #giveUp(held: Held, calls: Set<Held>): void {
    this.#release(held, calls)
    held.call.onError(this.#toPending(held.call.fn))
  }

  #toPending(fn: FunctionVersion): GatewayError {
    return new GatewayError('BUILD_PENDING', this.#preparer.toStep(fn), {
      headers: { 'Retry-After': String(BUILD_RETRY_AFTER_SECONDS) },
    })
  }

  #dispatchAll(fn: FunctionVersion): void {
    for (const call of this.#takeAll(fn)) {
      call.state = 'new'
      this.#inner.dispatch(call)
    }
  }

  #failAll(fn: FunctionVersion, error: GatewayError): void {
    for (const call of this.#takeAll(fn)) call.onError(error)
  }

  #takeAll(fn: FunctionVersion): RuntimeCall[] {
    const calls = this.#held.get(fn)
    if (calls === undefined) return []
    return [...calls].map(held => {
      this.#release(held, calls)
      return held.call
    })
  }

  #release(held: Held, calls: Set<Held>): void {
    calls.delete(held)
    if (calls.size === 0) this.#held.delete(held.call.fn)
    this.#clock.clearTimeout(held.timer)
    held.call.state = 'done'
  }
}
