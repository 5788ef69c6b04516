/**
 * Packages of Python functions: what `requirements.txt`, `#@requirements` and imports ask for, to `.deps`. Owner: §2.16, page
 * dependencies/python.
 *
 *   named: requirements.txt + #@requirements ──────────────────────────────┐
 *   imports that nothing named, no pack and no file has ─► found packages ─┴─► one set ─► .deps, requirements.txt, lock file
 */

import { lstatSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import type { GatewayError } from '../core/errors.ts'
import { toPythonHostEnv } from '../core/host.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { BuildKey } from './build-cache.ts'
import { below, type BuildTools, readOptional, type Toolchain } from './build.ts'
import {
  hasFile,
  installError,
  type InstallPlace,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  isWritable,
  labelOf,
  passingError,
  type Settled,
} from './install-step.ts'
import type { PackageSet, SetOutcome } from './package-set.ts'
import { listDistributions, listModules, parseRequirements, type PipFailure, runPip, toPackageName } from './pip.ts'
import {
  askPipreqs,
  blameGuesses,
  findImports,
  findLine,
  findNamed,
  type Guess,
  isNamed,
  MANIFEST_HEADER,
  PYTHON_MANIFEST,
  PYTHON_TARGET,
  type PythonWishes,
  readNamed,
  toDoubtNote,
  toGuesses,
  toUnmet,
} from './python-dependencies.ts'
import type { PythonImports } from './python-imports.ts'

type PythonSettings = Pick<
  Settings,
  | 'autoRequirements'
  | 'autoInferPyDeps'
  | 'pyInferBackend'
  | 'autoInferWriteManifest'
  | 'autoInferStrict'
  | 'preinstallPyDepsOnStart'
  | 'pyRequirementsOptions'
>

interface PythonStepOptions {
  settings: PythonSettings
  functionsRoot: string
  imports: PythonImports
  /** uv's program, null when it is not there. */
  findUv(): string | null
  /** As of `InstallStep`. */
  onNote(text: string): void
  onInfer?(text: string): void
}

export function createPythonStep(options: PythonStepOptions): InstallStep {
  const { settings } = options
  return {
    runtime: 'python',
    target: PYTHON_TARGET,
    manifests: [PYTHON_MANIFEST],
    concurrency: availableParallelism(),
    isAhead: settings.preinstallPyDepsOnStart,
    isOn: settings.autoRequirements,
    setting: 'FN_AUTO_REQUIREMENTS',
    rules: JSON.stringify([
      settings.autoInferPyDeps,
      settings.pyInferBackend,
      settings.autoInferWriteManifest,
      settings.pyRequirementsOptions,
    ]),
    isStrict: settings.autoInferStrict,
    onNote: options.onNote,
    ...(options.onInfer && { onInfer: options.onInfer }),
    toEnv: toPythonHostEnv,
    isWanted,
    readVersion,
    plan: (unit, toolchain, tools) => makePlan({ unit, options, toolchain, tools }),
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
  if (code !== 0) throw passingError(`${program} does not tell its version: ${output.trim().slice(-200)}`)
  return output.trim()
}

/** One look at a folder. */
interface Look {
  unit: InstallUnit
  options: PythonStepOptions
  toolchain: Toolchain
  tools: BuildTools
}

async function makePlan(look: Look): Promise<InstallPlan | null> {
  const { unit, toolchain } = look
  const { settings, imports, functionsRoot, findUv, onNote } = look.options
  const { autoInferPyDeps, pyInferBackend, autoInferWriteManifest } = settings
  const infers = autoInferPyDeps !== false
  const startedAt = performance.now()
  const wishes = await readWishes(look)
  const inferenceDurationMs = Math.round((performance.now() - startedAt) * 10) / 10
  if (!isNamed(wishes) && wishes.found.length === 0) return null
  const toSet = () => new PythonSet({ unit, wishes, toolchain, functionsRoot, imports, uv: findUv() })
  const noteDoubt = (outcome: SetOutcome): void => {
    const note = toDoubtNote(wishes.found, outcome, { functionsRoot, settings })
    if (note !== null) onNote(`${unit.label}: ${note}`)
  }
  const toEmpty = async (): Promise<SetOutcome> => {
    const outcome = await toSet().findUnresolved()
    noteDoubt(outcome)
    return outcome
  }
  return {
    key: toKey(wishes, look),
    facts: {
      mode: isNamed(wishes) && !wishes.isGenerated ? 'manifest' : 'inferred',
      manifest: hasFile(unit.folder, PYTHON_MANIFEST) ? PYTHON_MANIFEST : null,
      inferBackend: infers ? pyInferBackend : null,
      inferenceDurationMs: infers ? inferenceDurationMs : 0,
      inferredImports: wishes.found.map(({ name }) => name),
    },
    ...(!isNamed(wishes) && wishes.guesses.length === 0 && { emptyOutcome: toEmpty }),
    inferred: wishes.guesses.map(({ name, cause }) => `${name} (${below(functionsRoot, cause.file)}:${cause.line})`),
    fill: (draft, tools) => toSet().fill(draft, tools),
    retell: cause => toSet().toError(cause as PipFailure),
    blame: cause => blameGuesses(cause as PipFailure, wishes),
    unmet: outcome => toUnmet(wishes.found, outcome, { unit, functionsRoot, settings }),
    settle: set => {
      noteDoubt(set.outcome)
      return settlePythonFiles(unit, set, unit.isPack || !autoInferWriteManifest ? null : wishes)
    },
  }
}

async function readWishes({ unit, options, toolchain, tools }: Look): Promise<PythonWishes> {
  const { settings } = options
  const named = readNamed(unit, settings.pyRequirementsOptions)
  const { autoInferPyDeps: infers, pyInferBackend } = settings
  const found = infers === false ? [] : await findImports(unit, toolchain.program, options)
  if (infers !== true) return { ...named, found, guesses: [] }
  const isByTable = pyInferBackend === 'pipreqs'
  const guesses = isByTable ? await askPipreqs(found, named, unit, [toolchain, tools]) : toGuesses(found, named)
  return { ...named, found, guesses: guesses.filter(({ name }) => !unit.failed.has(name)) }
}

function toKey({ named, hasOptions, found, guesses }: PythonWishes, { unit, toolchain }: Look): string {
  const key = new BuildKey().add('python', '1').add('toolchain', toolchain.version)
  if (hasOptions) key.add('folder', unit.folder).add('manifest', readOptional(join(unit.folder, PYTHON_MANIFEST)))
  // The manifest that comes of guesses asks for the same as they did.
  const wanted = [...named.map(({ text }) => text), ...guesses.map(({ name }) => name)]
  key.add('wanted', [...new Set(wanted)].sort().join('\n'))
  // An import that needs no package is part of it too: it decides what is told of the set.
  key.add('imports', found.map(({ name, optional }) => `${name}${optional ? '?' : ''}`).join('\n'))
  return key.toString()
}

// // Fills a set of Python packages: what people named must be there, what imports were taken for may turn out to be no package.
//   named ─► installed ─► guesses whose module came with them are dropped
//   named + guesses ─► installed; guesses as wheels only, because no manifest names them

interface PythonSetOptions {
  unit: InstallUnit
  wishes: PythonWishes
  toolchain: Toolchain
  functionsRoot: string
  imports: PythonImports
  /** uv's program, null when it is not there. */
  uv: string | null
}

class PythonSet {
  readonly #options: PythonSetOptions

  constructor(options: PythonSetOptions) {
    this.#options = options
  }

  async fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { wishes } = this.#options
    let guesses = wishes.guesses
    // What people named may have the modules under other names: PyYAML has yaml.
    if (isNamed(wishes) && guesses.length > 0) {
      const failure = await this.#install(draft, [], tools)
      if (failure !== null) throw this.toError(failure)
      const has = listModules(draft.below(PYTHON_TARGET).path)
      guesses = guesses.filter(({ cause }) => !has.has(cause.name))
    }
    const isDone = guesses.length === 0 && wishes.guesses.length > 0
    const failure = isDone ? null : await this.#install(draft, guesses, tools)
    if (failure !== null) throw this.toError(failure)
    return this.#toOutcome(draft, guesses)
  }

  async #install(draft: OwnFolder, guesses: readonly Guess[], tools: BuildTools): Promise<PipFailure | null> {
    const { unit, wishes, toolchain, uv } = this.#options
    if (tools.user != null) await tools.user.remove(draft.below(PYTHON_TARGET))
    else draft.remove(PYTHON_TARGET)
    // A source distribution runs its own code when it is installed, which an import alone does not ask for.
    const lines = guesses.map(({ name }) => `--only-binary ${name}\n${name}`)
    const wanted = draft.write('wanted.txt', `${[...wishes.named.map(({ text }) => text), ...lines].join('\n')}\n`)
    const files = wishes.hasOptions ? [join(unit.folder, PYTHON_MANIFEST), wanted] : [wanted]
    draft.below(PYTHON_TARGET).make()
    const run = { python: toolchain.program, uv, target: draft.below(PYTHON_TARGET).path, files, draft }
    return runPip({ ...run, cwd: wishes.hasOptions ? unit.folder : draft.path }, tools)
  }

  async #toOutcome(draft: OwnFolder, guesses: readonly Guess[]): Promise<SetOutcome> {
    const { wishes } = this.#options
    const target = draft.below(PYTHON_TARGET).path
    const versions = new Map(listDistributions(target).map(one => [toPackageName(one.name), one]))
    const asked = [...wishes.named.map(({ name }) => name), ...guesses.map(({ name }) => name)]
    const resolvedPackages = [...new Set(asked)].flatMap(name => {
      const found = versions.get(name)
      return found === undefined ? [] : [`${found.name}==${found.version}`]
    })
    return { ...(await this.findUnresolved(listModules(target))), resolvedPackages }
  }

  /** The imports that neither these modules nor the interpreter have. */
  async findUnresolved(modules: ReadonlySet<string> = new Set()): Promise<SetOutcome> {
    const { wishes, imports, toolchain } = this.#options
    const missing = wishes.found.filter(({ name }) => !modules.has(name)).map(({ name }) => name)
    const inInterpreter = missing.length === 0 ? [] : await imports.find(toolchain.program, missing)
    return { resolvedPackages: [], unresolvedImports: missing.filter(name => !inInterpreter.includes(name)) }
  }

  /** In the words of this folder, whichever folder's install it was. */
  toError(failure: PipFailure): GatewayError {
    if (failure.isPassing) return passingError(failure.message, failure.hint ?? undefined, failure)
    const place = this.#findCause(failure)
    const shown = place === null ? '' : `${place.file}:${place.line}: `
    const { unit } = this.#options
    const file = unit.functions[0]?.entryFile ?? labelOf(unit, PYTHON_MANIFEST)
    const hint = failure.hint ?? `change it in ${place?.file ?? PYTHON_MANIFEST}, or take it out`
    return installError(`${shown}${failure.message}`, place ?? { file }, hint, failure)
  }

  /** Where the package that could not be had is asked for. */
  #findCause({ missing, message }: PipFailure): InstallPlace | null {
    const { unit, wishes, functionsRoot } = this.#options
    const isIt = (name: string) =>
      missing === null ? new RegExp(`\\b${name.replaceAll('-', '[-_.]')}\\b`, 'i').test(message) : name === missing
    const named = findNamed(unit, isIt)
    if (named !== null) return named
    const guess = wishes.guesses.find(({ name }) => isIt(name))
    const line = guess !== undefined && wishes.hasOptions ? findLine(unit, guess.name) : null
    if (line !== null) return line
    return guess === undefined ? null : { file: below(functionsRoot, guess.cause.file), line: guess.cause.line }
  }
}

// What is written beside Python functions after an install: a list of what is there, and the manifest.

const LOCK = 'requirements.lock.txt'
/** @param wishes - null where manifests are left alone */
function settlePythonFiles(
  { folder, asked }: Pick<InstallUnit, 'folder' | 'asked'>,
  set: PackageSet,
  wishes: PythonWishes | null,
): Settled {
  const own = new OwnFolder(folder)
  const isListed = writeLock(own, set)
  if (wishes !== null) writeManifest(own, set, wishes, asked)
  const manifest = readOptional(join(folder, PYTHON_MANIFEST))
  return {
    isManifestGenerated: manifest?.startsWith(MANIFEST_HEADER) ?? false,
    manifest: manifest === null ? null : PYTHON_MANIFEST,
    lockFile: isListed ? LOCK : null,
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

/** Appends what imports asked for; not a byte of what is there changes. A link stays one, and is not written through. */
function writeManifest(
  own: OwnFolder,
  { outcome }: PackageSet,
  { named, guesses }: PythonWishes,
  asked: readonly string[],
): void {
  if (!isWritable(own, PYTHON_MANIFEST)) return
  const stats = lstatSync(own.pathOf(PYTHON_MANIFEST), { throwIfNoEntry: false })
  const text = stats === undefined ? null : readFileSync(own.pathOf(PYTHON_MANIFEST), 'utf8')
  const known = new Set(text === null ? [] : parseRequirements(text).named.map(({ name }) => name))
  const inline = new Set(named.map(({ name }) => name))
  const resolved = new Set(outcome.resolvedPackages.map(one => toPackageName(one.split('==', 1)[0]!)))
  const inferred = guesses
    .map(({ name }) => name)
    .filter(name => resolved.has(name) && !known.has(name) && !inline.has(name))
  const added = [...parseRequirements(asked.join('\n')).named.filter(({ name }) => !known.has(name))]
    .map(({ text }) => text)
    .concat(inferred)
  if (added.length === 0) return
  const newline = text?.includes('\r\n') === true ? '\r\n' : '\n'
  const gap = text === null || text === '' || text.endsWith('\n') ? '' : newline
  const lines = added.map(name => `${name}${newline}`).join('')
  own.write(PYTHON_MANIFEST, `${text ?? MANIFEST_HEADER}${gap}${lines}`, stats?.mode, stats ?? null)
}
