/**
 * The open calls of one worker by wire id, oldest first. Owner: page runtime/worker-set.
 *
 *   slots  [ . 65 . 3 . . . . ]   a call lies at its id modulo the length; an id whose slot is taken is not given out
 *   list   3 <-> 65               in the order of arrival
 *
 * Not a Map: one that thousands of calls a second go through is rebuilt all the time, and what it leaves behind keeps
 * ended calls, with their requests and answers, from being collected while they are young.
 */

import type { RuntimeCall } from './call.ts'

const FIRST_SLOTS = 16
const MAX_ID = 0xffffffff

export class OpenCalls {
  size = 0
  /** Calls that were ever added. */
  total = 0
  /** The oldest. */
  first: RuntimeCall | null = null
  /** How many of them nobody waits for, and how many of those are past their deadline. */
  left = 0
  late = 0
  #last: RuntimeCall | null = null
  #slots: (RuntimeCall | null)[] = Array.from({ length: FIRST_SLOTS }, () => null)
  #mask = FIRST_SLOTS - 1
  #lastId: number

  /** @param lastId - ids are given out from the one behind it */
  constructor(lastId = 0) {
    this.#lastId = lastId
  }

  /** Gives the call its wire id and its place behind all others. */
  add(call: RuntimeCall): void {
    if (this.size * 2 >= this.#slots.length) this.#grow()
    let id = this.#lastId
    do id = (id % MAX_ID) + 1
    while (this.#slots[id & this.#mask] !== null)
    this.#lastId = id
    call.wireId = id
    this.#slots[id & this.#mask] = call
    call.openBefore = this.#last
    call.openAfter = null
    if (this.#last === null) this.first = call
    else this.#last.openAfter = call
    this.#last = call
    this.size++
    this.total++
  }

  get(id: number): RuntimeCall | undefined {
    const call = this.#slots[id & this.#mask] ?? undefined
    return call?.wireId === id ? call : undefined
  }

  /** Nobody waits for this open call any more. */
  leave(call: RuntimeCall): void {
    call.phase = 'done'
    call.window?.close()
    this.left++
  }

  /** A call that was left is past its deadline: its worker gets nothing more. @param killAt - when the worker is killed for it */
  markLate(call: RuntimeCall, killAt: number): void {
    call.late = true
    call.deadline = killAt
    this.late++
  }

  /** True while a call that is late may still heed its `cancel`. */
  mayObey(): boolean {
    return this.values().some(call => call.late && call.deadline !== Number.POSITIVE_INFINITY)
  }

  /** @param call - one of the open calls, in the phase it ends in: one that is done was left before */
  remove(call: RuntimeCall): void {
    if (call.phase === 'done') {
      this.left--
      if (call.late) this.late--
    }
    this.#slots[call.wireId & this.#mask] = null
    const { openBefore, openAfter } = call
    if (openBefore === null) this.first = openAfter
    else openBefore.openAfter = openAfter
    if (openAfter === null) this.#last = openBefore
    else openAfter.openBefore = openBefore
    call.openBefore = call.openAfter = null
    call.window?.close()
    this.size--
  }

  /** Takes all of them out. @returns them, oldest first */
  takeAll(): RuntimeCall[] {
    const calls = this.values()
    for (const call of calls) this.remove(call)
    return calls
  }

  /** A list of its own, oldest first. */
  values(): RuntimeCall[] {
    const calls: RuntimeCall[] = []
    for (let call = this.first; call !== null; call = call.openAfter) calls.push(call)
    return calls
  }

  #grow(): void {
    // Twice the length keeps slots apart that were apart.
    const slots: (RuntimeCall | null)[] = Array.from({ length: this.#slots.length * 2 }, () => null)
    this.#mask = slots.length - 1
    for (let call = this.first; call !== null; call = call.openAfter) slots[call.wireId & this.#mask] = call
    this.#slots = slots
  }
}
