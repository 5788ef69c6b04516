/** Handler files to frozen function versions. Owner: §2.1 and §2.2, page discovery/layouts. */

import { normalize } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { type OuterEnv, toFunctionEnv } from '../config/env-layers.ts'
import type { FunctionConfig } from '../config/function-config.ts'
import { mergePolicies, type PolicyDefaults, type PolicyTarget } from '../config/policy-layers.ts'
import type { DeclaredEnv } from '../config/function-env.ts'
import { type AdapterName, hasAdapter, type RuntimeName, toFunctionKey } from '../core/identity.ts'
import type { FunctionVersion, Policy, SchemaFileRef } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isSameList } from '../core/list-change.ts'
import { callableOf } from './callable.ts'
import { type Helpers, toSignature } from './signature.ts'
import type { FileEntry } from './snapshot.ts'
import { below, toChild } from './tree-path.ts'

/** A handler file and what surrounds it. */
export interface Handler {
  runtime: RuntimeName
  /** Folder of the file, below the root. */
  folder: string
  file: FileEntry
  /** Folder of the function, below the root; another one only for an `entrypoint` further down. */
  fnFolder: string
  /** Its full path without links, where that is kept anyway. */
  realFolder?: string
  /** Configs from the root down, the function's own last. */
  layers: readonly (FunctionConfig | null)[]
  /** What the folder's files declare. */
  env: DeclaredEnv
  /** Why `fn.env.json` cannot be used; null when it can. */
  envProblem: string | null
  helpers: Helpers
  /** Stamps of the manifests of a compiled function. */
  manifests: string
  schema: SchemaFileRef | null
}

export interface Identity {
  name: string
  version: string | null
  kind: FunctionVersion['kind']
}

export class FunctionMaker {
  readonly #rootPath: string
  readonly #defaults: PolicyDefaults
  /** The function versions of the discovery before, by key. */
  readonly #known: ReadonlyMap<string, FunctionVersion>

  readonly #outerEnv: OuterEnv
  /** What was merged last. */
  #last: (Pick<Handler, 'layers'> & Required<Pick<PolicyTarget, 'kind' | 'methods'>> & { policy: Policy }) | null = null
  readonly #envs = new WeakMap<DeclaredEnv, FunctionVersion['env']>()

  constructor(
    rootPath: string,
    defaults: PolicyDefaults,
    known: ReadonlyMap<string, FunctionVersion>,
    outerEnv: OuterEnv,
  ) {
    this.#rootPath = normalize(rootPath)
    this.#defaults = defaults
    this.#known = known
    this.#outerEnv = outerEnv
  }

  /**
   * @param target - which layers are the function's own, and fixed methods
   * @param isScheduled - false leaves out schedule and keep_warm, which one function of a folder carries
   */
  make(handler: Handler, identity: Identity, target: PolicyTarget, isScheduled: boolean): FunctionVersion {
    const { runtime, helpers, manifests, layers } = handler
    const env = this.#envOf(handler.env)
    const entryFile = toChild(handler.folder, handler.file.name)
    const merged = this.#mergePolicies(layers, target)
    if (merged.adapter !== null && !hasAdapter(runtime, merged.adapter)) {
      target.warnings?.push(toAdapterWarning(entryFile, runtime, merged.adapter, target.label ?? entryFile))
    }
    const open = isScheduled ? merged : toUnscheduled(merged)
    const { envProblem } = handler
    const policy = envProblem === null || open.configProblem !== null ? open : { ...open, configProblem: envProblem }
    const fullPath = handler.fnFolder === '' ? this.#rootPath : below(this.#rootPath, handler.fnFolder)
    // One text for both, where no link is on the way.
    const fnDir = handler.realFolder === fullPath ? handler.realFolder : fullPath
    return this.reuse({
      key: toFunctionKey(runtime, identity.name, identity.version),
      runtime,
      name: identity.name,
      version: identity.version,
      kind: identity.kind,
      fnDir,
      entryPath: below(this.#rootPath, entryFile),
      entryFile,
      policy,
      callable: callableOf(runtime, policy),
      env,
      signature: toSignature(entryFile, handler.file, helpers[runtime], manifests, policy, env),
      schema: handler.schema,
    })
  }

  /** Functions that come one after the other mostly have the same configs above them: their policy is then one object. */
  #mergePolicies(layers: Handler['layers'], target: PolicyTarget): Policy {
    const { kind, methods = [] } = target
    const last = this.#last
    if (last?.kind === kind && isSameList(last.layers, layers) && isSameList(last.methods, methods)) return last.policy
    const warned = target.warnings?.length
    const policy = mergePolicies(layers, this.#defaults, target)
    // Each function has its own warnings.
    this.#last = warned === target.warnings?.length ? { kind, layers, methods, policy } : null
    return policy
  }

  /** Functions of one folder share their environment. */
  #envOf(declared: DeclaredEnv): FunctionVersion['env'] {
    const known = this.#envs.get(declared)
    if (known !== undefined) return known
    const env = toFunctionEnv(declared, this.#outerEnv)
    this.#envs.set(declared, env)
    return env
  }

  /** The object of the discovery before when nothing about the function changed. */
  reuse(fn: FunctionVersion): FunctionVersion {
    const known = this.#known.get(fn.key)
    if (known !== undefined && isDeepStrictEqual(known, fn)) return known
    Object.freeze(fn.policy)
    return Object.freeze(fn)
  }
}

function toUnscheduled(policy: Policy): Policy {
  const { schedule, scheduleProblem, keepWarm } = policy
  if (schedule === null && scheduleProblem === null && keepWarm === null) return policy
  return { ...policy, schedule: null, scheduleProblem: null, keepWarm: null }
}

/** Its calls answer 500 (§2.12); the routes stay, so that nothing else takes them silently. */
function toAdapterWarning(entryFile: string, runtime: RuntimeName, adapter: AdapterName, path: string): Warning {
  return {
    code: 'ADAPTER_UNAVAILABLE',
    path,
    message: `${path}: invoke.adapter is "${adapter}", which ${runtime} does not have: calls of ${entryFile} fail with 500`,
    hint: 'Remove invoke.adapter, or write the handler for node or python.',
  }
}
