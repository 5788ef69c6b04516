/**
 * Rust functions to programs. The handler file is a library as it is; a generated package in `.rust-build/`
 * joins it with the worker. Compiled dependencies are shared by all functions of a root.
 * Owner: §2.16, pages dependencies/resolve and runtimes/rust.
 */

import { createHash } from 'node:crypto'
import { existsSync, readFileSync, symlinkSync } from 'node:fs'
import { dirname, isAbsolute, join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import { BuildKey, Workspace } from './build-cache.ts'
import {
  below,
  blankOut,
  type Builder,
  type BuildPlan,
  type BuildTools,
  compilerError,
  type CompilerPlace,
  filesBelow,
  filesOfPackages,
  lineOf,
  readOptional,
  RUST_TEXT,
  sourceError,
  toFolderName,
  type Toolchain,
  toOldError,
  toolError,
  workerSources,
} from './build.ts'
import { packageNameOf, pathCratesOf, toManifest } from './cargo-manifest.ts'
import type { ToolResult } from './run-tool.ts'

interface RustOptions {
  functionsRoot: string
  isPrivate: boolean
  /** Full path of the folder with the worker's package. */
  workerFolder: string
  cargoHome: CargoHome
  timeoutMs: number
}

/** Part of the key: a change of how programs are built builds them again. */
const RECIPE = 'rust 3'
/** Oldest compiler that builds the worker's crate. */
const OLDEST_MINOR = 63
/** Newest versions that the compilers of stable distributions take (1.63); a newer compiler takes the newest. */
const OLD_COMPILER = {
  below: 71,
  pins: {
    serde_json: '>=1, <1.0.129',
    serde: '>=1, <1.0.211',
    itoa: '>=1, <1.0.12',
    ryu: '>=1, <1.0.19',
    memchr: '>=2, <2.7.5',
  },
}
const SIGNATURE_HINT =
  'write pub fn handler(event: serde_json::Value) -> serde_json::Value, or -> Result<serde_json::Value, E> where E: Display'

export function createRustBuilder(options: RustOptions): Builder {
  const worker = workerSources(options.workerFolder, name => /\.(?:rs|toml)$/.test(name))
  return {
    runtime: 'rust',
    // Cargo lets one build at a time into the shared folder of results.
    concurrency: 1,
    timeoutMs: options.timeoutMs,
    manifests: ['Cargo.toml', 'Cargo.lock', 'rust-toolchain', 'rust-toolchain.toml'],
    readVersion: (program, tools, cwd) => readVersion(program, tools, cwd, options.timeoutMs),
    plan: (fn, toolchain) => new RustBuild(fn, options, worker()).plan(toolchain),
  }
}

async function readVersion(program: string, tools: BuildTools, cwd: string, timeoutMs: number): Promise<string> {
  const commands: [string, string][] = [
    [program, '-V'],
    ['rustc', '-vV'],
  ]
  const results = await Promise.all(commands.map(([command, flag]) => tools.run({ command, args: [flag], cwd })))
  for (const [at, result] of results.entries()) {
    if (result.code !== 0)
      throw toolError(commands[at]!.join(' '), result, timeoutMs, 'install a Rust toolchain from https://rustup.rs')
  }
  const versions = results.map(({ output }) => output.trim()).join('\n')
  const minor = toMinor(versions)
  if (minor < OLDEST_MINOR) throw toOldError(`rustc 1.${minor}`, `1.${OLDEST_MINOR}`)
  return versions
}

class RustBuild {
  readonly #fn: FunctionVersion
  readonly #options: RustOptions
  readonly #worker: ReadonlyMap<string, string>
  readonly #workspace: Workspace
  readonly #id: string

  constructor(fn: FunctionVersion, options: RustOptions, worker: ReadonlyMap<string, string>) {
    this.#fn = fn
    this.#options = options
    this.#worker = worker
    this.#workspace = new Workspace(fn, '.rust-build', options.isPrivate)
    this.#id = createHash('sha256').update(fn.entryPath).digest('hex').slice(0, 12)
  }

  plan(toolchain: Toolchain): BuildPlan {
    const [symbol] = this.#fn.callable.names as [string]
    this.#checkSymbol(symbol)
    const { fnDir } = this.#fn
    const user = readOptional(join(fnDir, 'Cargo.toml'))
    const lock = readOptional(join(fnDir, 'Cargo.lock'))
    const key = new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', toolchain.version)
      .add('symbol', symbol)
      .add('entry', below(fnDir, this.#fn.entryPath))
      .add('lock', lock)
    for (const name of ['rust-toolchain', 'rust-toolchain.toml']) key.add(name, readOptional(join(fnDir, name)))
    for (const [name, text] of this.#worker) key.add(name, text)
    for (const path of this.#inputs()) key.add(below(fnDir, path), readFileSync(path))
    const id = key.toString()
    return this.#workspace.plan(id, tools => this.#build(tools, toolchain, id, symbol, user, lock))
  }

  /** @throws GatewayError when the handler file has no such public function */
  #checkSymbol(symbol: string): void {
    const text = readFileSync(this.#fn.entryPath, 'utf8')
    const code = blankOut(text, RUST_TEXT)
    // A re-export may come from anywhere; the compiler knows.
    if (new RegExp(`^\\s*pub\\s+use\\s[^;]*\\b(?:${symbol}|\\*)`, 'm').test(code)) return
    const found = declarationOf(symbol).exec(code)
    const file = this.#fn.entryFile
    if (found === null)
      throw sourceError(`${file}: no function pub fn ${symbol}`, { file, line: 1, hint: SIGNATURE_HINT })
    const line = lineOf(code, found.index + found[0].search(/\S/))
    const { qualifiers = '' } = found.groups ?? {}
    if (/\basync\b/.test(qualifiers)) {
      throw sourceError(`${file}:${line}: ${symbol} must not be async: calls run on threads`, {
        file,
        line,
        hint: SIGNATURE_HINT,
      })
    }
    if (!/\bpub\s+$|\bpub\s+(?!\s*\()/.test(qualifiers)) {
      throw sourceError(`${file}:${line}: ${symbol} must be pub`, { file, line, hint: SIGNATURE_HINT })
    }
  }

  /** Sources, manifests and what sources include as text or bytes. */
  #inputs(): string[] {
    const found = new Set(filesBelow(this.#fn.fnDir, name => name.endsWith('.rs') || name === 'Cargo.toml'))
    for (const path of [...found]) {
      if (!path.endsWith('.rs')) continue
      for (const [, name] of readFileSync(path, 'utf8').matchAll(/\binclude(?:_str|_bytes)?!\s*\(\s*"([^"]+)"/g)) {
        const included = isAbsolute(name as string) ? (name as string) : join(dirname(path), name as string)
        if (readOptional(included) !== null) found.add(included)
      }
    }
    return [...found, ...filesOfPackages(pathCratesOf(this.#fn.fnDir))].sort()
  }

  async #build(
    tools: BuildTools,
    toolchain: Toolchain,
    key: string,
    symbol: string,
    own: string | null,
    lock: string | null,
  ): Promise<void> {
    const workspace = this.#workspace
    const user = tools.user ?? null
    workspace.prepare(user)
    const manifest = toManifest(own, {
      id: this.#id,
      entryPath: this.#fn.entryPath,
      fnDir: this.#fn.fnDir,
      workerFolder: this.#options.workerFolder,
      pins: toMinor(toolchain.version) < OLD_COMPILER.below ? OLD_COMPILER.pins : {},
    })
    workspace.write('Cargo.toml', manifest)
    workspace.write('src/main.rs', `fn main() {\n    fngw_worker::serve(handler_${this.#id}::${symbol})\n}\n`)
    if (lock !== null) workspace.write('Cargo.lock', lock)
    // A panic must be caught: one of a call does not end the process.
    const env = { ...this.#options.cargoHome.prepare(user), CARGO_PROFILE_RELEASE_PANIC: 'unwind' }
    const cargo = (args: string[]) =>
      tools.run({ command: toolchain.program, args, cwd: workspace.tools.path, env, owns: workspace.tools })
    const program = join(this.#options.cargoHome.targetOf(user), 'release', `fn_${this.#id}`)
    // Cargo looks at the times of files alone: one that is put back as it was before the last build it would not compile.
    if (existsSync(program)) {
      for (const name of this.#crates(manifest)) await cargo(['clean', '--release', '--quiet', '--offline', '-p', name])
    }
    const args = ['build', '--release', '--quiet', '--color', 'never', '--message-format', 'short']
    const run = (more: string[]) => cargo([...args, ...more])
    // Crates that were fetched once are enough, and asking the network first would make every build depend on it.
    let result = await run(['--offline'])
    if (result.code !== 0 && /offline/i.test(result.output) && !result.timedOut) result = await run([])
    // Another gateway that builds the same may have let cargo forget it meanwhile.
    if (result.code === 0 && !existsSync(program)) result = await run(['--offline'])
    if (result.code !== 0) throw this.#toError(result, symbol, own !== null)
    await workspace.finish(key, program)
  }

  /** Names of the crates whose sources are part of the key: the function's own, and those that it names by path. */
  #crates(manifest: string): string[] {
    const others = pathCratesOf(this.#fn.fnDir).map(folder => readOptional(join(folder, 'Cargo.toml')) ?? '')
    const names = [manifest, ...others].map(packageNameOf)
    return [...new Set(names.filter(name => name !== null))]
  }

  #toError(result: ToolResult, symbol: string, hasManifest: boolean): GatewayError {
    if (result.timedOut || result.problem !== null) return toolError('cargo build', result, this.#options.timeoutMs)
    const root = `${this.#options.functionsRoot}/`
    const lines: string[] = []
    let first: CompilerPlace | null = null
    for (const line of result.output.split('\n')) {
      const match = /^(.+?\.rs):(\d+):(\d+): (error.*)$/.exec(line)
      if (match === null) continue
      const [, path = '', lineText = '', column = '', message = ''] = match
      if (path === 'src/main.rs') return this.#toSignatureError(message, symbol)
      const file = path.startsWith(root) ? path.slice(root.length) : path
      if (path.startsWith(root)) first ??= { file, line: Number(lineText), column: Number(column) }
      lines.push(`${file}:${lineText}:${column}: ${message}`)
    }
    const where = toFolderName(this.#options.functionsRoot, this.#fn.fnDir)
    const isCrateMissing = /unresolved import|undeclared crate|unlinked crate|E0432|E0433/.test(result.output)
    const hint = isCrateMissing
      ? `name the crate under [dependencies] in ${where === '.' ? '' : `${where}/`}Cargo.toml${hasManifest ? '' : ' (there is none yet)'}`
      : undefined
    const path = first === null ? null : `${root}${first.file}`
    const source = path !== null && this.#inputs().includes(path) ? readFileSync(path, 'utf8') : null
    return compilerError('cargo build', result, this.#options.timeoutMs, { lines, first, source }, hint)
  }

  /** The compiler speaks of the generated call; the fault is in the handler's signature. */
  #toSignatureError(message: string, symbol: string): GatewayError {
    const code = blankOut(readFileSync(this.#fn.entryPath, 'utf8'), RUST_TEXT)
    const found = declarationOf(symbol).exec(code)
    const line = found === null ? 1 : lineOf(code, found.index + found[0].search(/\S/))
    const file = this.#fn.entryFile
    const text = `build failed: ${file}:${line}: ${symbol} must take a serde_json::Value and return one (${message})`
    return sourceError(text, { file, line, hint: SIGNATURE_HINT })
  }
}

function declarationOf(symbol: string): RegExp {
  return new RegExp(`^(?<qualifiers>[ \\t]*(?:[a-z]+(?:\\([^)]*\\))?[ \\t]+)*)fn\\s+${symbol}\\b`, 'm')
}

/** The second number of the compiler's version; a large one when it has none. */
function toMinor(versions: string): number {
  return Number(/rustc 1\.(\d+)/.exec(versions)?.[1] ?? Number.MAX_SAFE_INTEGER)
}

/** Files of a user's own cargo folder: registries, mirrors and proxies, and the tokens for them. */
const USER_FILES = ['config.toml', 'config', 'credentials.toml', 'credentials']
/** Folders in which cargo makes folders and files. */
const HOME_FOLDERS = ['registry', 'git']
const PROFILE_FOLDER = 'release'
const OWN_TARGET = 'rust'

/**
 * The folders for crates: those of the environment when it names them, else `cargo` and `rust` below the build folder, so
 * that a root with its build folder needs no network and no other folder of the machine any more.
 * @param build - `.svc/build`
 * @param hostEnv - variables of the gateway's process
 */
export class CargoHome {
  readonly #target: string
  /** null where the environment names the folder: then it is the user's. */
  readonly #home: OwnFolder | null
  readonly #ownTarget: OwnFolder | null
  readonly #userFolder: string | null

  constructor(build: OwnFolder, hostEnv: Readonly<Record<string, string | undefined>>) {
    this.#home = hostEnv.CARGO_HOME === undefined ? build.below('cargo') : null
    this.#ownTarget = hostEnv.CARGO_TARGET_DIR === undefined ? build.below('rust') : null
    this.#target = hostEnv.CARGO_TARGET_DIR ?? build.below('rust').path
    this.#userFolder = hostEnv.HOME === undefined ? null : join(hostEnv.HOME, '.cargo')
  }

  /** Full path of the folder for compiled crates. @param user - builds; null: the gateway does */
  targetOf(user: ToolUser | null): string {
    return user === null ? this.#target : join(user.home, OWN_TARGET)
  }

  /**
   * Makes the folders, with the user's own settings in them. @returns the variables that cargo needs to use them
   * @throws UnsafePathError when cargo would be led elsewhere by a link
   */
  prepare(user: ToolUser | null = null): Readonly<Record<string, string>> {
    if (user !== null) return { CARGO_TARGET_DIR: this.targetOf(user) }
    this.#ownTarget?.checkEntries()
    this.#ownTarget?.below(PROFILE_FOLDER).checkEntries()
    const variables = { CARGO_TARGET_DIR: this.#target }
    if (this.#home === null) return variables
    for (const name of HOME_FOLDERS) this.#home.below(name).checkEntries()
    this.#home.checkEntries(USER_FILES)
    this.#home.make()
    for (const name of this.#userFolder === null ? [] : USER_FILES) {
      const from = join(this.#userFolder!, name)
      const isTaken = this.#home.list(/^/).some(entry => entry.name === name)
      if (existsSync(from) && !isTaken) symlinkSync(from, this.#home.pathOf(name))
    }
    return { ...variables, CARGO_HOME: this.#home.path }
  }
}
