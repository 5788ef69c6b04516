/**
 * Fills a set of Python packages: what people named must be there, what imports were taken for may turn out to be no package.
 * Owner: §2.16, page dependencies/python.
 *
 *   named ─► installed ─► guesses whose module came with them are dropped
 *   named + guesses ─► installed; guesses as wheels only, because no manifest names them
 */

import { join } from 'node:path'
import type { GatewayError } from '../core/errors.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { below } from './build.ts'
import { type InstallPlace, type InstallUnit, installError, passingError } from './install-step.ts'
import type { SetOutcome } from './package-set.ts'
import { listDistributions, listModules, type PipFailure, runPip } from './pip.ts'
import type { PythonImports } from './python-imports.ts'
import {
  findLine,
  findNamed,
  type Guess,
  isNamed,
  PYTHON_MANIFEST,
  PYTHON_TARGET,
  type PythonWishes,
} from './python-wishes.ts'
import { toPackageName } from './requirements.ts'
import { labelOf } from './unit-files.ts'

interface PythonSetOptions {
  unit: InstallUnit
  wishes: PythonWishes
  toolchain: Toolchain
  functionsRoot: string
  imports: PythonImports
  /** uv's program, null when it is not there. */
  uv: string | null
}

export class PythonSet {
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
