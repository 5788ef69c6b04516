/** Which symbol of a handler file is called, per runtime. Spec: §2.4. */

import { hasAdapter } from '../core/adapter-names.ts'
import type { Policy } from '../core/catalog.ts'
import type { RuntimeName } from '../core/identity.ts'

export interface Callable {
  /** Symbols to look for, first found wins. */
  names: readonly string[]
  /** How route params reach the callable beside `event.params`. */
  injection: 'keyword-arguments' | 'second-argument' | 'event-only'
}

/** Symbols looked for when `invoke.handler` is not set. */
const DEFAULT_NAMES: Readonly<Record<RuntimeName, readonly string[]>> = {
  python: ['handler', 'main'],
  node: ['handler'],
  php: ['handler'],
  lua: ['handler'],
  go: ['handler', 'Handler'],
  rust: ['handler'],
}

const INJECTION: Readonly<Record<RuntimeName, Callable['injection']>> = {
  python: 'keyword-arguments',
  node: 'second-argument',
  php: 'second-argument',
  lua: 'second-argument',
  go: 'event-only',
  rust: 'event-only',
}

/**
 * The callable of a function. `invoke.handler` replaces the default names and has no fallback: a missing symbol is a
 * mistake to show, not to guess around. The edge-worker adapter looks for `fetch` before any of them (§2.12).
 */
export function callableOf(runtime: RuntimeName, policy: Pick<Policy, 'handler' | 'adapter'>): Callable {
  const names = policy.handler === null ? DEFAULT_NAMES[runtime] : [policy.handler]
  const isEdgeWorker = policy.adapter === 'edge-worker' && hasAdapter(runtime, policy.adapter)
  return { names: isEdgeWorker ? ['fetch', ...names] : names, injection: INJECTION[runtime] }
}
