/** A runtime that is only looked at: it starts nothing and refuses every call. Owner: §1. */

import { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { Runtime } from './call.ts'

const REASON = 'not started: the tree is only looked at'

export function createInspectedRuntime(name: RuntimeName): Runtime {
  return {
    name,
    start: () => Promise.resolve(),
    health: () => ({ up: false, reason: REASON, routing: 'single', sockets: [] }),
    dispatch: call => call.onError(new GatewayError('RUNTIME_DOWN', `runtime down: ${name} is ${REASON}`)),
    abandon: () => {},
    warm: () => {},
    retain: () => {},
    workerCount: () => 0,
    close: () => Promise.resolve(),
  }
}
