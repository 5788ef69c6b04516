/** Which symbol of a handler file is called, per runtime. The loader of each language does as told here. Spec: §2.4. */

import { hasAdapter, type RuntimeName } from '../core/identity.ts'
import type { Callable, Policy } from '../core/catalog.ts'
import { checkLua } from './lua-check.ts'

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

/** Ways to define `handler`, by the text of a file. What may do so in a way that the text does not show counts as well. */
const NAMED: Readonly<Record<Exclude<RuntimeName, 'lua'>, RegExp>> = {
  python:
    /^(?:(?:async\s+)?def|class)\s+handler\b|^handler\s*[:=,]|^\s*(?:from|import)\b.*(?:\bhandler\b|\bimport\s*[(*])|\bglobals\(|\bexec\(/m,
  node: /\bexport\b[^;]{0,2000}?\bhandler\b|\bexport\s*\*|\bexports\b[^;]{0,2000}?\bhandler\b|\bexports\s*\[|\bexports\s*=\s*\{[^}]*\.\.\.|\(\s*(?:module\s*\.\s*)?exports\b/,
  php: /\bhandler\b/,
  go: /^func\s+[hH]andler\b/m,
  rust: /\bhandler\b/,
}

/** Other callables that a file may have: a default export, a returned function, `main`. */
const UNNAMED: Partial<Record<RuntimeName, RegExp>> = {
  python: /^(?:async\s+)?def\s+main\b/m,
  node: /\bexport\s+default\b|\bexport\s*=|\bas\s+default\b|\bexports\s*\.\s*default\b|\bmodule\s*\.\s*exports\s*=(?!\s*[{=])/,
  php: /^return\b(?!\s*(?:\[|array\b))/m,
}

/**
 * Whether a file may be a handler, by its text. False only when it certainly has no callable.
 * @param isNamedOnly - a default export and its like are not meant as a handler
 */
export function mayBeHandler(runtime: RuntimeName, text: string, isNamedOnly: boolean): boolean {
  if (runtime === 'lua') return checkLua(text, '', DEFAULTS.lua.names)?.code !== 'CALLABLE_MISSING'
  if (NAMED[runtime].test(text)) return true
  // `main` of a script is called by the script itself.
  const isScript = runtime === 'python' && text.includes('__main__')
  return !isNamedOnly && !isScript && UNNAMED[runtime]?.test(text) === true
}
