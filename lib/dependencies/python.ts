/**
 * Packages of Python functions: from `requirements.txt`, `#@requirements` and imports to `.deps`. Owner: §2.16, page dependencies/python.
 *
 *   named: requirements.txt + #@requirements ──────────────────────────────┐
 *   imports that nothing named, no pack and no file has ─► found packages ─┴─► one set ─► .deps, requirements.txt, lock file
 *
 *   named ─► installed ─► guesses whose module came with them are dropped
 *   named + guesses ─► installed; guesses as wheels only, because no manifest names them
 */

import { lstatSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import type { GatewayError } from '../core/errors.ts'
import { toPythonHostEnv } from '../core/host.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { below, hasFile, isWritable, labelOf, readOptional, type Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import {
  askInterpreter,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  type Settled,
  showToken,
  toAddHint,
  type UnmetImport,
} from './install-step.ts'
import type { PackageSet, SetOutcome } from './package-set.ts'
import {
  listDistributions,
  listModules,
  type OddLine,
  parseInline,
  parseRequirements,
  type Requirement,
  type Requirements,
  runPip,
  toPackageName,
} from './pip.ts'
import { findByPipreqs, type PythonImport, type PythonImports } from './python-imports.ts'
import type { BuildTools } from './run-tool.ts'
import { installError, type InstallPlace, type ToolFailure } from './tool-failure.ts'

const PYTHON_TARGET = '.deps'
const PYTHON_MANIFEST = 'requirements.txt'
const LOCK = 'requirements.lock.txt'
/** First line of a manifest that the gateway made. */
const MANIFEST_HEADER =
  '# Made by fngw from the imports of the handlers here. Yours to edit: names and pins that are here stay.\n'
const LOCK_HEADER = '# What is installed in .deps, for your information: nothing reads this file.\n'
/** Characters of a manifest; one with hashes for hundreds of packages has fewer. */
const MAX_MANIFEST_CHARS = 1024 * 1024
const OPTIONS_SETTING = 'FN_PY_REQUIREMENTS_OPTIONS'
const VERSION_SCRIPT =
  'import sys, sysconfig; print(sys.version, sysconfig.get_config_var("SOABI"), sysconfig.get_platform())'

interface PythonStepOptions extends Pick<InstallStep, 'onNote' | 'onInfer'> {
  settings: Settings
  functionsRoot: string
  imports: PythonImports
  /** uv's program, null when it is not there. */
  findUv(): string | null
}

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
    readVersion: (program, tools) => askInterpreter(program, ['-I', '-c', VERSION_SCRIPT], tools),
    plan: (unit, toolchain, tools) => new PythonFolder(unit, options, toolchain).plan(tools),
  }
}

/** True unless no file names or imports anything. */
function isWanted({ folder, functions }: InstallUnit): boolean {
  if (hasFile(folder, PYTHON_MANIFEST)) return true
  return functions.some(({ entryPath }) => /\bimport\b|#\s*@requirements/.test(readOptional(entryPath) ?? ''))
}

/** A package that a file names; `file` is null for one that `fngw deps add` adds. */
interface NamedPackage extends Requirement {
  file: string | null
}

/** A package that an import was taken for. */
interface Guess {
  /** Of the package, as indexes compare it. */
  name: string
  cause: PythonImport
}

/** An import of a folder: its first place, and that of each handler, by full path. */
interface FoundImport extends PythonImport {
  places: readonly (PythonImport & { entry: string })[]
}

/** One folder: what its files name and import, its set of packages, and the files beside its functions. */
class PythonFolder {
  readonly #unit: InstallUnit
  readonly #options: PythonStepOptions
  readonly #toolchain: Toolchain
  /** Path of `requirements.txt` below the functions root, and its text; null when it is missing. */
  readonly #file: string
  readonly #manifest: string | null
  /** Named by people, each once. */
  readonly #named: readonly NamedPackage[]
  /** True when the user's file itself goes to the installer, with options in it. */
  readonly #hasOptions: boolean
  /** True when all that is named comes from imports: in a manifest that the gateway generated. */
  readonly #isGenerated: boolean
  #found: readonly FoundImport[] = []
  #guesses: readonly Guess[] = []

  /** Reads what files name. @throws GatewayError for a line that is not the name of a package */
  constructor(unit: InstallUnit, options: PythonStepOptions, toolchain: Toolchain) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#file = labelOf(unit.label, PYTHON_MANIFEST)
    this.#manifest = readOptional(join(unit.folder, PYTHON_MANIFEST))
    const text = this.#manifest ?? ''
    if (text.length > MAX_MANIFEST_CHARS) {
      const message = `${this.#file} is larger than ${MAX_MANIFEST_CHARS / 1024 / 1024} MiB`
      throw installError(message, { file: this.#file }, 'name the packages that the function needs, each on a line')
    }
    const parsed = parseRequirements(text)
    const own = toNamed(parsed, this.#file, options.settings.pyRequirementsOptions)
    const asked = toNamed(parseRequirements(unit.asked.join('\n')), null)
    const inline = unit.functions.flatMap(({ entryPath, entryFile }) => {
      return toNamed(parseInline(readOptional(entryPath) ?? ''), entryFile)
    })
    const all = [...own, ...inline, ...asked]
    this.#named = [...new Map(all.toReversed().map(one => [one.text, one])).values()].reverse()
    this.#hasOptions = parsed.odd.length > 0
    this.#isGenerated = text.startsWith(MANIFEST_HEADER) && all.length === own.length
  }

  async plan(tools: BuildTools): Promise<InstallPlan | null> {
    const { autoInferPyDeps, pyInferBackend } = this.#options.settings
    const infers = autoInferPyDeps !== false
    const startedAt = performance.now()
    if (infers) this.#found = await this.#findImports()
    if (autoInferPyDeps === true) {
      const guesses = pyInferBackend === 'pipreqs' ? await this.#askPipreqs(tools) : this.#toGuesses()
      this.#guesses = guesses.filter(({ name }) => !this.#unit.failed.has(name))
    }
    const inferenceDurationMs = Math.round((performance.now() - startedAt) * 10) / 10
    const isNamed = this.#isNamed
    if (!isNamed && this.#found.length === 0) return null
    return {
      key: this.#key,
      facts: {
        mode: isNamed && !this.#isGenerated ? 'manifest' : 'inferred',
        manifest: hasFile(this.#unit.folder, PYTHON_MANIFEST) ? PYTHON_MANIFEST : null,
        infer_backend: infers ? pyInferBackend : null,
        inference_duration_ms: infers ? inferenceDurationMs : 0,
        inferred_imports: this.#found.map(({ name }) => name),
      },
      ...(!isNamed && this.#guesses.length === 0 && { emptyOutcome: () => this.#toEmpty() }),
      inferred: new Map(this.#guesses.map(({ name, cause }) => [name, this.#toShown(cause)])),
      // A line with a path may be at fault as well, and is not known by a name.
      declares: name => (name === '' ? this.#hasOptions : this.#named.some(one => one.name === name)),
      fill: (draft, work) => this.#fill(draft, work),
      toUserError: failure => this.#toError(failure),
      unmet: outcome => this.#unmet(outcome),
      settle: set => this.#settle(set),
    }
  }

  /** True when a person named something. */
  get #isNamed(): boolean {
    return this.#named.length > 0 || this.#hasOptions
  }

  /** Digest of everything that decides about the packages. */
  get #key(): string {
    const key = new BuildKey().add('python', '1').add('toolchain', this.#toolchain.version)
    if (this.#hasOptions) key.add('folder', this.#unit.folder).add('manifest', this.#manifest)
    // The manifest that comes of guesses asks for the same as they did.
    const wanted = [...this.#named.map(({ text }) => text), ...this.#guesses.map(({ name }) => name)]
    key.add('wanted', [...new Set(wanted)].sort().join('\n'))
    // An import that needs no package is part of it too: it decides about messages of the set.
    key.add('imports', this.#found.map(({ name, optional }) => `${name}${optional ? '?' : ''}`).join('\n'))
    return key.toString()
  }

  /** Imports that nothing in the folder or its packs has, by name. */
  async #findImports(): Promise<FoundImport[]> {
    const { folder, functions, packs, packFolders } = this.#unit
    const { imports, functionsRoot: root } = this.#options
    const read = async ({ entryPath: entry }: { entryPath: string }) => {
      const found = await imports.read(this.#toolchain.program, { entry, folder, root })
      return found.map(one => ({ ...one, entry }))
    }
    const list = (await Promise.all(functions.map(read))).flat()
    const packed = new Set(packs)
    for (const at of packFolders.flatMap(pack => [join(pack, PYTHON_TARGET), pack])) {
      for (const name of listModules(at)) packed.add(name)
    }
    const byName = new Map<string, FoundImport>()
    for (const one of list) {
      // No package is named like a private file; the worker reports that it is missing.
      if (packed.has(one.name) || one.name.startsWith('_')) continue
      const known = byName.get(one.name)
      const first = known === undefined || (known.optional && !one.optional) ? one : known
      byName.set(one.name, { ...first, places: [...(known?.places ?? []), one] })
    }
    return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  /** No table of aliases: a package is taken to be called like its module, in lower case, unless it is named. */
  #toGuesses(): Guess[] {
    const known = new Set(this.#named.map(({ name }) => name))
    return this.#found.flatMap(cause => {
      const name = toPackageName(cause.name)
      const isName = cause.name === cause.name.toLowerCase() && /^[a-z0-9]/.test(cause.name)
      return cause.optional || cause.doubt !== null || !isName || known.has(name) ? [] : [{ name, cause }]
    })
  }

  /** The packages that pipreqs takes the imports for. */
  async #askPipreqs(tools: BuildTools): Promise<Guess[]> {
    const [first] = this.#found
    if (first === undefined) return []
    const left = new Set(this.#named.map(({ name }) => name))
    for (const { name, doubt } of this.#found) if (doubt !== null) left.add(toPackageName(name))
    const byName = new Map(this.#found.map(one => [toPackageName(one.name), one]))
    const names = await findByPipreqs(this.#unit.folder, this.#toolchain, tools)
    return names.filter(name => !left.has(name)).map(name => ({ name, cause: byName.get(name) ?? first }))
  }

  #toPlace({ file, line }: PythonImport): { file: string; line: number } {
    return { file: below(this.#options.functionsRoot, file), line }
  }

  #toShown(found: PythonImport): string {
    const { file, line } = this.#toPlace(found)
    return `${file}:${line}`
  }

  /** Where the package is asked for that a failure is about. */
  #findCause({ packageName, message }: ToolFailure): InstallPlace | null {
    const isIt = (name: string) =>
      packageName === ''
        ? new RegExp(`\\b${name.replaceAll('-', '[-_.]')}\\b`, 'i').test(message)
        : name === packageName
    const named = this.#named.find(({ name, file }) => file !== null && isIt(name))
    if (named !== undefined) return { file: named.file!, line: named.line }
    const guess = this.#guesses.find(({ name }) => isIt(name))
    if (guess === undefined) return null
    return (this.#hasOptions ? this.#findLine(guess.name) : null) ?? this.#toPlace(guess.cause)
  }

  /** The line of a manifest with paths and options that has the name in it, such as `./acme-1.0.tar.gz`. */
  #findLine(name: string): InstallPlace | null {
    const lines = (this.#manifest ?? '').split(/\r?\n/)
    const pattern = new RegExp(`(?<![A-Za-z0-9])${name.replaceAll(/[-_.]+/g, '[-_.]+')}(?![A-Za-z])`, 'i')
    const at = lines.findIndex(line => !line.trimStart().startsWith('#') && pattern.test(line))
    return at === -1 ? null : { file: this.#file, line: at + 1 }
  }

  /** With the place in this folder, whichever folder's install it was. */
  #toError(failure: ToolFailure): GatewayError {
    if (failure.kind !== 'lasting') return failure.toError(failure.message, { file: this.#file })
    const place = this.#findCause(failure)
    const file = this.#unit.functions[0]?.entryFile ?? this.#file
    const hint = failure.hint ?? `change it in ${place?.file ?? PYTHON_MANIFEST}, or take it out`
    return failure.toError(failure.message, place ?? { file }, hint)
  }

  /**
   * Imports without a package that may be files, or those that may not. Where a changed `sys.path` leads is known when the function
   * runs, and not before: such an import is only logged.
   */
  #unresolved({ unresolvedImports }: SetOutcome, isDoubtful: boolean): FoundImport[] {
    const { autoInferStrict } = this.#options.settings
    return this.#found.filter(({ name, optional, doubt }) => {
      const isNoted = autoInferStrict ? doubt?.line != null : doubt !== null
      return !optional && isNoted === isDoubtful && unresolvedImports.includes(name)
    })
  }

  /** One for each handler that imports something without a package. */
  #unmet(outcome: SetOutcome): UnmetImport[] {
    const missing = this.#unresolved(outcome, false)
    return this.#unit.functions.flatMap(({ entryPath }) => {
      const own = missing.flatMap(({ places }) => {
        return places.find(({ entry, optional }) => entry === entryPath && !optional) ?? []
      })
      return own.length === 0 ? [] : { entries: [entryPath], error: this.#toUnmetError(own) }
    })
  }

  #toUnmetError(missing: readonly PythonImport[]): GatewayError {
    const { functionsRoot, settings } = this.#options
    const first = missing[0]!
    const { name } = first
    const fail = (message: string, hint: string) => installError(message, this.#toPlace(first), hint)
    if (first.doubt !== null) {
      const another = below(functionsRoot, first.doubt.file)
      return fail(
        `${this.#toShown(first)} imports ${name}, and ${another} has that name: no package is installed for it unasked`,
        'to use the file put it beside the handler, or its folder on sys.path; ' +
          `to have the package ${name} of the index, write ${name} into requirements.txt beside the handler`,
      )
    }
    const shown = missing.map(one => `${this.#toShown(one)} imports ${one.name}`).join('; ')
    if (settings.autoInferPyDeps === 'report') {
      const names = [...new Set(missing.map(one => toPackageName(one.name)))].join(' ')
      const hint = toAddHint(this.#unit.label, names, 'FN_AUTO_INFER_PY_DEPS')
      return fail(`${shown}: ${this.#file} names no package for it`, hint)
    }
    const failure = this.#unit.failed.get(toPackageName(name))
    // The name says it already where the index does not have the package.
    const why = failure === undefined || failure.packageName !== '' ? '' : `: ${failure.message}`
    return fail(
      `no package is called like what is imported: ${shown}${why}`,
      `write the name of the package that has ${name} into requirements.txt beside the handler, or as ` +
        '"#@requirements <package>" into its first 30 lines, also for a package without wheels; ' +
        'FN_AUTO_INFER_STRICT=0 lets the function run without it',
    )
  }

  /** Logs imports that may be files. */
  #noteDoubt(outcome: SetOutcome): void {
    const doubtful = this.#unresolved(outcome, true)
    const { doubt = null } = doubtful[0] ?? {}
    if (doubt === null) return
    const names = doubtful.map(({ name }) => name).join(', ')
    const where = below(this.#options.functionsRoot, doubt.file)
    const changes = `${where}:${doubt.line} changes sys.path to what cannot be read before it runs`
    const why = doubt.line === null ? `${where} has that name` : changes
    const rule = 'packages must be named in requirements.txt'
    this.#options.onNote(`${this.#unit.label}: ${names}: not installed, because ${why}; ${rule}`)
  }

  async #toEmpty(): Promise<SetOutcome> {
    const outcome = { resolvedPackages: [], unresolvedImports: await this.#findUnresolved(new Set()) }
    this.#noteDoubt(outcome)
    return outcome
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const all = this.#guesses
    const target = draft.below(PYTHON_TARGET)
    let guesses = all
    // Named packages may have the modules under other names: PyYAML has yaml.
    if (this.#isNamed && all.length > 0) {
      await this.#install(draft, [], tools)
      const has = listModules(target.path)
      guesses = all.filter(({ cause }) => !has.has(cause.name))
    }
    if (guesses.length > 0 || all.length === 0) await this.#install(draft, guesses, tools)
    const versions = new Map(listDistributions(target.path).map(one => [toPackageName(one.name), one]))
    const asked = new Set([...this.#named, ...guesses].map(({ name }) => name))
    const installed = [...asked].flatMap(name => versions.get(name) ?? [])
    const resolvedPackages = installed.map(({ name, version }) => `${name}==${version}`)
    return { resolvedPackages, unresolvedImports: await this.#findUnresolved(listModules(target.path)) }
  }

  async #install(draft: OwnFolder, guesses: readonly Guess[], tools: BuildTools): Promise<void> {
    const { folder } = this.#unit
    const packages = draft.below(PYTHON_TARGET)
    if (tools.user != null) await tools.user.remove(packages)
    else packages.removeAll()
    // A source distribution runs its own code when it is installed, which an import alone does not ask for.
    const lines = guesses.map(({ name }) => `--only-binary ${name}\n${name}`)
    const wanted = draft.write('wanted.txt', `${[...this.#named.map(({ text }) => text), ...lines].join('\n')}\n`)
    const run = {
      python: this.#toolchain.program,
      uv: this.#options.findUv(),
      target: packages.make(),
      files: this.#hasOptions ? [join(folder, PYTHON_MANIFEST), wanted] : [wanted],
      cwd: this.#hasOptions ? folder : draft.path,
      draft,
    }
    const failure = await runPip(run, tools)
    if (failure !== null) throw failure
  }

  /** The imports that neither these modules nor the interpreter have. */
  async #findUnresolved(modules: ReadonlySet<string>): Promise<string[]> {
    const missing = this.#found.filter(({ name }) => !modules.has(name)).map(({ name }) => name)
    if (missing.length === 0) return []
    const inInterpreter = await this.#options.imports.find(this.#toolchain.program, missing)
    return missing.filter(name => !inInterpreter.includes(name))
  }

  /** Writes a list of what is installed, and the manifest where it may be written. */
  #settle(set: PackageSet): Settled {
    this.#noteDoubt(set)
    const own = new OwnFolder(this.#unit.folder)
    const installed = listDistributions(set.folder.below(PYTHON_TARGET).path)
    const list = LOCK_HEADER + installed.map(({ name, version }) => `${name}==${version}\n`).join('')
    const isListed = installed.length > 0
    if (isListed && own.read(LOCK)?.toString('utf8') !== list) own.write(LOCK, list)
    if (!this.#unit.isPack && this.#options.settings.autoInferWriteManifest) this.#writeManifest(own, set)
    const manifest = readOptional(own.pathOf(PYTHON_MANIFEST))
    return {
      isManifestGenerated: manifest?.startsWith(MANIFEST_HEADER) ?? false,
      manifest: manifest === null ? null : PYTHON_MANIFEST,
      lockFile: isListed ? LOCK : null,
    }
  }

  /** Appends what imports asked for; not a byte of what is there changes. A link stays one, and is not written through. */
  #writeManifest(own: OwnFolder, { resolvedPackages }: PackageSet): void {
    if (!isWritable(own, PYTHON_MANIFEST)) return
    const path = own.pathOf(PYTHON_MANIFEST)
    const stats = lstatSync(path, { throwIfNoEntry: false })
    const text = readOptional(path)
    const known = new Set(parseRequirements(text ?? '').named.map(({ name }) => name))
    const inline = new Set(this.#named.map(({ name }) => name))
    const resolved = new Set(resolvedPackages.map(one => toPackageName(one.split('==', 1)[0]!)))
    const asked = parseRequirements(this.#unit.asked.join('\n')).named.filter(({ name }) => !known.has(name))
    const inferred = this.#guesses.filter(({ name }) => resolved.has(name) && !known.has(name) && !inline.has(name))
    const added = [...asked.map(one => one.text), ...inferred.map(({ name }) => name)]
    if (added.length === 0) return
    const newline = text?.includes('\r\n') === true ? '\r\n' : '\n'
    const gap = text === null || text === '' || text.endsWith('\n') ? '' : newline
    const lines = added.map(name => `${name}${newline}`).join('')
    own.write(PYTHON_MANIFEST, `${text ?? MANIFEST_HEADER}${gap}${lines}`, stats?.mode, stats ?? null)
  }
}

/** @param file - below the functions root; null for `fngw deps add` */
function toNamed({ named, odd }: Requirements, file: string | null, mayHaveOptions = false): NamedPackage[] {
  const refused = odd.find(({ kind }) => kind === 'unreadable' || !mayHaveOptions)
  if (refused !== undefined) throw toOddError(refused, file ?? 'deps add')
  return named.map(one => ({ ...one, file }))
}

function toOddError({ text, line, kind }: OddLine, file: string): GatewayError {
  const fail = (word: string, what: string, hint: string) =>
    installError(`${file}:${line}: ${showToken(word)} is ${what}`, { file, line }, hint)
  if (kind === 'unreadable') {
    return fail(text, 'not the name of a package', 'write a name with an optional version, such as requests>=2.31')
  }
  const allow = `, or allow options, URLs and paths in requirements.txt with ${OPTIONS_SETTING}=1`
  const hint = `write the name of a package${file.endsWith('.py') ? '' : allow}`
  if (kind === 'option') return fail(text, 'an option', hint)
  // Of `name @ https://...` the address.
  return fail(text.split(/\s+/).find(part => /[/\\]/.test(part)) ?? text, 'a URL or path', hint)
}
