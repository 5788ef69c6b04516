/** Real builds of go and rust functions for tests. */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FunctionVersion, Policy } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { type CompiledOptions, createBuilds } from '../../lib/dependencies/resolve.ts'
import type { Builds } from '../../lib/dependencies/resolve.ts'
import type { Gateway } from '../../lib/index.ts'
import type { InjectResponse } from '../../lib/http/inject.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { TESTED } from './conformance.ts'
import { makeFn } from './fn.ts'
import { makeTree, type Tree, type TreeEntry } from './tree.ts'

export type Compiled = 'go' | 'rust'

/** Milliseconds a first build may take on a busy machine. */
export const BUILD_WAIT_MS = 150_000
/** Cargo 1.70 asks the registry for single crates. */
const OLDEST_CARGO_MINOR = 70
/** Milliseconds after which a crate of a temporary root is nobody's. */
const CRATE_AGE_MS = 3_600_000

export const FIXTURES = fileURLToPath(new URL('../../spec/fixtures/functions/all/', import.meta.url))

/** Why the runtime cannot be tested here, null when it can. */
export function missingToolchain(runtime: Compiled): string | null {
  if (!TESTED.some(language => language.runtime === runtime)) return 'it runs in one version of Node alone'
  if (runtime === 'go') return spawnSync('go', ['version']).status === 0 ? null : 'go is not installed'
  const { status, stdout } = spawnSync('cargo', ['-V'], { encoding: 'utf8' })
  if (status !== 0) return 'cargo is not installed'
  const minor = /^cargo \d+\.(\d+)/.exec(stdout)?.[1]
  return Number(minor) >= OLDEST_CARGO_MINOR
    ? null
    : `${stdout.trim()} fetches the index of all crates first, which takes minutes`
}

/**
 * Variables that let builds use compiled crates of earlier test runs, and leave out optimizing, half of the time of a
 * build. What functions of temporary roots left there long ago is removed.
 */
export function shareCrates(): { CARGO_TARGET_DIR: string; CARGO_PROFILE_RELEASE_OPT_LEVEL: string } {
  const shared = fileURLToPath(new URL('../../node_modules/.cache/fngw-crates', import.meta.url))
  mkdirSync(shared, { recursive: true })
  for (const folder of ['release', 'release/deps', 'release/.fingerprint']) {
    const path = join(shared, folder)
    for (const name of existsSync(path) ? readdirSync(path) : []) {
      const { mtimeMs } = statSync(join(path, name), { throwIfNoEntry: false }) ?? { mtimeMs: Date.now() }
      const isOld = Date.now() - mtimeMs > CRATE_AGE_MS
      if (isOld && /^(?:lib)?(?:fn|handler|mine|inner)[_-]/.test(name))
        rmSync(join(path, name), { recursive: true, force: true })
    }
  }
  return { CARGO_TARGET_DIR: shared, CARGO_PROFILE_RELEASE_OPT_LEVEL: '0' }
}

/** Asks until a function is built: until then the answer is 503 with `Retry-After`. */
export async function injectBuilt(
  gateway: Gateway,
  request: Parameters<Gateway['inject']>[0],
): Promise<InjectResponse> {
  const started = performance.now()
  for (;;) {
    const response = await gateway.inject(request)
    if (response.headers['retry-after'] === undefined || performance.now() - started > BUILD_WAIT_MS) return response
  }
}

export interface BuildBed {
  tree: Tree
  builds: Builds
  built: string[]
  failures: GatewayError[]
  /** A function of a handler file in the tree. */
  fn(file: string, policy?: Partial<Policy>, fields?: Partial<FunctionVersion>): FunctionVersion
  /** The failure of a build that must fail. */
  failure(file: string, fields?: Partial<FunctionVersion>): Promise<GatewayError>
  close(): Promise<void>
}

export function makeBuilds(entries: Record<string, TreeEntry>, options: Partial<CompiledOptions> = {}): BuildBed {
  const tree = makeTree(entries)
  const built: string[] = []
  const failures: GatewayError[] = []
  const hostEnv: CompiledOptions['hostEnv'] = { ...process.env, ...shareCrates(), ...options.hostEnv }
  const builds = createBuilds({
    isPrivate: false,
    clock: systemClock,
    functionsRoot: tree.root,
    goBuildTimeoutSeconds: 180,
    rustBuildTimeoutSeconds: 180,
    waitMs: 0,
    workerFolder: runtime => runtimeFile(`${runtime}/worker`),
    findProgram: runtime => findProgram(runtime, {}, hostEnv.PATH ?? ''),
    onBegin: () => {},
    onEnd: () => {},
    onBuilt: ({ fn }) => built.push(fn.key),
    onFailure: (_fn, error) => failures.push(error),
    ...options,
    hostEnv,
  })
  let signature = 0
  const fn: BuildBed['fn'] = (file, policy = {}, fields = {}) =>
    makeFn({
      runtime: file.endsWith('.go') ? 'go' : 'rust',
      name: file.replace(/\.\w+$/, ''),
      fnDir: dirname(tree.path(file)),
      entryPath: tree.path(file),
      entryFile: file,
      // Every function of a test is a new version: the digest of the content decides, not the signature.
      signature: String(++signature),
      ...fields,
      policy,
    })
  return {
    tree,
    builds,
    built,
    failures,
    fn,
    failure: async (file, fields = {}) => {
      try {
        await builds.prepare(fn(file, {}, fields))
      } catch (error) {
        return error as GatewayError
      }
      throw new Error(`${file} was built`)
    },
    close: async () => {
      await builds.close()
      tree.cleanup()
    },
  }
}
