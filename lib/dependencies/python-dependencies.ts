/**
 * What a folder of Python functions asks for: packages that people named, and those that imports are taken for.
 * Owner: §2.16, page dependencies/python.
 *
 *   requirements.txt, #@requirements                       ─► named
 *   imports - packs - private files                        ─► found ─┬─► guesses: named by nobody, called like a package
 *                                                                    └─► doubtful: may be files that lie elsewhere
 */

import { join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import type { GatewayError } from '../core/errors.ts'
import { below, type BuildTools, readOptional, type Toolchain } from './build.ts'
import {
  type FailedImport,
  installError,
  type InstallPlace,
  type InstallUnit,
  labelOf,
  passingError,
  showToken,
  toAddHint,
  type UnmetImport,
} from './install-step.ts'
import type { SetOutcome } from './package-set.ts'
import { listModules, parseInline, parseRequirements, type PipFailure, type Requirement, toPackageName } from './pip.ts'
import type { PythonImport, PythonImports } from './python-imports.ts'

export const PYTHON_TARGET = '.deps'
export const PYTHON_MANIFEST = 'requirements.txt'
/** First line of a manifest that the gateway made. */
export const MANIFEST_HEADER =
  '# Made by fngw from the imports of the handlers here. Yours to edit: names and pins that are here stay.\n'
/** Characters of a manifest; one with hashes for hundreds of packages has fewer. */
const MAX_MANIFEST_CHARS = 1024 * 1024
const OPTIONS_SETTING = 'FN_PY_REQUIREMENTS_OPTIONS'

/** A package that an import was taken for. */
export interface Guess {
  /** Of the package, as indexes compare it. */
  name: string
  cause: PythonImport
}

interface NamedPackages {
  /** Named by people, each once. */
  named: readonly Requirement[]
  /** True when the user's file itself goes to the installer, with options in it. */
  hasOptions: boolean
  /** True when all of them come from imports: in a manifest that the gateway generated. */
  isGenerated: boolean
}

/** An import of a folder: its first place, and that of each handler, by full path. */
interface FoundImport extends PythonImport {
  places: readonly (PythonImport & { entry: string })[]
}

export interface PythonWishes extends NamedPackages {
  found: readonly FoundImport[]
  guesses: readonly Guess[]
}

/** True when a person named something. */
export function isNamed({ named, hasOptions }: NamedPackages): boolean {
  return named.length > 0 || hasOptions
}

/** @throws GatewayError for a line that is no name of a package */
export function readNamed(unit: InstallUnit, mayHaveOptions: boolean): NamedPackages {
  const manifest = readOptional(join(unit.folder, PYTHON_MANIFEST))
  const all: Requirement[] = []
  let hasOptions = false
  if (manifest !== null) {
    if (manifest.length > MAX_MANIFEST_CHARS) {
      const file = labelOf(unit, PYTHON_MANIFEST)
      const message = `${file} is larger than ${MAX_MANIFEST_CHARS / 1024 / 1024} MiB`
      throw installError(message, { file }, 'name the packages that the function needs, each on a line')
    }
    const { named, odd } = parseRequirements(manifest)
    const refused = odd.find(({ kind }) => kind === 'unreadable' || !mayHaveOptions)
    if (refused !== undefined) throw toOddError(refused, labelOf(unit, PYTHON_MANIFEST))
    hasOptions = odd.length > 0
    all.push(...named)
  }
  const isManifestGenerated = manifest?.startsWith(MANIFEST_HEADER) ?? false
  const inManifest = all.length
  const asked = parseRequirements(unit.asked.join('\n'))
  if (asked.odd[0] !== undefined) throw toOddError(asked.odd[0], 'deps add')
  all.push(...asked.named)
  for (const { entryPath, entryFile } of unit.functions) {
    const { named, odd } = parseInline(readOptional(entryPath) ?? '')
    if (odd[0] !== undefined) throw toOddError(odd[0], entryFile)
    all.push(...named)
  }
  const isGenerated = isManifestGenerated && all.length === inManifest
  return { named: [...new Map(all.map(one => [one.text, one])).values()], hasOptions, isGenerated }
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
  const word = text.split(/\s+/).find(part => /[/\\]/.test(part)) ?? text
  return installError(
    `${file}:${line}: ${showToken(kind === 'address' ? word : text)} is ${what}`,
    { file, line },
    hint,
  )
}

/** Where people named a package. @param isIt - told names as indexes compare them */
export function findNamed(unit: InstallUnit, isIt: (name: string) => boolean): InstallPlace | null {
  const manifest = parseRequirements(readOptional(join(unit.folder, PYTHON_MANIFEST)) ?? '')
  const own = manifest.named.find(({ name }) => isIt(name))
  if (own !== undefined) return { file: labelOf(unit, PYTHON_MANIFEST), line: own.line }
  for (const { entryPath, entryFile } of unit.functions) {
    const inline = parseInline(readOptional(entryPath) ?? '').named.find(({ name }) => isIt(name))
    if (inline !== undefined) return { file: entryFile, line: inline.line }
  }
  return null
}

/** The line of a manifest with paths and options that has the name in it, such as `./acme-1.0.tar.gz`. */
export function findLine(unit: InstallUnit, name: string): InstallPlace | null {
  const lines = (readOptional(join(unit.folder, PYTHON_MANIFEST)) ?? '').split(/\r?\n/)
  const pattern = new RegExp(`(?<![A-Za-z0-9])${name.replaceAll(/[-_.]+/g, '[-_.]+')}(?![A-Za-z])`, 'i')
  const at = lines.findIndex(line => !line.trimStart().startsWith('#') && pattern.test(line))
  return at === -1 ? null : { file: labelOf(unit, PYTHON_MANIFEST), line: at + 1 }
}

/** What the functions import and nothing in the folder or its packs has, by name. */
export async function findImports(
  { folder, functions, packs, packFolders }: InstallUnit,
  program: string,
  { imports, functionsRoot }: { imports: PythonImports; functionsRoot: string },
): Promise<FoundImport[]> {
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

/** No table of aliases: a package is taken to be called like its module, in lower case, unless somebody named it. */
export function toGuesses(found: readonly PythonImport[], { named }: NamedPackages): Guess[] {
  const known = new Set(named.map(({ name }) => name))
  return found.flatMap(cause => {
    const name = toPackageName(cause.name)
    const isName = cause.name === cause.name.toLowerCase() && /^[a-z0-9]/.test(cause.name)
    return cause.optional || cause.doubt !== null || !isName || known.has(name) ? [] : [{ name, cause }]
  })
}

/** What pipreqs takes the imports for. */
export async function askPipreqs(
  found: readonly PythonImport[],
  { named }: NamedPackages,
  unit: InstallUnit,
  [toolchain, tools]: [Toolchain, BuildTools],
): Promise<Guess[]> {
  const [first] = found
  if (first === undefined) return []
  const left = new Set(named.map(({ name }) => name))
  for (const { name, doubt } of found) if (doubt !== null) left.add(toPackageName(name))
  const byName = new Map(found.map(one => [toPackageName(one.name), one]))
  const names = await findByPipreqs(unit, toolchain, tools)
  return names.filter(name => !left.has(name)).map(name => ({ name, cause: byName.get(name) ?? first }))
}

/** The guesses that a failed install comes from: the one that it names, or else all of them; none where trying again may help. */
export function blameGuesses(failure: PipFailure, wishes: PythonWishes): ReadonlyMap<string, FailedImport> {
  const { isPassing, missing, message } = failure
  // A line with a path may be at fault as well, and is not known by a name.
  const isOpen = missing === null && wishes.hasOptions
  if (isPassing || isOpen || wishes.named.some(({ name }) => name === missing)) return new Map()
  const named = wishes.guesses.filter(({ name }) => name === missing)
  const failed = { message: named.length > 0 ? '' : message, hint: '' }
  return new Map((named.length > 0 ? named : wishes.guesses).map(({ name }) => [name, failed]))
}

interface UnmetLook {
  unit: InstallUnit
  functionsRoot: string
  settings: Pick<Settings, 'autoInferPyDeps' | 'autoInferStrict'>
}

/** Whether an import is only noted: where a changed `sys.path` leads is known when the function runs, and not before. */
function isDoubtful({ doubt }: PythonImport, { autoInferStrict }: UnmetLook['settings']): boolean {
  return autoInferStrict ? doubt?.line != null : doubt !== null
}

/** One for each handler that imports something without a package. */
export function toUnmet(
  found: readonly FoundImport[],
  { unresolvedImports }: SetOutcome,
  look: UnmetLook,
): UnmetImport[] {
  const { unit, settings } = look
  const missing = found.filter(one => {
    return !one.optional && !isDoubtful(one, settings) && unresolvedImports.includes(one.name)
  })
  return unit.functions.flatMap(({ entryPath }) => {
    const own = missing.flatMap(one => one.places.find(({ entry, optional }) => entry === entryPath && !optional) ?? [])
    return own.length === 0 ? [] : { entries: [entryPath], error: toUnmetError(own, look) }
  })
}

function toUnmetError(missing: readonly PythonImport[], { unit, functionsRoot, settings }: UnmetLook): GatewayError {
  const first = missing[0]!
  const place = { file: below(functionsRoot, first.file), line: first.line }
  const another = first.doubt?.file
  if (another !== undefined) {
    const message =
      `${place.file}:${place.line} imports ${first.name}, and ${below(functionsRoot, another)} has that name: ` +
      'no package is installed for it unasked'
    const hint =
      `to use the file put it beside the handler, or its folder on sys.path; to have the package ${first.name} of the index, write ` +
      `${first.name} into requirements.txt beside the handler`
    return installError(message, place, hint)
  }
  const shown = missing.map(one => `${below(functionsRoot, one.file)}:${one.line} imports ${one.name}`).join('; ')
  if (settings.autoInferPyDeps === 'report') {
    const names = [...new Set(missing.map(({ name }) => toPackageName(name)))].join(' ')
    const message = `${shown}: ${labelOf(unit, PYTHON_MANIFEST)} names no package for it`
    return installError(message, place, toAddHint(unit, names, 'FN_AUTO_INFER_PY_DEPS'))
  }
  const hint =
    `write the name of the package that has ${first.name} into requirements.txt beside the handler, or as ` +
    '"#@requirements <package>" into its first 30 lines, also for a package without wheels; ' +
    'FN_AUTO_INFER_STRICT=0 lets the function run without it'
  const why = unit.failed.get(toPackageName(first.name))?.message
  const message = `no package is called like what is imported: ${shown}${why ? `: ${why}` : ''}`
  return installError(message, place, hint)
}

/** What a person should know about imports that may be files; null when there is nothing. */
export function toDoubtNote(
  found: readonly PythonImport[],
  { unresolvedImports }: SetOutcome,
  { functionsRoot, settings }: Pick<UnmetLook, 'functionsRoot' | 'settings'>,
): string | null {
  const doubtful = found.filter(one => {
    return !one.optional && isDoubtful(one, settings) && unresolvedImports.includes(one.name)
  })
  const { doubt } = doubtful[0] ?? {}
  if (doubt == null) return null
  const names = doubtful.map(({ name }) => name).join(', ')
  const where = below(functionsRoot, doubt.file)
  const why =
    doubt.line === null
      ? `${where} has that name`
      : `${where}:${doubt.line} changes sys.path to what cannot be read before it runs`
  return `${names}: not installed, because ${why}; what is a package has to be named in requirements.txt`
}

// `FN_PY_INFER_BACKEND=pipreqs`: which packages the program of that name finds for a folder.

/** The name that pipreqs has for it by itself is an old one, which is not answered everywhere. */
const INDEX = 'https://pypi.org/pypi/'
/** Folders that hold no code of the function. */
const IGNORED = '.deps,.svc,.svc-deps,node_modules,vendor,__pycache__'

/**
 * Names of packages. pipreqs knows by a table which package has which module, and asks the package index about the others.
 * @throws GatewayError when it is not installed
 */
export async function findByPipreqs(unit: InstallUnit, { program }: Toolchain, tools: BuildTools): Promise<string[]> {
  const flags = ['--print', '--mode', 'no-pin', '--ignore', IGNORED, '--encoding', 'utf-8', '--pypi-server', INDEX]
  const env = { PYTHONSAFEPATH: '1', PYTHONWARNINGS: 'ignore' }
  const { code, output } = await tools.run({
    command: program,
    args: ['-m', 'pipreqs.pipreqs', ...flags, unit.folder],
    cwd: '/',
    env,
  })
  if (/No module named '?pipreqs/.test(output)) {
    const hint = 'python3 -m pip install pipreqs, or FN_PY_INFER_BACKEND=native, which needs nothing'
    throw passingError('FN_PY_INFER_BACKEND is pipreqs, which this Python does not have', hint)
  }
  if (code !== 0) throw passingError(`pipreqs: ${output.trim().split('\n').at(-1) ?? `ended with ${code}`}`)
  const names = output.split('\n').filter(line => /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(line.trim()))
  return [...new Set(names.map(name => toPackageName(name.trim())))]
}
