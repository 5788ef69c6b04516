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
import { toPythonHostEnv } from '../core/host-env.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { type BuildTools, readOptional, type Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import {
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  installError,
  passingError,
  type Settled,
} from './install.ts'
import type { PackageSet, SetOutcome } from './package-set.ts'
import { findByPipreqs } from './pipreqs.ts'
import { listDistributions, listModules, type PipFailure, runPip } from './pip.ts'
import type { PythonImport, PythonImports } from './python-imports.ts'
import { parseInline, parseRequirements, type Requirement, toPackageName } from './requirements.ts'

const TARGET = '.deps'
const MANIFEST = 'requirements.txt'
const LOCK = 'requirements.lock.txt'
/** First line of a manifest that the gateway made. */
const HEADER =
  '# Made by fngw from the imports of the handlers here. Yours to edit: names and pins that are here stay.\n'
/** Imports that were taken for packages and are none: so many are left out one after the other before it is given up. */
const MAX_DROPPED = 8
const OPTIONS_SETTING = 'FN_PY_REQUIREMENTS_OPTIONS'

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
}

export function createPythonStep(options: PythonStepOptions): InstallStep {
  const { settings } = options
  return {
    runtime: 'python',
    target: TARGET,
    manifests: [MANIFEST],
    concurrency: availableParallelism(),
    isAhead: settings.preinstallPyDepsOnStart,
    isOn: settings.autoRequirements,
    setting: 'FN_AUTO_REQUIREMENTS',
    rules: JSON.stringify([
      settings.autoInferPyDeps,
      settings.pyInferBackend,
      settings.autoInferWriteManifest,
      settings.autoInferStrict,
      settings.pyRequirementsOptions,
    ]),
    toEnv: toPythonHostEnv,
    isWanted,
    readVersion,
    plan: (unit, toolchain, tools) => new PythonFolder(unit, options, toolchain, tools).plan(),
  }
}

/** True unless no file names or imports anything. */
function isWanted({ folder, functions }: InstallUnit): boolean {
  if (lstatSync(join(folder, MANIFEST), { throwIfNoEntry: false }) !== undefined) return true
  return functions.some(({ entryPath }) => /\bimport\b|#\s*@requirements/.test(readOptional(entryPath) ?? ''))
}

async function readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
  const script =
    'import sys, sysconfig; print(sys.version, sysconfig.get_config_var("SOABI"), sysconfig.get_platform())'
  const { code, output } = await tools.run({ command: program, args: ['-I', '-c', script], cwd })
  if (code !== 0) throw passingError(`${program} does not tell its version: ${output.trim().slice(-200)}`)
  return output.trim()
}

/** A package that an import was taken for. */
interface Guess {
  /** Of the package, as indexes compare it. */
  name: string
  cause: PythonImport
}

/** One look at the folder of Python functions. */
class PythonFolder {
  readonly #unit: InstallUnit
  readonly #options: PythonStepOptions
  readonly #toolchain: Toolchain
  readonly #tools: BuildTools
  /** Named by people, each once. */
  #named: Requirement[] = []
  /** True when the user's file itself goes to the installer, with options in it. */
  #hasOptions = false
  #found: readonly PythonImport[] = []
  #guesses: Guess[] = []

  constructor(unit: InstallUnit, options: PythonStepOptions, toolchain: Toolchain, tools: BuildTools) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#tools = tools
  }

  async plan(): Promise<InstallPlan | null> {
    const { settings } = this.#options
    const manifest = readOptional(join(this.#unit.folder, MANIFEST))
    this.#readNamed(manifest)
    const startedAt = performance.now()
    if (settings.autoInferPyDeps) await this.#readImports()
    const inferenceDurationMs = Math.round((performance.now() - startedAt) * 10) / 10
    const isNamed = this.#named.length > 0 || this.#hasOptions
    if (!isNamed && this.#found.length === 0) return null
    return {
      key: this.#toKey(manifest),
      facts: {
        mode: isNamed ? 'manifest' : 'inferred',
        manifest: manifest === null ? null : MANIFEST,
        inferBackend: settings.autoInferPyDeps ? settings.pyInferBackend : null,
        inferenceDurationMs,
        inferredImports: this.#found.map(({ name }) => name),
      },
      fill: (draft, tools) => this.#fill(draft, tools),
      check: outcome => this.#check(outcome),
      settle: set => this.#settle(set),
    }
  }

  #readNamed(manifest: string | null): void {
    const { label, functions } = this.#unit
    const all: Requirement[] = []
    const take = (
      { named, odd }: ReturnType<typeof parseRequirements>,
      file: string,
      mayHaveOptions: boolean,
    ): void => {
      for (const { text, line, kind } of odd) {
        if (mayHaveOptions && kind !== 'unreadable') {
          this.#hasOptions = true
          continue
        }
        const what =
          kind === 'unreadable'
            ? 'is not the name of a package'
            : `is ${kind === 'option' ? 'an option' : 'a URL or path'}`
        const hint =
          kind === 'unreadable'
            ? 'write a name with an optional version, such as requests>=2.31'
            : mayHaveOptions || file.endsWith('.py')
              ? 'write the name of a package'
              : `write the name of a package, or allow options, URLs and paths in requirements.txt with ${OPTIONS_SETTING}=1`
        throw installError(`${file}:${line}: ${JSON.stringify(text)} ${what}`, { file, line }, hint)
      }
      all.push(...named)
    }
    if (manifest !== null) {
      const file = label === '.' ? MANIFEST : `${label}/${MANIFEST}`
      take(parseRequirements(manifest), file, this.#options.settings.pyRequirementsOptions)
    }
    for (const fn of functions) take(parseInline(readOptional(fn.entryPath) ?? ''), fn.entryFile, false)
    this.#named = [...new Map(all.map(one => [one.text, one])).values()]
  }

  async #readImports(): Promise<void> {
    const { imports, settings } = this.#options
    const { folder, functions, packs, packFolders } = this.#unit
    const { program } = this.#toolchain
    const lists = await Promise.all(
      functions.map(({ entryPath }) => imports.read(program, { entry: entryPath, folder })),
    )
    const packed = new Set([
      ...packs,
      ...packFolders.flatMap(pack => [...listModules(join(pack, TARGET)), ...listModules(pack)]),
    ])
    const byName = new Map<string, PythonImport>()
    for (const one of lists.flat()) {
      // No package is called like a private file; that it is not there is the worker's to tell.
      if (packed.has(one.name) || one.name.startsWith('_')) continue
      const known = byName.get(one.name)
      if (known === undefined || (known.optional && !one.optional)) byName.set(one.name, one)
    }
    this.#found = [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
    const isByTable = settings.pyInferBackend === 'pipreqs' && this.#found.length > 0
    this.#guesses = isByTable ? await this.#askPipreqs() : this.#toGuesses()
  }

  async #askPipreqs(): Promise<Guess[]> {
    const named = new Set(this.#named.map(({ name }) => name))
    const names = await findByPipreqs(this.#unit, this.#toolchain, this.#tools)
    const byName = new Map(this.#found.map(one => [toPackageName(one.name), one]))
    return names.filter(name => !named.has(name)).map(name => ({ name, cause: byName.get(name) ?? this.#found[0]! }))
  }

  /** No table of aliases: a package is taken to be called like its module, in lower case, unless somebody named it. */
  #toGuesses(): Guess[] {
    const named = new Set(this.#named.map(({ name }) => name))
    return this.#found.flatMap(cause => {
      const name = toPackageName(cause.name)
      const isName = cause.name === cause.name.toLowerCase() && /^[a-z0-9]/.test(cause.name)
      return cause.optional || !isName || named.has(name) ? [] : [{ name, cause }]
    })
  }

  #toKey(manifest: string | null): string {
    const key = new BuildKey().add('python', '1').add('toolchain', this.#toolchain.version)
    if (this.#hasOptions) key.add('folder', this.#unit.folder).add('manifest', manifest)
    // The manifest that comes of guesses asks for the same as they did.
    const wanted = [...this.#named.map(({ text }) => text), ...this.#guesses.map(({ name }) => name)]
    key.add('wanted', [...new Set(wanted)].sort().join('\n'))
    // An import that needs no package is part of it too: it decides what is told of the set.
    key.add('imports', this.#found.map(({ name, optional }) => `${name}${optional ? '?' : ''}`).join('\n'))
    return key.toString()
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    let guesses = this.#guesses
    // What people named may have the modules under other names: PyYAML has yaml.
    const isNamed = this.#named.length > 0 || this.#hasOptions
    if (isNamed && guesses.length > 0) {
      const failure = await this.#install(draft, [], tools)
      if (failure !== null) throw this.#toError(failure)
      const has = listModules(draft.below(TARGET).path)
      guesses = guesses.filter(({ cause }) => !has.has(cause.name))
    }
    for (let dropped = 0; ; dropped++) {
      if (!isNamed && guesses.length === 0) {
        draft.below(TARGET).make()
        break
      }
      const isDone = dropped === 0 && guesses.length === 0 && this.#guesses.length > 0
      const failure = isDone ? null : await this.#install(draft, guesses, tools)
      if (failure === null) break
      const none = guesses.find(({ name }) => name === failure.missing)
      if (none === undefined || dropped === MAX_DROPPED) throw this.#toError(failure)
      guesses = guesses.filter(guess => guess !== none)
    }
    return this.#toOutcome(draft, guesses)
  }

  async #install(draft: OwnFolder, guesses: readonly Guess[], tools: BuildTools): Promise<PipFailure | null> {
    const { folder } = this.#unit
    draft.remove(TARGET)
    const names = [...this.#named.map(({ text }) => text), ...guesses.map(({ name }) => name)]
    const wanted = draft.write('wanted.txt', `${names.join('\n')}\n`)
    const files = this.#hasOptions ? [join(folder, MANIFEST), wanted] : [wanted]
    draft.below(TARGET).make()
    const run = { python: this.#toolchain.program, uv: this.#options.findUv(), target: draft.below(TARGET).path, files }
    return runPip({ ...run, cwd: this.#hasOptions ? folder : draft.path }, tools)
  }

  async #toOutcome(draft: OwnFolder, guesses: readonly Guess[]): Promise<SetOutcome> {
    const target = draft.below(TARGET).path
    const versions = new Map(listDistributions(target).map(one => [toPackageName(one.name), one]))
    const asked = [...this.#named.map(({ name }) => name), ...guesses.map(({ name }) => name)]
    const resolvedPackages = [...new Set(asked)].flatMap(name => {
      const found = versions.get(name)
      return found === undefined ? [] : [`${found.name}==${found.version}`]
    })
    const has = listModules(target)
    const missing = this.#found.filter(({ name }) => !has.has(name)).map(({ name }) => name)
    const inInterpreter = missing.length === 0 ? [] : await this.#options.imports.find(this.#toolchain.program, missing)
    return { resolvedPackages, unresolvedImports: missing.filter(name => !inInterpreter.includes(name)) }
  }

  #check({ unresolvedImports }: SetOutcome): void {
    if (!this.#options.settings.autoInferStrict) return
    const missing = this.#found.filter(({ name, optional }) => !optional && unresolvedImports.includes(name))
    const [first] = missing
    if (first === undefined) return
    const shown = missing.map(one => `${this.#toLabel(one.file)}:${one.line} imports ${one.name}`).join('; ')
    const hint =
      `write the name of the package that has ${first.name} into requirements.txt beside the handler, or as ` +
      '"#@requirements <package>" into its first 30 lines; FN_AUTO_INFER_STRICT=0 lets the function run without it'
    const message = `no package is called like what is imported: ${shown}`
    throw installError(message, { file: this.#toLabel(first.file), line: first.line }, hint)
  }

  #toError(failure: PipFailure): Error {
    const place = this.#findCause(failure)
    if (failure.isPassing) return passingError(failure.message, failure.hint ?? undefined)
    const { label, functions } = this.#unit
    const file = place?.file ?? functions[0]?.entryFile ?? (label === '.' ? MANIFEST : `${label}/${MANIFEST}`)
    const shown = place === null ? '' : `${place.file}:${place.line}: `
    const what = `change it in ${place?.file ?? MANIFEST}, or take it out`
    return installError(
      `${shown}${failure.message}`,
      { file, ...(place && { line: place.line }) },
      failure.hint ?? what,
    )
  }

  /** Where the package that could not be had is asked for. */
  #findCause({ missing, message }: PipFailure): { file: string; line: number } | null {
    const { folder, label, functions } = this.#unit
    const isIt = (name: string) =>
      missing === null ? new RegExp(`\\b${name.replaceAll('-', '[-_.]')}\\b`, 'i').test(message) : name === missing
    const manifest = parseRequirements(readOptional(join(folder, MANIFEST)) ?? '').named.find(({ name }) => isIt(name))
    if (manifest !== undefined) return { file: label === '.' ? MANIFEST : `${label}/${MANIFEST}`, line: manifest.line }
    for (const { entryPath, entryFile } of functions) {
      const inline = parseInline(readOptional(entryPath) ?? '').named.find(({ name }) => isIt(name))
      if (inline !== undefined) return { file: entryFile, line: inline.line }
    }
    const guess = this.#guesses.find(({ name }) => isIt(name))
    return guess === undefined ? null : { file: this.#toLabel(guess.cause.file), line: guess.cause.line }
  }

  #settle(set: PackageSet): Settled {
    const { folder, isPack } = this.#unit
    const own = new OwnFolder(folder)
    const target = set.folder.below(TARGET).path
    const lock = listDistributions(target).map(({ name, version }) => `${name}==${version}\n`)
    if (lock.length > 0) {
      const text = `# What is installed in .deps, for your information: nothing reads this file.\n${lock.join('')}`
      if (own.read(LOCK)?.toString('utf8') !== text) own.write(LOCK, text)
    }
    const isWritten = !isPack && this.#options.settings.autoInferWriteManifest
    if (isWritten) this.#writeManifest(own, set.outcome)
    const manifest = readOptional(join(folder, MANIFEST))
    return {
      isManifestGenerated: manifest?.startsWith(HEADER) ?? false,
      manifest: manifest === null ? null : MANIFEST,
      lockFile: lock.length > 0 ? LOCK : null,
    }
  }

  /** Appends what imports asked for; not a byte of what is there changes. A link stays one, and is not written through. */
  #writeManifest(own: OwnFolder, { resolvedPackages }: SetOutcome): void {
    const stats = lstatSync(own.pathOf(MANIFEST), { throwIfNoEntry: false })
    if (stats !== undefined && !stats.isFile()) return
    const text = stats === undefined ? null : readFileSync(own.pathOf(MANIFEST), 'utf8')
    const known = new Set(text === null ? [] : parseRequirements(text).named.map(({ name }) => name))
    const inline = new Set(this.#named.map(({ name }) => name))
    const resolved = new Set(resolvedPackages.map(one => toPackageName(one.split('==', 1)[0]!)))
    const added = this.#guesses
      .map(({ name }) => name)
      .filter(name => resolved.has(name) && !known.has(name) && !inline.has(name))
    if (added.length === 0) return
    const newline = text?.includes('\r\n') === true ? '\r\n' : '\n'
    const gap = text === null || text === '' || text.endsWith('\n') ? '' : newline
    own.write(
      MANIFEST,
      `${text ?? HEADER}${gap}${added.map(name => `${name}${newline}`).join('')}`,
      stats?.mode,
      stats ?? null,
    )
  }

  #toLabel(path: string): string {
    const { functionsRoot } = this.#options
    return path.startsWith(`${functionsRoot}/`) ? path.slice(functionsRoot.length + 1) : path
  }
}
