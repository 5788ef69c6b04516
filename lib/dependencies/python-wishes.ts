/**
 * What a folder of Python functions asks for: packages that people named, and those that imports are taken for.
 * Owner: §2.16, page dependencies/python.
 *
 *   requirements.txt, #@requirements                       ─► named
 *   imports - packs - private files                        ─► found ─┬─► guesses: named by nobody, called like a package
 *                                                                    └─► doubtful: may be files that lie elsewhere
 */

import { join } from 'node:path'
import type { BuildTools, Toolchain } from './build.ts'
import { below, readOptional } from './build.ts'
import { type InstallPlace, type InstallUnit, installError } from './install-step.ts'
import type { SetOutcome } from './package-set.ts'
import { listModules } from './pip.ts'
import { findByPipreqs } from './pipreqs.ts'
import type { PythonImport, PythonImports } from './python-imports.ts'
import { parseInline, parseRequirements, type Requirement, toPackageName } from './requirements.ts'
import { labelOf } from './unit-files.ts'

export const PYTHON_TARGET = '.deps'
export const PYTHON_MANIFEST = 'requirements.txt'
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
}

export interface PythonWishes extends NamedPackages {
  found: readonly PythonImport[]
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
  for (const { entryPath, entryFile } of unit.functions) {
    const { named, odd } = parseInline(readOptional(entryPath) ?? '')
    if (odd[0] !== undefined) throw toOddError(odd[0], entryFile)
    all.push(...named)
  }
  return { named: [...new Map(all.map(one => [one.text, one])).values()], hasOptions }
}

function toOddError({ text, line, kind }: ReturnType<typeof parseInline>['odd'][number], file: string): Error {
  if (kind === 'unreadable') {
    const hint = 'write a name with an optional version, such as requests>=2.31'
    return installError(`${file}:${line}: ${JSON.stringify(text)} is not the name of a package`, { file, line }, hint)
  }
  const what = kind === 'option' ? 'an option' : 'a URL or path'
  const hint = file.endsWith('.py')
    ? 'write the name of a package'
    : `write the name of a package, or allow options, URLs and paths in requirements.txt with ${OPTIONS_SETTING}=1`
  return installError(`${file}:${line}: ${JSON.stringify(text)} is ${what}`, { file, line }, hint)
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
): Promise<PythonImport[]> {
  const lists = await Promise.all(
    functions.map(({ entryPath }) => imports.read(program, { entry: entryPath, folder, root: functionsRoot })),
  )
  const packed = new Set([
    ...packs,
    ...packFolders.flatMap(pack => [...listModules(join(pack, PYTHON_TARGET)), ...listModules(pack)]),
  ])
  const byName = new Map<string, PythonImport>()
  for (const one of lists.flat()) {
    // No package is called like a private file; that it is not there is the worker's to tell.
    if (packed.has(one.name) || one.name.startsWith('_')) continue
    const known = byName.get(one.name)
    if (known === undefined || (known.optional && !one.optional)) byName.set(one.name, one)
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

/** @throws GatewayError for an import without a package, with `FN_AUTO_INFER_STRICT` */
export function checkStrict(
  found: readonly PythonImport[],
  { unresolvedImports }: SetOutcome,
  functionsRoot: string,
): void {
  // What a changed `sys.path` may lead to is known when the function runs, and not before.
  const missing = found.filter(
    ({ name, optional, doubt }) => !optional && doubt?.line == null && unresolvedImports.includes(name),
  )
  const [first] = missing
  if (first === undefined) return
  const place = { file: below(functionsRoot, first.file), line: first.line }
  const another = first.doubt?.file
  if (another !== undefined) {
    const message =
      `${place.file}:${place.line} imports ${first.name}, and ${below(functionsRoot, another)} has that name: ` +
      'no package is installed for it unasked'
    const hint =
      `to use the file put it beside the handler, or its folder on sys.path; to have the package ${first.name} of the index, write ` +
      `${first.name} into requirements.txt beside the handler`
    throw installError(message, place, hint)
  }
  const shown = missing.map(one => `${below(functionsRoot, one.file)}:${one.line} imports ${one.name}`).join('; ')
  const hint =
    `write the name of the package that has ${first.name} into requirements.txt beside the handler, or as ` +
    '"#@requirements <package>" into its first 30 lines; FN_AUTO_INFER_STRICT=0 lets the function run without it'
  throw installError(`no package is called like what is imported: ${shown}`, place, hint)
}

/** What a person should know about imports that may be files; null when there is nothing. */
export function toDoubtNote(
  found: readonly PythonImport[],
  { unresolvedImports }: SetOutcome,
  functionsRoot: string,
): string | null {
  const doubtful = found.filter(({ name, optional, doubt }) => {
    return !optional && doubt !== null && unresolvedImports.includes(name)
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
