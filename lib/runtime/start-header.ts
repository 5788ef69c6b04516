/** The facts of its function that a worker gets once. Owner: §1, page runtime/wire-protocol, statement 10. */

import type { FunctionVersion } from '../core/catalog.ts'

export interface StartFacts {
  functionsRoot: string
  production: boolean
  /** The part of `event.context` that is the same for every call. */
  toContext(fn: FunctionVersion): object
  /** User whose files alone a worker in this process may read for it; null: none. */
  toReader?(fn: FunctionVersion): number | null
  /** Full paths of the folders of its shared packs, in order. */
  toPackDirs(fn: FunctionVersion): readonly string[]
}

/** JSON text of the `start` header. */
export function toStartHeader(fn: FunctionVersion, facts: StartFacts): string {
  const env: Record<string, string> = Object.create(null)
  for (const [name, { value }] of Object.entries(fn.env)) env[name] = value
  return JSON.stringify({
    key: fn.key,
    runtime: fn.runtime,
    name: fn.name,
    version: fn.version,
    root: facts.functionsRoot,
    dir: fn.fnDir,
    entry: fn.entryPath,
    callable: fn.callable,
    // An unknown name goes as it is written: the worker refuses it by name.
    adapter: fn.policy.adapter ?? fn.policy.adapterName,
    env,
    packs: facts.toPackDirs(fn),
    reader: facts.toReader?.(fn) ?? undefined,
    production: facts.production,
    context: facts.toContext(fn),
  })
}
