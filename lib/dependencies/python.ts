/**
 * Packages of Python functions: what `requirements.txt`, `#@requirements` and imports ask for, to `.deps`. Owner: §2.16, page
 * dependencies/python.
 *
 *   named: requirements.txt + #@requirements ──────────────────────────────┐
 *   imports that nothing named, no pack and no file has ─► found packages ─┴─► one set ─► .deps, requirements.txt, lock file
 */

import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import { toPythonHostEnv } from '../core/host.ts'
import { below, type BuildTools, readOptional, type Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import { type InstallPlan, type InstallStep, type InstallUnit, passingError } from './install-step.ts'
import type { SetOutcome } from './package-set.ts'
import { settlePythonFiles } from './python-files.ts'
import type { PythonImports } from './python-imports.ts'
import type { PipFailure } from './pip.ts'
import { PythonSet } from './python-set.ts'
import {
  askPipreqs,
  blameGuesses,
  findImports,
  isNamed,
  PYTHON_MANIFEST,
  PYTHON_TARGET,
  type PythonWishes,
  readNamed,
  toDoubtNote,
  toGuesses,
  toUnmet,
} from './python-wishes.ts'
import { hasFile } from './unit-files.ts'

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
