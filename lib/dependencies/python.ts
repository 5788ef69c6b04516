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
import type { Settings } from '../config/settings.ts'
import type { GatewayError } from '../core/errors.ts'
import { toPythonHostEnv } from '../core/host.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { below, type BuildTools, readOptional, type Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import {
  askInterpreter,
  type FailedImport,
  hasFile,
  type InstallPlace,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  installError,
  isWritable,
  labelOf,
  passingError,
  type Settled,
  showToken,
  toAddHint,
  type UnmetImport,
} from './install-step.ts'
import type { PackageSet, SetOutcome } from './package-set.ts'
import {
  listDistributions,
  listModules,
  parseInline,
  parseRequirements,
  type PipFailure,
  type Requirement,
  runPip,
  toPackageName,
} from './pip.ts'
import { findByPipreqs, type PythonImport, type PythonImports } from './python-imports.ts'

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

function readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
  const script =
    'import sys, sysconfig; print(sys.version, sysconfig.get_config_var("SOABI"), sysconfig.get_platform())'
  return askInterpreter(program, ['-I', '-c', script], tools, cwd)
}

const PYTHON_TARGET = '.deps'
const PYTHON_MANIFEST = 'requirements.txt'
/** First line of a manifest that the gateway made. */
const MANIFEST_HEADER =
  '# Made by fngw from the imports of the handlers here. Yours to edit: names and pins that are here stay.\n'
/** Characters of a manifest; one with hashes for hundreds of packages has fewer. */
const MAX_MANIFEST_CHARS = 1024 * 1024
const OPTIONS_SETTING = 'FN_PY_REQUIREMENTS_OPTIONS'

interface PythonStepOptions {
  settings: Settings
  functionsRoot: string
  imports: PythonImports
  /** uv's program, null when it is not there. */
  findUv(): string | null
  /** As of `InstallStep`. */
  onNote(text: string): void
  onInfer?(text: string): void
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
  /** Named by people, each once. */
  readonly #named: readonly NamedPackage[]
  /** True when the user's file itself goes to the installer, with options in it. */
  readonly #hasOptions: boolean
  /** True when all that is named comes from imports: in a manifest that the gateway generated. */
  readonly #isGenerated: boolean
  #found: readonly FoundImport[] = []
  #guesses: readonly Guess[] = []
  readonly #options: PythonStepOptions
  readonly #toolchain: Toolchain
  readonly #manifest: string | null

  /** Reads what files name. @throws GatewayError for a line that is not the name of a package */
  constructor(unit: InstallUnit, options: PythonStepOptions, toolchain: Toolchain) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#manifest = readOptional(join(unit.folder, PYTHON_MANIFEST))
    const own = this.#readManifest(this.#manifest ?? '')
    const asked = parseRequirements(unit.asked.join('\n'))
    if (asked.odd[0] !== undefined) throw toOddError(asked.odd[0], 'deps add')
    const inline = unit.functions.flatMap(({ entryPath, entryFile }) => {
      const { named, odd } = parseInline(readOptional(entryPath) ?? '')
      if (odd[0] !== undefined) throw toOddError(odd[0], entryFile)
      return named.map(one => ({ ...one, file: entryFile }))
    })
    const file = labelOf(unit, PYTHON_MANIFEST)
    const all: NamedPackage[] = [...own.named.map(one => ({ ...one, file })), ...inline]
    all.push(...asked.named.map(one => ({ ...one, file: null })))
    this.#named = [...new Map(all.toReversed().map(one => [one.text, one])).values()].reverse()
    this.#hasOptions = own.odd.length > 0
    this.#isGenerated = this.#manifest?.startsWith(MANIFEST_HEADER) === true && all.length === own.named.length
  }

  #readManifest(text: string): ReturnType<typeof parseRequirements> {
    const file = labelOf(this.#unit, PYTHON_MANIFEST)
    if (text.length > MAX_MANIFEST_CHARS) {
      const message = `${file} is larger than ${MAX_MANIFEST_CHARS / 1024 / 1024} MiB`
      throw installError(message, { file }, 'name the packages that the function needs, each on a line')
    }
    const found = parseRequirements(text)
    const mayHaveOptions = this.#options.settings.pyRequirementsOptions
    const refused = found.odd.find(({ kind }) => kind === 'unreadable' || !mayHaveOptions)
    if (refused !== undefined) throw toOddError(refused, file)
    return found
  }

  /** Reads what the functions import, and takes it for packages. */
  async #infer(tools: BuildTools): Promise<void> {
    const { autoInferPyDeps, pyInferBackend } = this.#options.settings
    if (autoInferPyDeps === false) return
    this.#found = await this.#findImports(this.#toolchain.program)
    if (autoInferPyDeps !== true) return
    const isByTable = pyInferBackend === 'pipreqs'
    const guesses = isByTable ? await this.#askPipreqs(tools) : this.#toGuesses()
    this.#guesses = guesses.filter(({ name }) => !this.#unit.failed.has(name))
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
  async #findImports(program: string): Promise<FoundImport[]> {
    const { folder, functions, packs, packFolders } = this.#unit
    const { imports, functionsRoot } = this.#options
    const lists = await Promise.all(
      functions.map(({ entryPath }) => imports.read(program, { entry: entryPath, folder, root: functionsRoot })),
    )
    const packed = new Set([
      ...packs,
      ...packFolders.flatMap(pack => [...listModules(join(pack, PYTHON_TARGET)), ...listModules(pack)]),
    ])
    const byName = new Map<string, FoundImport>()
    for (const [at, list] of lists.entries()) {
      for (const one of list) {
        // No package is named like a private file; the worker reports that it is missing.
        if (packed.has(one.name) || one.name.startsWith('_')) continue
        const known = byName.get(one.name)
        const places = [...(known?.places ?? []), { ...one, entry: functions[at]!.entryPath }]
        const first = known === undefined || (known.optional && !one.optional) ? one : known
        byName.set(one.name, { ...first, places })
      }
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
    const names = await findByPipreqs(this.#unit, this.#toolchain, tools)
    return names.filter(name => !left.has(name)).map(name => ({ name, cause: byName.get(name) ?? first }))
  }

  #toShown({ file, line }: PythonImport): string {
    return `${below(this.#options.functionsRoot, file)}:${line}`
  }

  /** Where the package is asked for that a failure is about. */
  #findCause({ missing, message }: PipFailure): InstallPlace | null {
    const isIt = (name: string) =>
      missing === null ? new RegExp(`\\b${name.replaceAll('-', '[-_.]')}\\b`, 'i').test(message) : name === missing
    const named = this.#named.find(({ name, file }) => file !== null && isIt(name))
    if (named !== undefined) return { file: named.file!, line: named.line }
    const guess = this.#guesses.find(({ name }) => isIt(name))
    if (guess === undefined) return null
    const line = this.#hasOptions ? this.#findLine(guess.name) : null
    return line ?? { file: below(this.#options.functionsRoot, guess.cause.file), line: guess.cause.line }
  }

  /** The line of a manifest with paths and options that has the name in it, such as `./acme-1.0.tar.gz`. */
  #findLine(name: string): InstallPlace | null {
    const lines = (this.#manifest ?? '').split(/\r?\n/)
    const pattern = new RegExp(`(?<![A-Za-z0-9])${name.replaceAll(/[-_.]+/g, '[-_.]+')}(?![A-Za-z])`, 'i')
    const at = lines.findIndex(line => !line.trimStart().startsWith('#') && pattern.test(line))
    return at === -1 ? null : { file: labelOf(this.#unit, PYTHON_MANIFEST), line: at + 1 }
  }

  /** The guesses that a failed install comes from: the one that it names, or else all of them; none where trying again may help. */
  #blame({ isPassing, missing, message }: PipFailure): ReadonlyMap<string, FailedImport> {
    // A line with a path may be at fault as well, and is not known by a name.
    const isOpen = missing === null && this.#hasOptions
    if (isPassing || isOpen || this.#named.some(({ name }) => name === missing)) return new Map()
    const named = this.#guesses.filter(({ name }) => name === missing)
    const failed = { message: named.length > 0 ? '' : message, hint: '' }
    return new Map((named.length > 0 ? named : this.#guesses).map(({ name }) => [name, failed]))
  }

  /** Whether an import is only noted: where a changed `sys.path` leads is known when the function runs, and not before. */
  #isDoubtful({ doubt }: PythonImport): boolean {
    return this.#options.settings.autoInferStrict ? doubt?.line != null : doubt !== null
  }

  #unresolved({ unresolvedImports }: SetOutcome, isDoubtful: boolean): FoundImport[] {
    return this.#found.filter(
      one => !one.optional && this.#isDoubtful(one) === isDoubtful && unresolvedImports.includes(one.name),
    )
  }

  /** One for each handler that imports something without a package. */
  #unmet(outcome: SetOutcome): UnmetImport[] {
    const missing = this.#unresolved(outcome, false)
    return this.#unit.functions.flatMap(({ entryPath }) => {
      const own = missing.flatMap(
        one => one.places.find(({ entry, optional }) => entry === entryPath && !optional) ?? [],
      )
      return own.length === 0 ? [] : { entries: [entryPath], error: this.#toUnmetError(own) }
    })
  }

  #toUnmetError(missing: readonly PythonImport[]): GatewayError {
    const { functionsRoot, settings } = this.#options
    const first = missing[0]!
    const place = { file: below(functionsRoot, first.file), line: first.line }
    const another = first.doubt?.file
    if (another !== undefined) {
      const message =
        `${this.#toShown(first)} imports ${first.name}, and ${below(functionsRoot, another)} has that name: ` +
        'no package is installed for it unasked'
      const hint =
        `to use the file put it beside the handler, or its folder on sys.path; to have the package ${first.name} of the index, write ` +
        `${first.name} into requirements.txt beside the handler`
      return installError(message, place, hint)
    }
    const shown = missing.map(one => `${this.#toShown(one)} imports ${one.name}`).join('; ')
    if (settings.autoInferPyDeps === 'report') {
      const names = [...new Set(missing.map(({ name }) => toPackageName(name)))].join(' ')
      const message = `${shown}: ${labelOf(this.#unit, PYTHON_MANIFEST)} names no package for it`
      return installError(message, place, toAddHint(this.#unit, names, 'FN_AUTO_INFER_PY_DEPS'))
    }
    const hint =
      `write the name of the package that has ${first.name} into requirements.txt beside the handler, or as ` +
      '"#@requirements <package>" into its first 30 lines, also for a package without wheels; ' +
      'FN_AUTO_INFER_STRICT=0 lets the function run without it'
    const why = this.#unit.failed.get(toPackageName(first.name))?.message
    return installError(`no package is called like what is imported: ${shown}${why ? `: ${why}` : ''}`, place, hint)
  }

  /** Logs imports that may be files. */
  #noteDoubt(outcome: SetOutcome): void {
    const doubtful = this.#unresolved(outcome, true)
    const { doubt } = doubtful[0] ?? {}
    if (doubt == null) return
    const names = doubtful.map(({ name }) => name).join(', ')
    const where = below(this.#options.functionsRoot, doubt.file)
    const why =
      doubt.line === null
        ? `${where} has that name`
        : `${where}:${doubt.line} changes sys.path to what cannot be read before it runs`
    const text = `${names}: not installed, because ${why}; packages must be named in requirements.txt`
    this.#options.onNote(`${this.#unit.label}: ${text}`)
  }

  async plan(tools: BuildTools): Promise<InstallPlan | null> {
    const { autoInferPyDeps, pyInferBackend, autoInferWriteManifest } = this.#options.settings
    const infers = autoInferPyDeps !== false
    const startedAt = performance.now()
    await this.#infer(tools)
    const inferenceDurationMs = Math.round((performance.now() - startedAt) * 10) / 10
    const isNamed = this.#isNamed
    const found = this.#found
    if (!isNamed && found.length === 0) return null
    return {
      key: this.#key,
      facts: {
        mode: isNamed && !this.#isGenerated ? 'manifest' : 'inferred',
        manifest: hasFile(this.#unit.folder, PYTHON_MANIFEST) ? PYTHON_MANIFEST : null,
        inferBackend: infers ? pyInferBackend : null,
        inferenceDurationMs: infers ? inferenceDurationMs : 0,
        inferredImports: found.map(({ name }) => name),
      },
      ...(!isNamed && this.#guesses.length === 0 && { emptyOutcome: () => this.#toEmpty() }),
      inferred: this.#guesses.map(({ name, cause }) => `${name} (${this.#toShown(cause)})`),
      fill: (draft, work) => this.#fill(draft, work),
      toUserError: cause => this.#toError(cause as PipFailure),
      blame: cause => this.#blame(cause as PipFailure),
      unmet: outcome => this.#unmet(outcome),
      settle: set => this.#settle(set, !this.#unit.isPack && autoInferWriteManifest),
    }
  }

  async #toEmpty(): Promise<SetOutcome> {
    const outcome = await this.#findUnresolved()
    this.#noteDoubt(outcome)
    return outcome
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const all = this.#guesses
    let guesses = all
    // Named packages may have the modules under other names: PyYAML has yaml.
    if (this.#isNamed && all.length > 0) {
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
    const hasOptions = this.#hasOptions
    if (tools.user != null) await tools.user.remove(draft.below(PYTHON_TARGET))
    else draft.remove(PYTHON_TARGET)
    // A source distribution runs its own code when it is installed, which an import alone does not ask for.
    const lines = guesses.map(({ name }) => `--only-binary ${name}\n${name}`)
    const wanted = draft.write('wanted.txt', `${[...this.#named.map(({ text }) => text), ...lines].join('\n')}\n`)
    const files = hasOptions ? [join(folder, PYTHON_MANIFEST), wanted] : [wanted]
    const target = draft.below(PYTHON_TARGET).make()
    const cwd = hasOptions ? folder : draft.path
    const uv = this.#options.findUv()
    const failure = await runPip({ python: this.#toolchain.program, uv, target, files, draft, cwd }, tools)
    if (failure !== null) throw this.#toError(failure)
  }

  async #toOutcome(target: string, guesses: readonly Guess[]): Promise<SetOutcome> {
    const versions = new Map(listDistributions(target).map(one => [toPackageName(one.name), one]))
    const asked = [...this.#named, ...guesses].map(({ name }) => name)
    const resolvedPackages = [...new Set(asked)].flatMap(name => {
      const found = versions.get(name)
      return found === undefined ? [] : [`${found.name}==${found.version}`]
    })
    return { ...(await this.#findUnresolved(listModules(target))), resolvedPackages }
  }

  /** The imports that neither these modules nor the interpreter have. */
  async #findUnresolved(modules: ReadonlySet<string> = new Set()): Promise<SetOutcome> {
    const missing = this.#found.filter(({ name }) => !modules.has(name)).map(({ name }) => name)
    const { imports } = this.#options
    const inInterpreter = missing.length === 0 ? [] : await imports.find(this.#toolchain.program, missing)
    return { resolvedPackages: [], unresolvedImports: missing.filter(name => !inInterpreter.includes(name)) }
  }

  /** In the words of this folder, whichever folder's install it was. */
  #toError(failure: PipFailure): GatewayError {
    if (failure.isPassing) return passingError(failure.message, failure.hint ?? undefined, failure)
    const place = this.#findCause(failure)
    const shown = place === null ? '' : `${place.file}:${place.line}: `
    const file = this.#unit.functions[0]?.entryFile ?? labelOf(this.#unit, PYTHON_MANIFEST)
    const hint = failure.hint ?? `change it in ${place?.file ?? PYTHON_MANIFEST}, or take it out`
    return installError(`${shown}${failure.message}`, place ?? { file }, hint, failure)
  }

  /** Writes a list of what is installed, and the manifest where it may be written. */
  #settle(set: PackageSet, writesManifest: boolean): Settled {
    this.#noteDoubt(set)
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
  #writeManifest(own: OwnFolder, { resolvedPackages }: PackageSet): void {
    if (!isWritable(own, PYTHON_MANIFEST)) return
    const stats = lstatSync(own.pathOf(PYTHON_MANIFEST), { throwIfNoEntry: false })
    const text = stats === undefined ? null : readFileSync(own.pathOf(PYTHON_MANIFEST), 'utf8')
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

function toOddError({ text, line, kind }: ReturnType<typeof parseInline>['odd'][number], file: string): Error {
  if (kind === 'unreadable') {
    const hint = 'write a name with an optional version, such as requests>=2.31'
    return installError(`${file}:${line}: ${showToken(text)} is not the name of a package`, { file, line }, hint)
  }
  const what = kind === 'option' ? 'an option' : 'a URL or path'
  const hint = file.endsWith('.py')
    ? 'write the name of a package'
    : `write the name of a package, or allow options, URLs and paths in requirements.txt with ${OPTIONS_SETTING}=1`
  // Of `name @ https://...` the address.
  const word = kind === 'address' ? (text.split(/\s+/).find(part => /[/\\]/.test(part)) ?? text) : text
  return installError(`${file}:${line}: ${showToken(word)} is ${what}`, { file, line }, hint)
}

/** @returns false when there is nothing to list */
function writeLock(own: OwnFolder, { folder }: PackageSet): boolean {
  const lines = listDistributions(folder.below(PYTHON_TARGET).path).map(({ name, version }) => `${name}==${version}\n`)
  if (lines.length === 0) return false
  const text = `# What is installed in .deps, for your information: nothing reads this file.\n${lines.join('')}`
  if (own.read(LOCK)?.toString('utf8') !== text) own.write(LOCK, text)
  return true
}
