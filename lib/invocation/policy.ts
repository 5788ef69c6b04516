/** What a call must satisfy before its body is read and a place is asked for. Owner: §7. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import type { Method } from '../core/identity.ts'
import { checkAdapter } from './adapters.ts'

/** True when the policy allows the method; HEAD follows GET. */
export function isMethodAllowed(fn: FunctionVersion, method: string): boolean {
  const wanted = method === 'HEAD' ? 'GET' : method
  return (fn.policy.methods as readonly string[]).includes(wanted)
}

/** 405 with `Allow`. */
export function toMethodError(methods: readonly Method[]): GatewayError {
  return new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers: { Allow: toAllow(methods) } })
}

/** 413 for a body over the limit, by its declared or its real length. */
export function toBodyError(maxBodyBytes: number): GatewayError {
  return new GatewayError('BODY_TOO_LARGE', `payload too large: the limit is ${maxBodyBytes} bytes`)
}

function toConfigError(problem: string): GatewayError {
  return new GatewayError('CONFIG_BROKEN', problem, {
    detail: { hint: 'Fix the file: until then every call that it applies to is refused.' },
  })
}

/**
 * Checks a call against its function's policy. Methods and hosts are the route's business; a door without a route asks
 * isMethodAllowed first.
 * @param bodyBytes - declared or known length of the body; 0 when there is none or it is not known yet
 * @returns the refusal, or null
 */
export function checkPolicy(fn: FunctionVersion, bodyBytes: number): GatewayError | null {
  if (fn.policy.configProblem !== null) return toConfigError(fn.policy.configProblem)
  if (bodyBytes > fn.policy.maxBodyBytes) return toBodyError(fn.policy.maxBodyBytes)
  return fn.policy.adapter === 'native' ? null : checkAdapter(fn)
}
