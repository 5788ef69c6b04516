/**
 * Go functions to programs. The user's folder stays as it is: the tool sees it through an overlay, in which the package
 * of the handler is `main`, files of other routes are gone and the worker's package is there.
 * Owner: §2.16, pages dependencies/resolve and runtimes/go.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import {
  type Builder,
  type BuildPlan,
  type BuildTools,
  below,
  filesBelow,
  isMember,
  readOptional,
  sourceError,
  type Toolchain,
  toHead,
  toolError,
} from './build.ts'
import { BuildKey, Workspace } from './build-cache.ts'
import type { ToolResult } from './run-tool.ts'
import { blankOut, GO_TEXT, lineOf } from './source-text.ts'

export interface GoOptions {
  functionsRoot: string
  /** Full path of the folder with the worker's package. */
  workerFolder: string
  timeoutMs: number
  concurrency: number
  /** `CGO_ENABLED` for builds. */
  cgo: boolean
}

/** Part of the key: a change of how programs are built builds them again. */
const RECIPE = 'go 1'
/** Oldest language that has them. */
const OLDEST_LANGUAGE = '1.18'
const WORKER_PACKAGE = 'fngwruntime'
/** The generated file that calls the worker's package with the handler. */
const MAIN_FILE = 'fngw_main.go'
/** Module of a function that brings no go.mod; its own sub-packages are imported as `handler/<folder>`. */
const OWN_MODULE = 'handler'

/** One file of the handler's package. */
interface Member {
  name: string
  text: string
  /** Comments and texts blanked out. */
  code: string
}

export function createGoBuilder(options: GoOptions): Builder {
  let worker: Map<string, string> | null = null
  return {
    runtime: 'go',
    concurrency: options.concurrency,
    timeoutMs: options.timeoutMs,
    readVersion: (program, tools, cwd) => readVersion(program, tools, cwd, options.timeoutMs),
    plan: (fn, toolchain) => {
      worker ??= readWorker(options.workerFolder)
      return new GoBuild(fn, options, worker).plan(toolchain)
    },
  }
}

function readWorker(folder: string): Map<string, string> {
  const names = readdirSync(folder).filter(name => name.endsWith('.go'))
  return new Map(names.sort().map(name => [join(folder, name), readFileSync(join(folder, name), 'utf8')]))
}

async function readVersion(program: string, tools: BuildTools, cwd: string, timeoutMs: number): Promise<string> {
  const result = await tools.run({
    command: program,
    args: ['env', 'GOVERSION', 'GOOS', 'GOARCH', 'GOEXPERIMENT'],
    cwd,
  })
  if (result.code !== 0) throw toolError('go env', result, timeoutMs)
  return result.output.trim()
}

class GoBuild {
  readonly #fn: FunctionVersion
  readonly #options: GoOptions
  readonly #worker: Map<string, string>
  readonly #workspace: Workspace
  /** Folder of the handler file; the module's folder is the function's. */
  readonly #folder: string

  constructor(fn: FunctionVersion, options: GoOptions, worker: Map<string, string>) {
    this.#fn = fn
    this.#options = options
    this.#worker = worker
    this.#workspace = new Workspace(fn, '.go-build')
    this.#folder = dirname(fn.entryPath)
  }

  plan(toolchain: Toolchain): BuildPlan {
    const members = this.#readMembers()
    const symbol = this.#findSymbol(members)
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
    for (const [path, text] of this.#worker) key.add(basename(path), text)
    for (const { name, text } of members) key.add(name, text)
    for (const path of this.#otherInputs(members, mod !== null)) key.add(below(fnDir, path), readFileSync(path))
    const id = key.toString()
    return {
      key: id,
      isBuilt: this.#workspace.has(id),
      binary: this.#workspace.binary(id),
      build: tools => this.#build(tools, toolchain, id, members, symbol, mod, sum),
    }
  }

  #readMembers(): Member[] {
    const entry = basename(this.#fn.entryPath)
    const names = readdirSync(this.#folder).filter(
      name => name === entry || (name.endsWith('.go') && !name.endsWith('_test.go') && isMember(this.#fn, name)),
    )
    return names.sort().map(name => {
      const text = readFileSync(join(this.#folder, name), 'utf8')
      return { name, text, code: blankOut(text, GO_TEXT) }
    })
  }

  /** The handler's name. @throws GatewayError when the file has none, or has what the worker brings */
  #findSymbol(members: readonly Member[]): string {
    const wanted = this.#fn.policy.handler
    const names = wanted === null ? ['handler', 'Handler'] : [wanted]
    const entry = members.find(member => member.name === basename(this.#fn.entryPath))
    for (const member of members) {
      const main = /^func\s+main\s*\(/m.exec(member.code)
      if (main === null) continue
      const place = this.#place(member.name, lineOf(member.code, main.index))
      throw sourceError(`${place.file}:${place.line}: func main must not be there: the gateway calls the handler`, {
        ...place,
        hint: 'remove func main and keep func handler(event map[string]any) map[string]any',
      })
    }
    const symbol = names.find(name => entry !== undefined && declarationOf(name).test(entry.code))
    if (symbol !== undefined) return symbol
    const { file } = this.#place(basename(this.#fn.entryPath), 1)
    throw sourceError(`${file}: no package-level function ${names.join(' or ')}`, {
      file,
      line: 1,
      hint: SIGNATURE_HINT,
    })
  }

  /** Sources of the module's other packages, and files that `//go:embed` names. */
  #otherInputs(members: readonly Member[], hasModule: boolean): string[] {
    const { fnDir } = this.#fn
    const found = new Set<string>()
    if (hasModule || members.some(({ text }) => text.includes(`"${OWN_MODULE}/`))) {
      for (const path of filesBelow(fnDir, name => name.endsWith('.go'))) {
        if (dirname(path) !== this.#folder) found.add(path)
      }
    }
    for (const { text } of members) {
      for (const [, patterns] of text.matchAll(/^\/\/go:embed\s+(.+)$/gm)) {
        for (const path of this.#embedded(patterns as string)) found.add(path)
      }
    }
    return [...found].sort()
  }

  #embedded(patterns: string): string[] {
    const found: string[] = []
    for (const [, quoted, plain] of patterns.matchAll(/["`]([^"`]+)["`]|(\S+)/g)) {
      const pattern = (quoted ?? plain ?? '').replace(/^all:/, '')
      // Everything below the part without wildcards: more than needed never serves an old program.
      const fixed = pattern.split('/').findIndex(part => /[*?[\\]/.test(part))
      const base = join(this.#folder, ...pattern.split('/').slice(0, fixed === -1 ? undefined : fixed))
      try {
        found.push(...filesBelow(base, () => true))
      } catch {
        if (readOptional(base) !== null) found.push(base)
      }
    }
    return found
  }

  async #build(
    tools: BuildTools,
    toolchain: Toolchain,
    key: string,
    members: readonly Member[],
    symbol: string,
    mod: string | null,
    sum: string | null,
  ): Promise<void> {
    const workspace = this.#workspace
    workspace.prepare()
    const module = mod === null ? OWN_MODULE : (/^\s*module\s+"?([^\s"]+)/m.exec(mod)?.[1] ?? OWN_MODULE)
    const modFile = workspace.write('go.mod', toModFile(mod, toolchain.version))
    if (sum !== null) workspace.write('go.sum', sum)
    const overlay = workspace.write(
      'overlay.json',
      JSON.stringify({ Replace: this.#overlay(members, symbol, module, modFile) }),
    )
    const output = join(workspace.folder, 'bin', `.${key}`)
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
        toPackageArgument(below(this.#fn.fnDir, this.#folder)),
      ],
      cwd: this.#fn.fnDir,
      // A workspace file of the user's in a folder above is not the function's.
      env: { GOWORK: 'off', CGO_ENABLED: this.#options.cgo ? '1' : '0' },
    })
    if (result.code !== 0) throw this.#toError(result, members, symbol, mod !== null)
    workspace.publish(key, output)
  }

  /** What the tool sees instead of what is there: by full path, '' for nothing. */
  #overlay(members: readonly Member[], symbol: string, module: string, modFile: string): Record<string, string> {
    const replace: Record<string, string> = { [join(this.#fn.fnDir, 'go.mod')]: modFile }
    for (const name of readdirSync(this.#folder)) {
      if (name.endsWith('.go')) replace[join(this.#folder, name)] = ''
    }
    members.forEach((member, at) => {
      const copy = this.#workspace.write(`src/${at}.go`, this.#toMainPackage(member))
      replace[join(this.#folder, `fngw_${at}.go`)] = copy
    })
    const main = `//line ${join(this.#folder, MAIN_FILE)}:1:1\npackage main\n\nimport "${module}/${WORKER_PACKAGE}"\n\nfunc main() { ${WORKER_PACKAGE}.Serve(${symbol}) }\n`
    replace[join(this.#folder, MAIN_FILE)] = this.#workspace.write('src/main.go', main)
    for (const path of this.#worker.keys()) replace[join(this.#fn.fnDir, WORKER_PACKAGE, basename(path))] = path
    return replace
  }

  /** The file as part of package main, with its own name and lines in every message. */
  #toMainPackage({ name, text, code }: Member): string {
    const clause = /^([ \t]*package[ \t]+)([\p{L}_][\p{L}\p{N}_]*)/mu.exec(code)
    const line = `//line ${join(this.#folder, name)}:1:1\n`
    if (clause === null) return line + text
    const at = clause.index + clause[1]!.length
    return `${line}${text.slice(0, at)}main${text.slice(at + clause[2]!.length)}`
  }

  #toError(result: ToolResult, members: readonly Member[], symbol: string, hasModule: boolean): GatewayError {
    if (result.timedOut || result.problem !== null) return toolError('go build', result, this.#options.timeoutMs)
    const lines: string[] = []
    let first: { file: string; line: number } | null = null
    for (const line of result.output.split('\n')) {
      if (line.trim() === '' || line.startsWith('# ') || line.startsWith('go: downloading')) continue
      if (line.includes(`${MAIN_FILE}:`)) return this.#toSignatureError(members, symbol)
      const match = /^(?:\.\/)?([^\s:][^:]*\.go):(\d+)(?::(\d+))?: (.*)$/.exec(line)
      if (match === null) {
        lines.push(line)
        continue
      }
      const [, path, lineText, column, message] = match as unknown as [
        string,
        string,
        string,
        string | undefined,
        string,
      ]
      const file = path.startsWith('/')
        ? this.#shorten(path)
        : below(this.#options.functionsRoot, join(this.#fn.fnDir, path))
      first ??= { file, line: Number(lineText) }
      lines.push(`${file}:${lineText}${column === undefined ? '' : `:${column}`}: ${message}`)
    }
    const isModuleMissing = /no required module provides|missing go\.sum entry|is not in std/.test(result.output)
    const where = below(this.#options.functionsRoot, this.#fn.fnDir) || '.'
    const steps = hasModule ? 'go mod tidy' : 'go mod init function && go mod tidy'
    const hint = isModuleMissing ? `run \`${steps}\` in ${where} and keep go.mod and go.sum` : undefined
    if (first === null) return toolError('go build', result, this.#options.timeoutMs, hint)
    return sourceError(`build failed: ${toHead(lines)}`, { ...first, ...(hint !== undefined && { hint }) })
  }

  /** The compiler speaks of the generated call; the fault is in the handler's signature. */
  #toSignatureError(members: readonly Member[], symbol: string): GatewayError {
    const entry = members.find(member => member.name === basename(this.#fn.entryPath))
    const at = entry === undefined ? null : declarationOf(symbol).exec(entry.code)
    const place = this.#place(
      basename(this.#fn.entryPath),
      at === null || entry === undefined ? 1 : lineOf(entry.code, at.index),
    )
    const found =
      entry === undefined || at === null ? '' : (/^[^{\n]*/.exec(entry.text.slice(at.index))?.[0].trim() ?? '')
    const but = found === '' ? '' : `, got ${found}`
    const message = `build failed: ${place.file}:${place.line}: ${symbol} must be func(map[string]any) map[string]any or one of its variants${but}`
    return sourceError(message, { ...place, hint: SIGNATURE_HINT })
  }

  #place(name: string, line: number): { file: string; line: number } {
    return { file: below(this.#options.functionsRoot, join(this.#folder, name)), line }
  }

  #shorten(path: string): string {
    return path.startsWith(`${this.#options.functionsRoot}/`) ? below(this.#options.functionsRoot, path) : path
  }
}

const SIGNATURE_HINT =
  'write func handler(event map[string]any) map[string]any; an error as second result, a context.Context as first parameter and any instead of map[string]any are fine too'

function declarationOf(name: string): RegExp {
  return new RegExp(`^(?:func|var)\\s+${name}\\b`, 'm')
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
