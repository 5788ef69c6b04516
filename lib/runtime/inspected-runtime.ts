/** A runtime that is only looked at: it starts nothing and refuses every call. Owner: §1. */

import { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { Preparer, Runtime } from './runtime.ts'

const REASON = 'not started: the tree is only looked at'

export function createInspectedRuntime(name: RuntimeName): Runtime {
  const refusal = new GatewayError('RUNTIME_DOWN', `runtime down: ${name} is ${REASON}`)
  // What a worker would need can never be had, so none is ever started.
  const preparer: Preparer = {
    prepare: () => Promise.reject(refusal),
    toStep: () => REASON,
    waitMs: 0,
    prepareAhead: () => {},
  }
  return {
    name,
    sockets: null,
    preparer,
    maxWorkers: 1,
    start: () => Promise.resolve(),
    rest: () => {},
    spawn: () => {
      throw refusal
    },
    health: () => ({ up: false, reason: REASON, routing: 'single', version: null, sockets: [] }),
    close: () => Promise.resolve(),
  }
}
