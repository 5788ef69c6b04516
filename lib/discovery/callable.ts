/** Which symbol of a handler file is called, per runtime. The loader of each language does as told here. Spec: §2.4. */

import { hasAdapter } from '../core/adapter-names.ts'
import type { Callable, Policy } from '../core/catalog.ts'
import type { RuntimeName } from '../core/identity.ts'

/** Of a function that names none. */
const DEFAULTS: Readonly<Record<RuntimeName, Callable>> = {
  python: toCallable(['handler', 'main']),
  // `export default function` and `module.exports = function` need no name.
  node: toCallable(['handler', 'default']),
  php: toCallable(['handler']),
  lua: toCallable(['handler', 'main']),
  go: toCallable(['handler', 'Handler']),
  rust: toCallable(['handler']),
}

/**
 * The callable of a function. `invoke.handler` replaces the default names and has no fallback: a missing symbol is a
 * mistake to show, not to guess around. The edge-worker adapter looks for `fetch` before any of them (§2.12).
 */
export function callableOf(runtime: RuntimeName, policy: Pick<Policy, 'handler' | 'adapter'>): Callable {
  const own = DEFAULTS[runtime]
  const isEdgeWorker = policy.adapter === 'edge-worker' && hasAdapter(runtime, policy.adapter)
  if (policy.handler === null && !isEdgeWorker) return own
  const names = policy.handler === null ? own.names : [policy.handler]
  return toCallable(isEdgeWorker ? ['fetch', ...names] : names)
}

/** Frozen: one object may stand in thousands of functions. */
function toCallable(names: readonly string[]): Callable {
  return Object.freeze({ names: Object.freeze([...names]) })
}
