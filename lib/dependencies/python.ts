/**
 * Packages of Python functions: what `requirements.txt`, `#@requirements` and imports ask for, to `.deps`. Owner: §2.16, page
 * dependencies/python.
 *
 *   named: requirements.txt + #@requirements ──────────────────────────────┐
 *   imports that nothing named, no pack and no file has ─► found packages ─┴─► one set ─► .deps, requirements.txt, lock file
 *
 *   named ─► installed ─► guesses whose module came with them are dropped
 *   named + guesses ─► installed; guesses as wheels only, because no manifest names them
 */

import { lstatSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { GatewayError } from '../core/errors.ts'
import { toPythonHostEnv } from '../core/host.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { type BuildTools, readOptional, type Toolchain } from './build.ts'
import {
  hasFile,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  installError,
  isWritable,
  labelOf,
  passingError,
  type Settled,
} from './install-step.ts'
import type { PackageSet, SetOutcome } from './package-set.ts'
import { listDistributions, listModules, type PipFailure, parseRequirements, runPip, toPackageName } from './pip.ts'
import {
  type Guess,
  MANIFEST_HEADER,
  PYTHON_MANIFEST,
  PYTHON_TARGET,
  PythonDependencies,
  type PythonStepOptions,
} from './python-dependencies.ts'

const LOCK = 'requirements.lock.txt'

export function createPythonStep(options: PythonStepOptions): InstallStep {
  const { settings, onNote, onInfer } = options
  const { autoInferPyDeps, pyInferBackend, autoInferWriteManifest, pyRequirementsOptions } = settings
  return {
    runtime: 'python',
    target: PYTHON_TARGET,
    manifests: [PYTHON_MANIFEST],
    concurrency: availableParallelism(),
    isAhead: settings.preinstallPyDepsOnStart,
    isOn: settings.autoRequirements,
    setting: 'FN_AUTO_REQUIREMENTS',
    rules: JSON.stringify([autoInferPyDeps, pyInferBackend, autoInferWriteManifest, pyRequirementsOptions]),
    isStrict: settings.autoInferStrict,
    onNote,
    ...(onInfer && { onInfer }),
    toEnv: toPythonHostEnv,
    isWanted,
    readVersion,
    plan: (unit, toolchain, tools) => new PythonFolder(unit, options, toolchain).plan(tools),
  }
}

/** True unless no file names or imports anything. */
function isWanted({ folder, functions }: InstallUnit): boolean {
  if (hasFile(folder, PYTHON_MANIFEST)) return true
  return functions.some(({ entryPath }) => /\bimport\b|#\s*@requirements/.test(readOptional(entryPath) ?? ''))
}

async function readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
  const script =
    'import sys, sysconfig; print(sys.version, sysconfig.get_config_var("SOABI"), sysconfig.get_platform())'
  const { code, output } = await tools.run({ command: program, args: ['-I', '-c', script], cwd })
  if (code !== 0) throw passingError(`${program} does not report its version: ${output.trim().slice(-200)}`)
  return output.trim()
}

/** One folder: its set of packages, and the files beside its functions. */
class PythonFolder {
  readonly #unit: InstallUnit
  readonly #options: PythonStepOptions
  readonly #toolchain: Toolchain
  readonly #dependencies: PythonDependencies

  constructor(unit: InstallUnit, options: PythonStepOptions, toolchain: Toolchain) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#dependencies = new PythonDependencies(unit, options)
  }

  async plan(tools: BuildTools): Promise<InstallPlan | null> {
    const dependencies = this.#dependencies
    const { autoInferPyDeps, pyInferBackend, autoInferWriteManifest } = this.#options.settings
    const infers = autoInferPyDeps !== false
    const startedAt = performance.now()
    await dependencies.infer(this.#toolchain, tools)
    const inferenceDurationMs = Math.round((performance.now() - startedAt) * 10) / 10
    const { isNamed, isGenerated, found, guesses } = dependencies
    if (!isNamed && found.length === 0) return null
    return {
      key: dependencies.toKey(this.#toolchain),
      facts: {
        mode: isNamed && !isGenerated ? 'manifest' : 'inferred',
        manifest: hasFile(this.#unit.folder, PYTHON_MANIFEST) ? PYTHON_MANIFEST : null,
        inferBackend: infers ? pyInferBackend : null,
        inferenceDurationMs: infers ? inferenceDurationMs : 0,
        inferredImports: found.map(({ name }) => name),
      },
      ...(!isNamed && guesses.length === 0 && { emptyOutcome: () => this.#toEmpty() }),
      inferred: dependencies.inferred,
      fill: (draft, work) => this.#fill(draft, work),
      retell: cause => this.#toError(cause as PipFailure),
      blame: cause => dependencies.blame(cause as PipFailure),
      unmet: outcome => dependencies.unmet(outcome),
      settle: set => this.#settle(set, !this.#unit.isPack && autoInferWriteManifest),
    }
  }

  async #toEmpty(): Promise<SetOutcome> {
    const outcome = await this.#findUnresolved()
    this.#dependencies.noteDoubt(outcome)
    return outcome
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { guesses: all, isNamed } = this.#dependencies
    let guesses = all
    // Named packages may have the modules under other names: PyYAML has yaml.
    if (isNamed && all.length > 0) {
      await this.#install(draft, [], tools)
      const has = listModules(draft.below(PYTHON_TARGET).path)
      guesses = all.filter(({ cause }) => !has.has(cause.name))
    }
    const isDone = guesses.length === 0 && all.length > 0
    if (!isDone) await this.#install(draft, guesses, tools)
    return this.#toOutcome(draft.below(PYTHON_TARGET).path, guesses)
  }

  async #install(draft: OwnFolder, guesses: readonly Guess[], tools: BuildTools): Promise<void> {
    const { folder } = this.#unit
    const { named, hasOptions } = this.#dependencies
    if (tools.user != null) await tools.user.remove(draft.below(PYTHON_TARGET))
    else draft.remove(PYTHON_TARGET)
    // A source distribution runs its own code when it is installed, which an import alone does not ask for.
    const lines = guesses.map(({ name }) => `--only-binary ${name}\n${name}`)
    const wanted = draft.write('wanted.txt', `${[...named.map(({ text }) => text), ...lines].join('\n')}\n`)
    const files = hasOptions ? [join(folder, PYTHON_MANIFEST), wanted] : [wanted]
    const target = draft.below(PYTHON_TARGET).make()
    const cwd = hasOptions ? folder : draft.path
    const uv = this.#options.findUv()
    const failure = await runPip({ python: this.#toolchain.program, uv, target, files, draft, cwd }, tools)
    if (failure !== null) throw this.#toError(failure)
  }

  async #toOutcome(target: string, guesses: readonly Guess[]): Promise<SetOutcome> {
    const versions = new Map(listDistributions(target).map(one => [toPackageName(one.name), one]))
    const asked = [...this.#dependencies.named, ...guesses].map(({ name }) => name)
    const resolvedPackages = [...new Set(asked)].flatMap(name => {
      const found = versions.get(name)
      return found === undefined ? [] : [`${found.name}==${found.version}`]
    })
    return { ...(await this.#findUnresolved(listModules(target))), resolvedPackages }
  }

  /** The imports that neither these modules nor the interpreter have. */
  async #findUnresolved(modules: ReadonlySet<string> = new Set()): Promise<SetOutcome> {
    const missing = this.#dependencies.found.filter(({ name }) => !modules.has(name)).map(({ name }) => name)
    const { imports } = this.#options
    const inInterpreter = missing.length === 0 ? [] : await imports.find(this.#toolchain.program, missing)
    return { resolvedPackages: [], unresolvedImports: missing.filter(name => !inInterpreter.includes(name)) }
  }

  /** In the words of this folder, whichever folder's install it was. */
  #toError(failure: PipFailure): GatewayError {
    if (failure.isPassing) return passingError(failure.message, failure.hint ?? undefined, failure)
    const place = this.#dependencies.findCause(failure)
    const shown = place === null ? '' : `${place.file}:${place.line}: `
    const file = this.#unit.functions[0]?.entryFile ?? labelOf(this.#unit, PYTHON_MANIFEST)
    const hint = failure.hint ?? `change it in ${place?.file ?? PYTHON_MANIFEST}, or take it out`
    return installError(`${shown}${failure.message}`, place ?? { file }, hint, failure)
  }

  /** Writes a list of what is installed, and the manifest where it may be written. */
  #settle(set: PackageSet, writesManifest: boolean): Settled {
    this.#dependencies.noteDoubt(set.outcome)
    const own = new OwnFolder(this.#unit.folder)
    const isListed = writeLock(own, set)
    if (writesManifest) this.#writeManifest(own, set)
    const manifest = readOptional(own.pathOf(PYTHON_MANIFEST))
    return {
      isManifestGenerated: manifest?.startsWith(MANIFEST_HEADER) ?? false,
      manifest: manifest === null ? null : PYTHON_MANIFEST,
      lockFile: isListed ? LOCK : null,
    }
  }

  /** Appends what imports asked for; not a byte of what is there changes. A link stays one, and is not written through. */
  #writeManifest(own: OwnFolder, { outcome }: PackageSet): void {
    if (!isWritable(own, PYTHON_MANIFEST)) return
    const { named, guesses } = this.#dependencies
    const stats = lstatSync(own.pathOf(PYTHON_MANIFEST), { throwIfNoEntry: false })
    const text = stats === undefined ? null : readFileSync(own.pathOf(PYTHON_MANIFEST), 'utf8')
    const known = new Set(parseRequirements(text ?? '').named.map(({ name }) => name))
    const inline = new Set(named.map(({ name }) => name))
    const resolved = new Set(outcome.resolvedPackages.map(one => toPackageName(one.split('==', 1)[0]!)))
    const asked = parseRequirements(this.#unit.asked.join('\n')).named.filter(({ name }) => !known.has(name))
    const inferred = guesses.filter(({ name }) => resolved.has(name) && !known.has(name) && !inline.has(name))
    const added = [...asked.map(one => one.text), ...inferred.map(({ name }) => name)]
    if (added.length === 0) return
    const newline = text?.includes('\r\n') === true ? '\r\n' : '\n'
    const gap = text === null || text === '' || text.endsWith('\n') ? '' : newline
    const lines = added.map(name => `${name}${newline}`).join('')
    own.write(PYTHON_MANIFEST, `${text ?? MANIFEST_HEADER}${gap}${lines}`, stats?.mode, stats ?? null)
  }
}

/** @returns false when there is nothing to list */
function writeLock(own: OwnFolder, { folder }: PackageSet): boolean {
  const lines = listDistributions(folder.below(PYTHON_TARGET).path).map(({ name, version }) => `${name}==${version}\n`)
  if (lines.length === 0) return false
  const text = `# What is installed in .deps, for your information: nothing reads this file.\n${lines.join('')}`
  if (own.read(LOCK)?.toString('utf8') !== text) own.write(LOCK, text)
  return true
}
