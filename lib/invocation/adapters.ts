/**
 * Calls of functions whose adapter does not exist, or not for their language, are refused. How a handler is called under
 * an adapter is the worker's part: `runtimes/node/adapters.mjs`, `runtimes/python/adapters.py`. Spec: §2.12.
 */

import { hasAdapter } from '../core/identity.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'

/**
 * A handler written for one convention must not be called by another: it would misread its arguments.
 * @returns 500 that names the field, or null
 */
export function checkAdapter({ runtime, entryFile, policy }: FunctionVersion): GatewayError | null {
  const { adapter, adapterName } = policy
  if (adapter === null) {
    return new GatewayError('LOAD_FAILED', `unknown adapter: invoke.adapter is "${adapterName}"`, {
      detail: {
        file: entryFile,
        hint: 'use native, cloud-lambda or edge-worker (or one of their aliases) in fn.config.json',
      },
    })
  }
  if (hasAdapter(runtime, adapter)) return null
  return new GatewayError('LOAD_FAILED', `adapter not available in ${runtime}: invoke.adapter is "${adapter}"`, {
    detail: { file: entryFile, hint: `only node and python have it: remove invoke.adapter from fn.config.json` },
  })
}
