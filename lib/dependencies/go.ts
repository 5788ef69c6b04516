/**
 * Go functions to programs. The user's folder stays as it is: the tool sees it through an overlay, in which the package
 * of the handler is `main`, files of other routes are gone and the worker's package is there.
 * Owner: §2.16, pages dependencies/resolve and runtimes/go.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { FileReader } from '../files/function-file.ts'
import {
  below,
  type Builder,
  type BuildPlan,
  type BuildTools,
  compilerError,
  type CompilerPlace,
  readOptional,
  toFolderName,
  type Toolchain,
  toOldError,
  toolError,
  workerSources,
} from './build.ts'
import { BuildKey, Workspace } from './build-cache.ts'
import { GoPackage, OWN_MODULE } from './go-package.ts'
import type { ToolResult } from './run-tool.ts'

interface GoOptions {
  functionsRoot: string
  isPrivate: boolean
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** Full path of the folder with the worker's package. */
  workerFolder: string
  timeoutMs: number
  concurrency: number
  /** `CGO_ENABLED` for builds. */
  cgo: boolean
}

/** Part of the key: a change of how programs are built builds them again. */
const RECIPE = 'go 3'
/** Oldest toolchain that builds the worker's package, and the oldest language version for `go.mod`. */
const OLDEST_MINOR = 19
const OLDEST_LANGUAGE = '1.18'
const WORKER_PACKAGE = 'fngwruntime'
/** The generated file that calls the worker's package with the handler. */
const MAIN_FILE = 'fngw_main.go'

export function createGoBuilder(options: GoOptions): Builder {
  const worker = workerSources(options.workerFolder, name => name.endsWith('.go'))
  return {
    runtime: 'go',
    concurrency: options.concurrency,
    timeoutMs: options.timeoutMs,
    manifests: ['go.mod', 'go.sum'],
    readVersion: (program, tools, cwd) => readVersion(program, tools, cwd, options.timeoutMs),
    plan: (fn, toolchain) => new GoBuild(fn, options, worker()).plan(toolchain),
  }
}

async function readVersion(program: string, tools: BuildTools, cwd: string, timeoutMs: number): Promise<string> {
  const result = await tools.run({
    command: program,
    args: ['env', 'GOVERSION', 'GOOS', 'GOARCH', 'GOEXPERIMENT'],
    cwd,
  })
  if (result.code !== 0) throw toolError('go env', result, timeoutMs)
  const version = /go(1\.(\d+)[\w.]*)/.exec(result.output)
  if (version !== null && Number(version[2]) < OLDEST_MINOR) throw toOldError(`go ${version[1]}`, `1.${OLDEST_MINOR}`)
  return result.output.trim()
}

class GoBuild {
  readonly #fn: FunctionVersion
  readonly #options: GoOptions
  readonly #worker: ReadonlyMap<string, string>
  readonly #workspace: Workspace
  readonly #package: GoPackage

  constructor(fn: FunctionVersion, options: GoOptions, worker: ReadonlyMap<string, string>) {
    this.#fn = fn
    this.#options = options
    this.#worker = worker
    this.#workspace = new Workspace(fn, '.go-build', options.isPrivate)
    this.#package = new GoPackage(fn, options.functionsRoot, options.readFile ?? undefined)
  }

  plan(toolchain: Toolchain): BuildPlan {
    const { members, symbol } = this.#package
    const { fnDir } = this.#fn
    const mod = readOptional(join(fnDir, 'go.mod'))
    const sum = readOptional(join(fnDir, 'go.sum'))
    const key = new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', toolchain.version)
      .add('cgo', String(this.#options.cgo))
      .add('symbol', symbol)
      .add('go.mod', mod)
      .add('go.sum', sum)
      .add('vendor', readOptional(join(fnDir, 'vendor', 'modules.txt')))
    for (const [name, text] of this.#worker) key.add(name, text)
    for (const { name, text } of members) key.add(name, text)
    for (const path of this.#package.otherInputs(mod)) key.add(below(fnDir, path), readFileSync(path))
    const id = key.toString()
    return this.#workspace.plan(id, tools => this.#build(tools, toolchain, id, mod, sum))
  }

  async #build(
    tools: BuildTools,
    toolchain: Toolchain,
    key: string,
    mod: string | null,
    sum: string | null,
  ): Promise<void> {
    const workspace = this.#workspace
    workspace.prepare(tools.user ?? null)
    const module = mod === null ? OWN_MODULE : (/^\s*module\s+"?([^\s"]+)/m.exec(mod)?.[1] ?? OWN_MODULE)
    const modFile = workspace.write('go.mod', toModFile(mod, toolchain.version))
    if (sum !== null) workspace.write('go.sum', sum)
    // A workspace file of the user's in a folder above is not the function's.
    const env = { GOWORK: 'off', CGO_ENABLED: this.#options.cgo ? '1' : '0' }
    const cwd = this.#fn.fnDir
    // Asked in the function's folder: its go.mod may choose another toolchain.
    const root = await tools.run({ command: toolchain.program, args: ['env', 'GOROOT'], cwd, env })
    const replace = { ...this.#overlay(module, modFile), ...this.#standardLibrary(root.output.trim()) }
    const overlay = workspace.write('overlay.json', JSON.stringify({ Replace: replace }))
    const output = workspace.draft(key)
    const result = await tools.run({
      command: toolchain.program,
      args: [
        'build',
        '-trimpath',
        '-buildvcs=false',
        '-ldflags=-s -w',
        `-modfile=${modFile}`,
        `-overlay=${overlay}`,
        ...(mod !== null && sum === null && readOptional(join(this.#fn.fnDir, 'vendor', 'modules.txt')) === null
          ? ['-mod=mod']
          : []),
        '-o',
        output,
        toPackageArgument(below(this.#fn.fnDir, this.#package.folder)),
      ],
      cwd,
      env,
      owns: workspace.tools,
    })
    if (result.code !== 0) throw this.#toError(result, mod !== null)
    await workspace.finish(key)
  }

  /** Replacements of files that the tool sees: by full path, '' for none. */
  #overlay(module: string, modFile: string): Record<string, string> {
    const { folder, members, symbol } = this.#package
    const replace: Record<string, string> = { [join(this.#fn.fnDir, 'go.mod')]: modFile }
    for (const name of readdirSync(folder)) {
      if (name.endsWith('.go')) replace[join(folder, name)] = ''
    }
    members.forEach((member, at) => {
      const copy = this.#workspace.write(`src/${at}.go`, this.#package.toMainPackage(member))
      replace[join(folder, `fngw_${at}.go`)] = copy
    })
    const lines = [
      `//line ${join(folder, MAIN_FILE)}:1:1`,
      'package main',
      `import "${module}/${WORKER_PACKAGE}"`,
      `func main() { ${WORKER_PACKAGE}.Serve(${symbol}) }`,
    ]
    replace[join(folder, MAIN_FILE)] = this.#workspace.write('src/main.go', `${lines.join('\n')}\n`)
    for (const name of this.#worker.keys())
      replace[join(this.#fn.fnDir, WORKER_PACKAGE, name)] = join(this.#options.workerFolder, name)
    return replace
  }

  /**
   * Package os with a look at the worker's variables before a file is written, the one place that all output of a goroutine
   * comes through, and before it ends the process. A toolchain that writes them differently builds as it is; see runtimes/go.10.
   */
  #standardLibrary(goRoot: string): Record<string, string> {
    if (goRoot === '') return {}
    const files: Record<string, string> = {}
    const replace = (name: string, toWatched: (text: string) => string | null): boolean => {
      const path = join(goRoot, 'src', 'os', name)
      const text = readOptional(path)
      const watched = text === null ? null : toWatched(text)
      if (watched !== null) files[path] = this.#workspace.write(`src/os_${name}`, watched)
      return watched !== null
    }
    // The variables are in the one file that may name them.
    if (replace('file.go', toWatchedFile)) {
      const isExitWatched = replace('proc.go', toWatchedExit)
      if (isExitWatched) replace('file.go', text => `${toWatchedFile(text)}${EXIT_VARIABLE}`)
    }
    return files
  }

  #toError(result: ToolResult, hasModule: boolean): GatewayError {
    if (result.timedOut || result.problem !== null) return toolError('go build', result, this.#options.timeoutMs)
    const lines: string[] = []
    let first: CompilerPlace | null = null
    for (const line of result.output.split('\n')) {
      if (line.trim() === '' || line.startsWith('# ') || line.startsWith('go: downloading')) continue
      if (line.includes(`${MAIN_FILE}:`)) return this.#package.signatureError()
      const match = /^(?:\.\/)?([^\s:][^:]*\.go):(\d+)(?::(\d+))?: (.*)$/.exec(line)
      if (match === null) {
        lines.push(line)
        continue
      }
      const [, path = '', lineText = '', column, message = ''] = match
      const file = path.startsWith('/')
        ? this.#shorten(path)
        : below(this.#options.functionsRoot, join(this.#fn.fnDir, path))
      first ??= { file, line: Number(lineText), column: column === undefined ? undefined : Number(column) }
      lines.push(`${file}:${lineText}${column === undefined ? '' : `:${column}`}: ${message}`)
    }
    const isModuleMissing = /no required module provides|missing go\.sum entry|is not in std/.test(result.output)
    const where = toFolderName(this.#options.functionsRoot, this.#fn.fnDir)
    const steps = hasModule ? 'go mod tidy' : 'go mod init function && go mod tidy'
    const hint = isModuleMissing ? `run \`${steps}\` in ${where} and keep go.mod and go.sum` : undefined
    const path = first === null ? null : join(this.#options.functionsRoot, first.file)
    const source = this.#package.members.find(({ name }) => join(this.#package.folder, name) === path)?.text ?? null
    return compilerError('go build', result, this.#options.timeoutMs, { lines, first, source }, hint)
  }

  #shorten(path: string): string {
    return path.startsWith(`${this.#options.functionsRoot}/`) ? below(this.#options.functionsRoot, path) : path
  }
}

/** The source of os.File with the look, null when its Write is not found. */
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

/** The source of os.Exit with the look, null when it is not found. */
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

function toPackageArgument(folder: string): string {
  return folder === '' ? '.' : `./${folder}`
}
