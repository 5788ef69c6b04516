/** Slots as a front sees them: the first process has them all, so each call goes there and may come back refused. Owner: page processes/processes. */

import type { AdmissionCall, FunctionSlots } from '../invocation/admission.ts'
import { toAdmissionLimits } from '../invocation/concurrency.ts'
import type { Call } from '../invocation/invoke.ts'
import type { CallRelay } from './call-relay.ts'

export class FrontAdmission {
  readonly #relay: Pick<CallRelay, 'leave'>
  /** What a call has in place of a slot. */
  #elsewhere: FunctionSlots | null = null

  constructor(relay: Pick<CallRelay, 'leave'>) {
    this.#relay = relay
  }

  enter(call: AdmissionCall): null {
    this.#elsewhere ??= toElsewhere(call)
    call.slots = this.#elsewhere
    call.phase = 'admitted'
    return null
  }

  leave(call: AdmissionCall): void {
    if (call.slots === null) return
    call.slots = null
    this.#relay.leave(call as Call)
  }
}

function toElsewhere({ fn }: AdmissionCall): FunctionSlots {
  return {
    key: '',
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
  }
}
