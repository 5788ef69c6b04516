/** Slots as a front sees them: those of a lease are its own, for all others a call goes to the first process and may come back refused. Owner: page processes/processes. */

import { type AdmissionCall, createSlots, type FunctionSlots } from '../invocation/admission.ts'
import type { Call } from '../invocation/invoke.ts'
import type { CallRelay } from './call-relay.ts'
import type { FrontLeases } from './front-leases.ts'

export class FrontAdmission {
  readonly #relay: Pick<CallRelay, 'leave'>
  readonly #leases: Pick<FrontLeases, 'find' | 'enter' | 'leave' | 'isOf'>
  /** What a call has in place of a slot that is elsewhere. */
  #elsewhere: FunctionSlots | null = null

  constructor(relay: Pick<CallRelay, 'leave'>, leases: Pick<FrontLeases, 'find' | 'enter' | 'leave' | 'isOf'>) {
    this.#relay = relay
    this.#leases = leases
  }

  enter(call: AdmissionCall): null {
    const lease = this.#leases.find(call.fn)
    call.phase = 'admitted'
    if (lease === null) {
      this.#elsewhere ??= createSlots(call.fn, '')
      call.slots = this.#elsewhere
    } else {
      this.#leases.enter(lease)
      call.slots = lease
    }
    return null
  }

  leave(call: AdmissionCall): void {
    const { slots } = call
    if (slots === null) return
    call.slots = null
    if (this.#leases.isOf(slots)) this.#leases.leave(slots)
    else this.#relay.leave(call as Call)
  }
}
