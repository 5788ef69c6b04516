/** Names of invocation adapters, and which runtimes have them. Owner: §2.12, page invocation/adapters. */

import type { RuntimeName } from './identity.ts'

export const ADAPTERS = ['native', 'cloud-lambda', 'edge-worker'] as const

export type AdapterName = (typeof ADAPTERS)[number]

/** Other spellings of an adapter in `invoke.adapter`. */
export const ADAPTER_SPELLINGS = {
  lambda: 'cloud-lambda',
  'apigw-v2': 'cloud-lambda',
  'api-gateway-v2': 'cloud-lambda',
  worker: 'edge-worker',
  workers: 'edge-worker',
  // Names of the nearest existing system, accepted without a word.
  'aws-lambda': 'cloud-lambda',
  'cloudflare-worker': 'edge-worker',
  'cloudflare-workers': 'edge-worker',
  none: 'native',
  default: 'native',
  '': 'native',
} as const

/** Runtimes that have more than the native adapter. */
const ADAPTED_RUNTIMES: ReadonlySet<RuntimeName> = new Set(['node', 'python'])

/** True when handlers of the runtime may be written for the adapter. */
export function hasAdapter(runtime: RuntimeName, adapter: AdapterName): boolean {
  return adapter === 'native' || ADAPTED_RUNTIMES.has(runtime)
}
