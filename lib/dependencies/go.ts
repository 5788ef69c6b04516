/**
 * Go functions to programs. The user's folder stays as it is: the tool sees it through an overlay, in which the package
 * of the handler is `main`, files of other routes are missing and the worker's package is added.
 * Owner: §2.16, pages dependencies/resolve and runtimes/go.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { FileReader } from '../files/function-file.ts'
import {
  below,
  blankOut,
  type Builder,
  type BuildPlan,
  type CompilerOptions,
  filesBelow,
  filesOfPackages,
  GO_TEXT,
  lineOf,
  readOptional,
  toFolderName,
  type Toolchain,
  workerSources,
} from './build.ts'
import { BuildKey, ProgramBuild } from './build-cache.ts'
import type { BuildTools, ToolResult } from './run-tool.ts'
import { compilerError, sourceError, toOldError, toolError } from './tool-failure.ts'

/** Part of the key: a change of how programs are built builds them again. */
const RECIPE = 'go 3'
/** Oldest toolchain that builds the worker's package, and the oldest language version for `go.mod`. */
const OLDEST_MINOR = 19
const OLDEST_LANGUAGE = '1.18'
const WORKER_PACKAGE = 'fngwruntime'
const MAIN_FILE = 'fngw_main.go'

export function createGoBuilder(options: CompilerOptions): Builder {
  const timeoutMs = options.goBuildTimeoutSeconds * 1000
  const worker = workerSources(options.workerFolder('go'), name => name.endsWith('.go'))
  return {
    runtime: 'go',
    concurrency: availableParallelism(),
    timeoutMs,
    manifests: ['go.mod', 'go.sum'],
    readVersion: async (command, tools) => {
      const result = await tools.run({
        command,
        args: ['env', 'GOVERSION', 'GOOS', 'GOARCH', 'GOEXPERIMENT'],
        cwd: '/',
      })
      if (result.code !== 0) throw toolError('go env', result, timeoutMs)
      const [, version, minor] = /go(1\.(\d+)[\w.]*)/.exec(result.output) ?? []
      if (Number(minor) < OLDEST_MINOR) throw toOldError(`go ${version}`, `1.${OLDEST_MINOR}`)
      return result.output.trim()
    },
    plan: (fn, toolchain) => new GoBuild(fn, options, worker()).plan(toolchain),
  }
}

class GoBuild extends ProgramBuild {
  readonly #package = new GoPackage(this.fn, this.options.functionsRoot, this.options.readFile ?? undefined)
  /** Texts of the user's `go.mod` and `go.sum`, and of the list of vendored modules; null where they are missing. */
  readonly #mod = readOptional(join(this.fn.fnDir, 'go.mod'))
  readonly #sum = readOptional(join(this.fn.fnDir, 'go.sum'))
  readonly #vendor = readOptional(join(this.fn.fnDir, 'vendor', 'modules.txt'))
  readonly #hasCgo = this.options.hostEnv.CGO_ENABLED === '1'

  plan(toolchain: Toolchain): BuildPlan {
    const { members, symbol } = this.#package
    const key = new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', toolchain.version)
      .add('cgo', String(this.#hasCgo))
      .add('symbol', symbol)
      .add('go.mod', this.#mod)
      .add('go.sum', this.#sum)
      .add('vendor', this.#vendor)
    for (const [name, text] of this.worker) key.add(name, text)
    for (const { name, text } of members) key.add(name, text)
    for (const path of this.#package.otherInputs(this.#mod)) key.add(below(this.fn.fnDir, path), readFileSync(path))
    const id = key.toString()
    return this.workspace.plan(id, tools => this.#build(tools, toolchain, id))
  }

  async #build(tools: BuildTools, { program, version }: Toolchain, key: string): Promise<void> {
    const workspace = this.workspace
    const mod = this.#mod
    const cwd = this.fn.fnDir
    workspace.prepare(tools.user ?? null)
    const modFile = workspace.write('go.mod', toModFile(mod, version))
    if (this.#sum !== null) workspace.write('go.sum', this.#sum)
    // A workspace file of the user's in a folder above is not the function's.
    const env = { GOWORK: 'off', CGO_ENABLED: this.#hasCgo ? '1' : '0' }
    // Asked in the function's folder: its go.mod may choose another toolchain.
    const root = await tools.run({ command: program, args: ['env', 'GOROOT'], cwd, env })
    const replace = { ...this.#overlay(modFile), ...this.#standardLibrary(root.output.trim()) }
    const overlay = workspace.write('overlay.json', JSON.stringify({ Replace: replace }))
    const flags = ['-trimpath', '-buildvcs=false', '-ldflags=-s -w', `-modfile=${modFile}`, `-overlay=${overlay}`]
    if (mod !== null && this.#sum === null && this.#vendor === null) flags.push('-mod=mod')
    const folder = below(cwd, this.#package.folder)
    const args = ['build', ...flags, '-o', workspace.draft(key), folder === '' ? '.' : `./${folder}`]
    const result = await tools.run({ command: program, args, cwd, env, owns: workspace.tools })
    if (result.code !== 0) throw this.#toError(result)
    await workspace.finish(key)
  }

  /** Replacements of files that the tool sees: by full path, '' for none. */
  #overlay(modFile: string): Record<string, string> {
    const { folder, members, symbol } = this.#package
    const { fnDir } = this.fn
    const module = /^\s*module\s+"?([^\s"]+)/m.exec(this.#mod ?? '')?.[1] ?? OWN_MODULE
    const replace: Record<string, string> = { [join(fnDir, 'go.mod')]: modFile }
    for (const name of readdirSync(folder)) {
      if (name.endsWith('.go')) replace[join(folder, name)] = ''
    }
    for (const [at, member] of members.entries()) {
      const copy = this.workspace.write(`src/${at}.go`, this.#package.toMainPackage(member))
      replace[join(folder, `fngw_${at}.go`)] = copy
    }
    const main = `//line ${join(folder, MAIN_FILE)}:1:1
package main
import "${module}/${WORKER_PACKAGE}"
func main() { ${WORKER_PACKAGE}.Serve(${symbol}) }
`
    replace[join(folder, MAIN_FILE)] = this.workspace.write('src/main.go', main)
    for (const name of this.worker.keys())
      replace[join(fnDir, WORKER_PACKAGE, name)] = join(this.options.workerFolder('go'), name)
    return replace
  }

  /**
   * Package os with a call of the worker's hooks before a file is written, the one place that all output of a goroutine
   * comes through, and before it ends the process. A toolchain that writes them differently builds as it is; see runtimes/go.10.
   */
  #standardLibrary(goRoot: string): Record<string, string> {
    const read = (name: string) => (goRoot === '' ? '' : (readOptional(join(goRoot, 'src', 'os', name)) ?? ''))
    const file = toWatchedFile(read('file.go'))
    if (file === null) return {}
    const exit = toWatchedExit(read('proc.go'))
    // The variables are in the one file that may name them.
    const watched = {
      'file.go': exit === null ? file : `${file}${EXIT_VARIABLE}`,
      ...(exit !== null && { 'proc.go': exit }),
    }
    const entries = Object.entries(watched).map(([name, text]) => {
      return [join(goRoot, 'src', 'os', name), this.workspace.write(`src/os_${name}`, text)]
    })
    return Object.fromEntries(entries)
  }

  #toError(result: ToolResult): GatewayError {
    const { functionsRoot, goBuildTimeoutSeconds } = this.options
    const { folder, members } = this.#package
    const isRun = !result.timedOut && result.problem === null
    if (isRun && result.output.includes(`${MAIN_FILE}:`)) return this.#package.signatureError()
    const compiler = {
      action: 'go build',
      timeoutMs: goBuildTimeoutSeconds * 1000,
      functionsRoot,
      cwd: this.fn.fnDir,
      pattern: /^(?:\.\/)?(?<path>[^\s:][^:]*\.go):(?<line>\d+)(?::(?<column>\d+))?: (?<message>.*)$/,
      isShown: (line: string) => line.trim() !== '' && !/^(?:# |go: downloading)/.test(line),
      sourceOf: (path: string) => members.find(({ name }) => join(folder, name) === path)?.text ?? null,
    }
    const steps = this.#mod === null ? 'go mod init function && go mod tidy' : 'go mod tidy'
    const isModuleMissing = /no required module provides|missing go\.sum entry|is not in std/.test(result.output)
    const hint = `run \`${steps}\` in ${toFolderName(functionsRoot, this.fn.fnDir)} and keep go.mod and go.sum`
    return compilerError(result, compiler, isModuleMissing ? hint : undefined)
  }
}

/** The source of os.File with a call of the hook, null when its Write is not found. */
function toWatchedFile(text: string): string | null {
  const head = /^func \((\w+) \*File\) Write\((\w+) \[\]byte\) \(\w+ int, \w+ error\) \{\n/m.exec(text)
  if (head === null || !/^import \($[^)]*"unsafe"/m.test(text)) return null
  const [line, file, bytes] = head
  const end = head.index + line.length
  const look = `\tif fngwOutput != nil && fngwOutput(${file}, ${bytes}) {\n\t\treturn len(${bytes}), nil\n\t}\n`
  const variable = `//go:linkname fngwOutput\nvar fngwOutput func(*File, []byte) bool\n`
  return `${text.slice(0, end)}${look}${text.slice(end)}\n${variable}`
}

/** Not nil: the worker sees that the process does not end without it. */
const EXIT_VARIABLE = '\n//go:linkname fngwExit\nvar fngwExit = func() {}\n'

/** The source of os.Exit with a call of the hook, null when it is not found. */
function toWatchedExit(text: string): string | null {
  const head = /^func Exit\(\w+ int\) \{\n/m.exec(text)
  if (head === null) return null
  const end = head.index + head[0].length
  return `${text.slice(0, end)}\tfngwExit()\n${text.slice(end)}`
}

/** The user's go.mod, or one of our own. The worker's package needs a language with type parameters. */
function toModFile(mod: string | null, version: string): string {
  if (mod === null) return `module ${OWN_MODULE}\n\ngo ${/go(\d+\.\d+)/.exec(version)?.[1] ?? OLDEST_LANGUAGE}\n`
  const given = /^([ \t]*go[ \t]+)1\.(\d+)/m.exec(mod)
  if (given === null) return `${mod.trimEnd()}\n\ngo ${OLDEST_LANGUAGE}\n`
  return Number(given[2]) >= 18 ? mod : mod.replace(given[0], `${given[1]}${OLDEST_LANGUAGE}`)
}

// The files of a handler's package and its callable, before the compiler sees them.

/** Module of a function that brings no go.mod; its own sub-packages are imported as `handler/<folder>`. */
export const OWN_MODULE = 'handler'
/** Files that are handlers of a folder. Of two, one is the handler, and the other is not a helper either. */
const ENTRY_NAMES: ReadonlySet<string> = new Set(['handler.go', 'main.go'])
const SIGNATURE_HINT =
  'write func handler(event map[string]any) map[string]any; an error as second result, a context.Context as first parameter and any instead of map[string]any are fine too'

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
  readonly symbol: string
  readonly #fn: FunctionVersion
  readonly #functionsRoot: string
  readonly #entry: Member

  /** @throws GatewayError LOAD_FAILED when the handler file has no callable, or a file has what the worker brings */
  constructor(fn: FunctionVersion, functionsRoot: string, read: FileReader = path => readFileSync(path)) {
    this.#fn = fn
    this.#functionsRoot = functionsRoot
    this.folder = dirname(fn.entryPath)
    const readMember = (name: string): Member => {
      // A byte order mark may stand at the beginning of a file only, and a line is put before it.
      const text = `${read(join(this.folder, name))}`.replace(/^\uFEFF/, '')
      return { name, text, code: blankOut(text, GO_TEXT) }
    }
    this.#entry = readMember(basename(fn.entryPath))
    const names = readdirSync(this.folder).filter(name => name !== this.#entry.name && isHelper(fn, name))
    this.members = [this.#entry, ...names.sort().map(readMember)]
    for (const member of this.members) this.#checkMain(member)
    this.symbol = this.#findSymbol()
  }

  /**
   * Full paths of sources of the module's other packages, of files that `//go:embed` names, and of modules in folders.
   * @param mod - text of `go.mod`; null without one
   */
  otherInputs(mod: string | null): string[] {
    const { fnDir } = this.#fn
    const found = new Set(filesOfGoReplacements(fnDir, mod ?? ''))
    if (mod !== null || this.members.some(({ text }) => text.includes(`"${OWN_MODULE}/`))) {
      for (const path of filesBelow(fnDir, name => name.endsWith('.go'))) {
        if (dirname(path) !== this.folder) found.add(path)
      }
    }
    for (const { text } of this.members) {
      for (const [, patterns] of text.matchAll(/^\/\/go:embed\s+(.+)$/gm)) {
        for (const path of this.#embedded(patterns!)) found.add(path)
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

  /** For a message about the generated call: the cause is the handler's signature. */
  signatureError(): GatewayError {
    const { name, text, code } = this.#entry
    const at = declarationOf(this.symbol).exec(code)?.index ?? 0
    const place = this.#place(name, lineOf(code, at))
    const found = /^[^{\n]*/.exec(text.slice(at))?.[0].trim()
    const rule = `${this.symbol} must be func(map[string]any) map[string]any or one of its variants, got ${found}`
    return sourceError(`build failed: ${place.file}:${place.line}: ${rule}`, { ...place, hint: SIGNATURE_HINT })
  }

  #checkMain({ name, code }: Member): void {
    const main = /^func\s+main\s*\(/m.exec(code)
    if (main === null) return
    const place = this.#place(name, lineOf(code, main.index))
    const hint = 'remove func main and keep func handler(event map[string]any) map[string]any'
    const message = `${place.file}:${place.line}: func main must not be there: the gateway calls the handler`
    throw sourceError(message, { ...place, hint })
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
    return [...patterns.matchAll(/["`]([^"`]+)["`]|(\S+)/g)].flatMap(([, quoted, plain]) => {
      const parts = (quoted ?? plain ?? '').replace(/^all:/, '').split('/')
      // Everything below the part without wildcards: more than needed never serves an old program.
      const fixed = parts.findIndex(part => /[*?[\\]/.test(part))
      const base = join(this.folder, ...parts.slice(0, fixed === -1 ? undefined : fixed))
      try {
        return filesBelow(base, () => true)
      } catch {
        return readOptional(base) === null ? [] : base
      }
    })
  }

  #place(name: string, line: number): { file: string; line: number } {
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

const METHOD_PREFIX = /^(?:get|post|put|patch|delete)(?:\.|$)/i

/**
 * True when a source file beside the handler belongs to it: `_` files always, plain files only in the folder of a
 * function, where files with a method or a `[token]` in their name are separate routes.
 */
export function isHelper(fn: FunctionVersion, name: string): boolean {
  if (name.startsWith('.') || !name.endsWith('.go') || name.endsWith('_test.go') || ENTRY_NAMES.has(name)) return false
  const stem = name.slice(0, -'.go'.length)
  return name.startsWith('_') || (fn.kind === 'function' && !METHOD_PREFIX.test(stem) && !stem.includes('['))
}

function declarationOf(name: string): RegExp {
  return new RegExp(`^(?:func|var)\\s+${name}\\b`, 'm')
}
