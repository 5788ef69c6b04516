/**
 * Packages of node functions: `package.json`, imports and a lock file to `node_modules`, by npm. Owner: page dependencies/node.
 *
 *   package.json + imports - packs, builtins, what a folder above has  ─► wishes, each checked
 *   package-lock.json ─ made from these wishes ─► npm ci, on failure npm install
 *                     └ none, or of others     ─► npm install
 *   afterwards, beside the function: package.json with what imports added, package-lock.json with what was installed
 */

import { availableParallelism } from 'node:os'
import type { HostEnv } from '../core/host.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { type InstallPlan, type InstallStep, type InstallUnit, passingError } from './install-step.ts'
import { settleNodeFiles } from './node-files.ts'
import { ImportReads, mayImportPackages } from './node-imports.ts'
import { foreignLockNote, NODE_LOCKS } from './node-lock.ts'
import { NODE_MANIFEST } from './node-manifest.ts'
import { providerOf, stampAbove } from './node-provided.ts'
import { NODE_RECIPE, NodeSet } from './node-set.ts'
import { countOf, NODE_TARGET, type NodeWishOptions, readNodeWishes } from './node-wishes.ts'
import { blameImports, toNpmEnv } from './npm.ts'
import type { ToolResult } from './run-tool.ts'
import { hasFile } from './unit-files.ts'

export interface NodeStepOptions extends Omit<NodeWishOptions, 'reads'> {
  /** `FN_AUTO_NODE_DEPS`. */
  isOn: boolean
  /** `FN_AUTO_INFER_WRITE_MANIFEST`. */
  writesManifest: boolean
  /** `FN_PREINSTALL_NODE_DEPS_ON_START` and its `CONCURRENCY`. */
  isAhead: boolean
  concurrency: number
  /** Full path of npm; null when it is not there. */
  findNpm(): string | null
  /** As of `InstallStep`. */
  onInfer?(text: string): void
}

export function createNodeStep(options: NodeStepOptions): InstallStep {
  const { isOn, isAhead, concurrency, infers, backend, writesManifest, isStrict, allowSources } = options
  const reads = new ImportReads(availableParallelism())
  return {
    runtime: 'node',
    target: NODE_TARGET,
    manifests: [NODE_MANIFEST, ...NODE_LOCKS, 'fn.config.json'],
    concurrency,
    // Each starts a node to read imports.
    looksAtOnce: 2 * availableParallelism(),
    isAhead,
    isOn,
    setting: 'FN_AUTO_NODE_DEPS',
    rules: JSON.stringify([NODE_RECIPE, infers, backend, writesManifest, allowSources]),
    isStrict,
    onNote: options.onNote,
    ...(options.onInfer && { onInfer: options.onInfer }),
    toEnv: (hostEnv: HostEnv) => toNpmEnv(hostEnv),
    isWanted: unit => isWanted(unit, options),
    stampAbove,
    readVersion: (program, tools, cwd) => readVersion(program, tools, cwd),
    plan: (unit, toolchain, tools) => makePlan({ unit, options: { ...options, reads }, toolchain, tools }),
  }
}

function isWanted({ folder, functions, packs, isPack }: InstallUnit, { infers }: NodeStepOptions): boolean {
  if (hasFile(folder, NODE_MANIFEST)) return true
  if (isPack || infers === false) return false
  const entries = functions.map(fn => fn.entryPath)
  return mayImportPackages(folder, entries, name => packs.includes(name) || providerOf(name, folder) !== null)
}

/** Packages with compiled parts are made for one version of node's interface. */
async function readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
  const args = ['-p', 'process.versions.node.split(".")[0] + " " + process.versions.modules']
  const result = await tools.run({ command: program, args, cwd })
  if (result.code !== 0) throw passingError(`${program} does not run: ${result.problem ?? result.output.trim()}`)
  return result.output.trim()
}

/** One look at a folder. */
interface Look {
  unit: InstallUnit
  options: NodeStepOptions & { reads: ImportReads }
  toolchain: Toolchain
  tools: BuildTools
}

async function makePlan({ unit, options, toolchain, tools }: Look): Promise<InstallPlan | null> {
  const { backend, allowSources, readFile, writesManifest, findNpm, onNote } = options
  const wishes = await readNodeWishes(unit, options, tools)
  if (wishes === null) return null
  const { manifest, lock, lockProblem, imports, inferenceDurationMs, inferred, wanted, unresolved } = wishes
  const set = new NodeSet({ unit, wishes, toolchain, allowSources, readFile, findNpm, onNote })
  const infers = options.infers !== false && !unit.isPack
  const note = lockProblem ?? foreignLockNote(unit.folder, unit.label, lock)
  return {
    key: set.key,
    facts: {
      mode: manifest === null || manifest.isGenerated ? 'inferred' : 'manifest',
      manifest: manifest === null ? null : NODE_MANIFEST,
      inferBackend: infers ? backend : null,
      inferenceDurationMs: infers ? inferenceDurationMs : 0,
      inferredImports: [...imports.packages, ...imports.unresolved].map(({ name }) => name).concat(imports.optional),
    },
    ...(countOf(wanted) === 0 && {
      emptyOutcome: async () => ({ resolvedPackages: [], unresolvedImports: unresolved }),
    }),
    inferred: imports.packages
      .filter(({ name }) => Object.hasOwn(inferred, name))
      .map(({ name, file, line }) => `${name} (${file}:${line})`),
    blame: cause => blameImports(cause as ToolResult, inferred, { label: unit.label, manifest }),
    unmet: () => wishes.unmet,
    fill: (draft, work) => set.fill(draft, work),
    retell: cause => set.toError(cause as ToolResult),
    settle: placed => {
      // Of this folder, also when another one's install is shared.
      if (note !== null) onNote(note)
      return settleNodeFiles(unit, placed, wishes, writesManifest)
    },
  }
}
