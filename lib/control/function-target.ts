/** Which function a request of the control plane is about. Owner: page control/function. */

import { showText } from '../config/findings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { isRuntimeName, isVersion, RUNTIMES, type RuntimeName } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import type { ControlQuery } from './control-query.ts'

/** Query fields that name a function. */
export const TARGET_FIELDS = ['runtime', 'name', 'version'] as const

/** @throws GatewayError NOT_FOUND; ROUTE_CONFLICT when several runtimes have it */
export type FindFunction = (name: string, version: string | null, runtime: string | null) => FunctionVersion

/** @throws GatewayError BAD_REQUEST, and as `FindFunction` */
export function findTarget(query: ControlQuery, find: FindFunction): FunctionVersion {
  return find(query.required('name'), readVersion(query), readRuntime(query))
}

/** @returns null when it is not given, or given as `default` */
export function readVersion(query: ControlQuery): string | null {
  const version = query.text('version')
  if (version === null || version === DEFAULT_VERSION_LABEL) return null
  if (isVersion(version)) return version
  throw refuse(`version must be letters, digits, _ . and -, got "${showText(version)}"`)
}

export function readRuntime(query: ControlQuery): RuntimeName | null {
  const runtime = query.text('runtime')
  if (runtime === null || isRuntimeName(runtime)) return runtime
  throw refuse(`runtime must be one of ${RUNTIMES.join(', ')}, got "${showText(runtime)}"`)
}

function refuse(why: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `query field ${why}`)
}
