/** The files of a Go handler's package and its callable, before the compiler sees them. Owner: §2.16, page runtimes/go. */

import type { FileReader } from '../files/function-file.ts'
import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import {
  below,
  blankOut,
  filesBelow,
  filesOfPackages,
  GO_TEXT,
  isMember,
  lineOf,
  type Place,
  readOptional,
  sourceError,
} from './build.ts'

/** Module of a function that brings no go.mod; its own sub-packages are imported as `handler/<folder>`. */
export const OWN_MODULE = 'handler'
/** Files that are handlers of a folder. Of two, one is the handler, and the other is not a helper either. */
const ENTRY_NAMES: ReadonlySet<string> = new Set(['handler.go', 'main.go'])
const SIGNATURE_HINT =
  'write func handler(event map[string]any) map[string]any; an error as second result, a context.Context as first parameter and any instead of map[string]any are fine too'

/** One file of the package. */
interface Member {
  name: string
  text: string
  /** Comments and texts blanked out. */
  code: string
}

export class GoPackage {
  /** Full path of the handler file's folder; the module's folder is the function's. */
  readonly folder: string
  readonly members: readonly Member[]
  /** Name of the callable. */
  readonly symbol: string
  readonly #fn: FunctionVersion
  readonly #functionsRoot: string
  readonly #readFile: FileReader
  readonly #entry: Member

  /** @throws GatewayError LOAD_FAILED when the handler file has no callable, or a file has what the worker brings */
  constructor(fn: FunctionVersion, functionsRoot: string, read: FileReader = path => readFileSync(path)) {
    this.#readFile = read
    this.#fn = fn
    this.#functionsRoot = functionsRoot
    this.folder = dirname(fn.entryPath)
    this.#entry = this.#read(basename(fn.entryPath))
    const names = readdirSync(this.folder).filter(name => name !== this.#entry.name && isHelper(fn, name))
    this.members = [this.#entry, ...names.sort().map(name => this.#read(name))]
    for (const member of this.members) this.#checkMain(member)
    this.symbol = this.#findSymbol()
  }

  /**
   * Full paths of sources of the module's other packages, of files that `//go:embed` names, and of modules in folders.
   * @param mod - text of `go.mod`; null without one
   */
  otherInputs(mod: string | null): string[] {
    const found = new Set(filesOfGoReplacements(this.#fn.fnDir, mod ?? ''))
    if (mod !== null || this.members.some(({ text }) => text.includes(`"${OWN_MODULE}/`))) {
      for (const path of filesBelow(this.#fn.fnDir, name => name.endsWith('.go'))) {
        if (dirname(path) !== this.folder) found.add(path)
      }
    }
    for (const { text } of this.members) {
      for (const [, patterns] of text.matchAll(/^\/\/go:embed\s+(.+)$/gm)) {
        for (const path of this.#embedded(patterns as string)) found.add(path)
      }
    }
    return [...found].sort()
  }

  /** The file as part of package main, with its own name and lines in every message. */
  toMainPackage({ name, text, code }: Member): string {
    const clause = /^([ \t]*package[ \t]+)([\p{L}_][\p{L}\p{N}_]*)/mu.exec(code)
    const line = `//line ${join(this.folder, name)}:1:1\n`
    if (clause === null) return line + text
    const at = clause.index + clause[1]!.length
    return `${line}${text.slice(0, at)}main${text.slice(at + clause[2]!.length)}`
  }

  /** For a compiler that speaks of the generated call: the fault is in the handler's signature. */
  signatureError(): GatewayError {
    const { name, text, code } = this.#entry
    const at = declarationOf(this.symbol).exec(code)?.index ?? 0
    const place = this.#place(name, lineOf(code, at))
    const found = /^[^{\n]*/.exec(text.slice(at))?.[0].trim()
    const rule = `${this.symbol} must be func(map[string]any) map[string]any or one of its variants, got ${found}`
    return sourceError(`build failed: ${place.file}:${place.line}: ${rule}`, { ...place, hint: SIGNATURE_HINT })
  }

  #read(name: string): Member {
    // A byte order mark may stand at the beginning of a file only, and a line is put before it.
    const text = this.#readFile(join(this.folder, name))
      .toString('utf8')
      .replace(/^\uFEFF/, '')
    return { name, text, code: blankOut(text, GO_TEXT) }
  }

  #checkMain({ name, code }: Member): void {
    const main = /^func\s+main\s*\(/m.exec(code)
    if (main === null) return
    const place = this.#place(name, lineOf(code, main.index))
    throw sourceError(`${place.file}:${place.line}: func main must not be there: the gateway calls the handler`, {
      ...place,
      hint: 'remove func main and keep func handler(event map[string]any) map[string]any',
    })
  }

  #findSymbol(): string {
    const { names } = this.#fn.callable
    const symbol = names.find(name => declarationOf(name).test(this.#entry.code))
    if (symbol !== undefined) return symbol
    const place = this.#place(this.#entry.name, 1)
    const message = `${place.file}: no package-level function ${names.join(' or ')}`
    throw sourceError(message, { ...place, hint: SIGNATURE_HINT })
  }

  #embedded(patterns: string): string[] {
    const found: string[] = []
    for (const [, quoted, plain] of patterns.matchAll(/["`]([^"`]+)["`]|(\S+)/g)) {
      const pattern = (quoted ?? plain ?? '').replace(/^all:/, '')
      // Everything below the part without wildcards: more than needed never serves an old program.
      const fixed = pattern.split('/').findIndex(part => /[*?[\\]/.test(part))
      const base = join(this.folder, ...pattern.split('/').slice(0, fixed === -1 ? undefined : fixed))
      try {
        found.push(...filesBelow(base, () => true))
      } catch {
        if (readOptional(base) !== null) found.push(base)
      }
    }
    return found
  }

  #place(name: string, line: number): Place {
    return { file: below(this.#functionsRoot, join(this.folder, name)), line }
  }
}

/** `replace example.com/left => ../left`, alone or in a block; a path begins with a dot or a slash. */
const GO_REPLACEMENT = /=>\s*("?)(\.{1,2}(?:\/[^\s"]*)?|\/[^\s"]+)\1/g

/** Full paths of the files in folders that a `go.mod` puts in the place of modules. */
export function filesOfGoReplacements(folder: string, mod: string): string[] {
  const text = mod.replace(/\/\/.*$/gm, '')
  return filesOfPackages([...text.matchAll(GO_REPLACEMENT)].map(([, , path]) => resolve(folder, path!)))
}

function isHelper(fn: FunctionVersion, name: string): boolean {
  return name.endsWith('.go') && !name.endsWith('_test.go') && !ENTRY_NAMES.has(name) && isMember(fn, name)
}

function declarationOf(name: string): RegExp {
  return new RegExp(`^(?:func|var)\\s+${name}\\b`, 'm')
}
