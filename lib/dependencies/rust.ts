/**
 * Rust functions to programs. The handler file is a library as it is; a generated package in `.rust-build/`
 * joins it with the worker. Compiled dependencies are shared by all functions of a root.
 * Owner: §2.16, pages dependencies/resolve and runtimes/rust.
 */

import { existsSync, readFileSync, symlinkSync } from 'node:fs'
import { dirname, isAbsolute, join, resolve } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { HostEnv } from '../core/host.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import { BuildKey, digestOf, ProgramBuild } from './build-cache.ts'
import {
  below,
  blankOut,
  type Builder,
  type BuildPlan,
  type CompilerOptions,
  filesBelow,
  filesOfPackages,
  isFolder,
  lineOf,
  readOptional,
  RUST_TEXT,
  toFolderName,
  type Toolchain,
  workerSources,
} from './build.ts'
import type { BuildTools, ToolResult } from './run-tool.ts'
import { compilerError, sourceError, toOldError, toolError } from './tool-failure.ts'

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

export function createRustBuilder(options: CompilerOptions, cargoHome: CargoHome): Builder {
  const timeoutMs = options.rustBuildTimeoutSeconds * 1000
  const worker = workerSources(options.workerFolder('rust'), name => /\.(?:rs|toml)$/.test(name))
  return {
    runtime: 'rust',
    // Cargo lets one build at a time into the shared folder of results.
    concurrency: 1,
    timeoutMs,
    manifests: ['Cargo.toml', 'Cargo.lock', 'rust-toolchain', 'rust-toolchain.toml'],
    readVersion: async (program, tools) => {
      const read = async (command: string, flag: string) => {
        const result = await tools.run({ command, args: [flag], cwd: '/' })
        if (result.code === 0) return result.output.trim()
        throw toolError(`${command} ${flag}`, result, timeoutMs, 'install a Rust toolchain from https://rustup.rs')
      }
      const versions = (await Promise.all([read(program, '-V'), read('rustc', '-vV')])).join('\n')
      const minor = toMinor(versions)
      if (minor < OLDEST_MINOR) throw toOldError(`rustc 1.${minor}`, `1.${OLDEST_MINOR}`)
      return versions
    },
    plan: (fn, toolchain) => new RustBuild(fn, options, worker()).plan(toolchain, cargoHome),
  }
}

class RustBuild extends ProgramBuild {
  readonly #id = digestOf(this.fn.entryPath, 12)
  readonly #symbol = this.fn.callable.names[0]!
  /** Texts of the user's `Cargo.toml` and `Cargo.lock`; null where they are missing. */
  readonly #manifest = readOptional(join(this.fn.fnDir, 'Cargo.toml'))
  readonly #lock = readOptional(join(this.fn.fnDir, 'Cargo.lock'))

  plan(toolchain: Toolchain, cargoHome: CargoHome): BuildPlan {
    this.#checkSymbol()
    const { fnDir, entryPath } = this.fn
    const key = new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', toolchain.version)
      .add('symbol', this.#symbol)
      .add('entry', below(fnDir, entryPath))
      .add('lock', this.#lock)
    for (const name of ['rust-toolchain', 'rust-toolchain.toml']) key.add(name, readOptional(join(fnDir, name)))
    for (const [name, text] of this.worker) key.add(name, text)
    for (const path of this.#inputs()) key.add(below(fnDir, path), readFileSync(path))
    const id = key.toString()
    return this.workspace.plan(id, tools => this.#build(tools, toolchain, cargoHome, id))
  }

  /** The declaration of the callable: its line, and the words before `fn`. Null when there is none. */
  #findDeclaration(code: string): { line: number; qualifiers: string } | null {
    const pattern = new RegExp(`^([ \\t]*(?:[a-z]+(?:\\([^)]*\\))?[ \\t]+)*)fn\\s+${this.#symbol}\\b`, 'm')
    const found = pattern.exec(code)
    if (found === null) return null
    return { line: lineOf(code, found.index + found[0].search(/\S/)), qualifiers: found[1]! }
  }

  #readCode(): string {
    return blankOut(readFileSync(this.fn.entryPath, 'utf8'), RUST_TEXT)
  }

  #checkSymbol(): void {
    const symbol = this.#symbol
    const code = this.#readCode()
    // A re-export may come from anywhere; the compiler knows.
    if (new RegExp(`^\\s*pub\\s+use\\s[^;]*\\b(?:${symbol}|\\*)`, 'm').test(code)) return
    const { entryFile: file } = this.fn
    const { line, qualifiers } = this.#findDeclaration(code) ?? { line: 1, qualifiers: null }
    const fail = (message: string) => sourceError(message, { file, line, hint: SIGNATURE_HINT })
    if (qualifiers === null) throw fail(`${file}: no function pub fn ${symbol}`)
    if (/\basync\b/.test(qualifiers)) throw fail(`${file}:${line}: ${symbol} must not be async: calls run on threads`)
    if (!/\bpub\s+$|\bpub\s+(?!\s*\()/.test(qualifiers)) throw fail(`${file}:${line}: ${symbol} must be pub`)
  }

  /** Sources, manifests and what sources include as text or bytes. */
  #inputs(): string[] {
    const own = filesBelow(this.fn.fnDir, name => name.endsWith('.rs') || name === 'Cargo.toml')
    const found = new Set(own)
    for (const path of own.filter(path => path.endsWith('.rs'))) {
      for (const [, name] of readFileSync(path, 'utf8').matchAll(/\binclude(?:_str|_bytes)?!\s*\(\s*"([^"]+)"/g)) {
        const included = resolve(dirname(path), name!)
        if (readOptional(included) !== null) found.add(included)
      }
    }
    return [...found, ...filesOfPackages(pathCratesOf(this.fn.fnDir))].sort()
  }

  async #build(tools: BuildTools, { program, version }: Toolchain, cargoHome: CargoHome, key: string): Promise<void> {
    const workspace = this.workspace
    const user = tools.user ?? null
    workspace.prepare(user)
    const manifest = toManifest(this.#manifest, {
      id: this.#id,
      entryPath: this.fn.entryPath,
      fnDir: this.fn.fnDir,
      workerFolder: this.options.workerFolder('rust'),
      pins: toMinor(version) < OLD_COMPILER.below ? OLD_COMPILER.pins : {},
    })
    workspace.write('Cargo.toml', manifest)
    const main = `fn main() {\n    fngw_worker::serve(handler_${this.#id}::${this.#symbol})\n}\n`
    workspace.write('src/main.rs', main)
    if (this.#lock !== null) workspace.write('Cargo.lock', this.#lock)
    // A panic must be caught: one of a call does not end the process.
    const env = { ...cargoHome.prepare(user), CARGO_PROFILE_RELEASE_PANIC: 'unwind' }
    const cwd = workspace.tools.path
    const cargo = (...args: string[]) => tools.run({ command: program, args, cwd, env, owns: workspace.tools })
    const build = (...flags: string[]) =>
      cargo('build', '--release', '--quiet', '--color', 'never', '--message-format', 'short', ...flags)
    const binary = join(cargoHome.targetOf(user), 'release', `fn_${this.#id}`)
    // Cargo compares the times of files alone: one that is put back as it was before the last build it would not compile.
    if (existsSync(binary)) {
      for (const name of this.#crates(manifest)) await cargo('clean', '--release', '--quiet', '--offline', '-p', name)
    }
    // Crates that were fetched once are enough, and asking the network first would make every build depend on it.
    let result = await build('--offline')
    if (result.code !== 0 && /offline/i.test(result.output) && !result.timedOut) result = await build()
    // Another gateway that builds the same may have let cargo forget it meanwhile.
    if (result.code === 0 && !existsSync(binary)) result = await build('--offline')
    if (result.code !== 0) throw this.#toError(result, cwd)
    await workspace.finish(key, binary)
  }

  /** Names of the crates whose sources are part of the key: the function's own, and those that it names by path. */
  #crates(manifest: string): string[] {
    const others = pathCratesOf(this.fn.fnDir).map(folder => readOptional(join(folder, 'Cargo.toml')) ?? '')
    const names = [manifest, ...others].map(packageNameOf)
    return [...new Set(names.filter(name => name !== null))]
  }

  #toError(result: ToolResult, cwd: string): GatewayError {
    const { functionsRoot, rustBuildTimeoutSeconds } = this.options
    const { entryFile: file, fnDir } = this.fn
    const isRun = !result.timedOut && result.problem === null
    // A message about the generated call: the cause is the handler's signature.
    const generated = isRun ? /^src\/main\.rs:\d+:\d+: (error.*)$/m.exec(result.output) : null
    if (generated !== null) {
      const line = this.#findDeclaration(this.#readCode())?.line ?? 1
      const rule = `${this.#symbol} must take a serde_json::Value and return one (${generated[1]})`
      return sourceError(`build failed: ${file}:${line}: ${rule}`, { file, line, hint: SIGNATURE_HINT })
    }
    const compiler = {
      action: 'cargo build',
      timeoutMs: rustBuildTimeoutSeconds * 1000,
      functionsRoot,
      cwd,
      pattern: /^(?<path>.+?\.rs):(?<line>\d+):(?<column>\d+): (?<message>error.*)$/,
      sourceOf: (path: string) => (this.#inputs().includes(path) ? readFileSync(path, 'utf8') : null),
    }
    const isCrateMissing = /unresolved import|undeclared crate|unlinked crate|E0432|E0433/.test(result.output)
    const where = toFolderName(functionsRoot, fnDir)
    const cargoToml = `${where === '.' ? '' : `${where}/`}Cargo.toml${this.#manifest === null ? ' (there is none yet)' : ''}`
    const hint = isCrateMissing ? `name the crate under [dependencies] in ${cargoToml}` : undefined
    return compilerError(result, compiler, hint)
  }
}

/** The second number of the compiler's version; a large one when it has none. */
function toMinor(versions: string): number {
  return Number(/rustc 1\.(\d+)/.exec(versions)?.[1] ?? Number.MAX_SAFE_INTEGER)
}

/** Files of a user's own cargo folder: registries, mirrors and proxies, and the tokens for them. */
const USER_FILES = ['config.toml', 'config', 'credentials.toml', 'credentials']
/** Folders in which cargo makes folders and files. */
const HOME_FOLDERS = ['registry', 'git']

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

  constructor(build: OwnFolder, { CARGO_HOME, CARGO_TARGET_DIR, HOME }: HostEnv) {
    this.#home = CARGO_HOME === undefined ? build.below('cargo') : null
    this.#ownTarget = CARGO_TARGET_DIR === undefined ? build.below('rust') : null
    this.#target = CARGO_TARGET_DIR ?? build.below('rust').path
    this.#userFolder = HOME === undefined ? null : join(HOME, '.cargo')
  }

  /** Full path of the folder for compiled crates. @param user - builds; null: the gateway does */
  targetOf(user: ToolUser | null): string {
    return user === null ? this.#target : join(user.home, 'rust')
  }

  /**
   * Makes the folders, with the user's own settings in them. @returns the variables that cargo needs to use them
   * @throws UnsafePathError when cargo would be led elsewhere by a link
   */
  prepare(user: ToolUser | null = null): Readonly<Record<string, string>> {
    const variables = { CARGO_TARGET_DIR: this.targetOf(user) }
    if (user !== null) return variables
    this.#ownTarget?.checkEntries()
    this.#ownTarget?.below('release').checkEntries()
    const home = this.#home
    if (home === null) return variables
    for (const name of HOME_FOLDERS) home.below(name).checkEntries()
    home.checkEntries(USER_FILES)
    home.make()
    const taken = home.list(/^/).map(({ name }) => name)
    for (const name of this.#userFolder === null ? [] : USER_FILES) {
      const from = join(this.#userFolder!, name)
      if (existsSync(from) && !taken.includes(name)) symlinkSync(from, home.pathOf(name))
    }
    return { ...variables, CARGO_HOME: home.path }
  }
}

// The Cargo.toml of a build: the user's own with our targets in it. TOML is taken apart only as far as needed: into
// tables and their entries, whose text stays as it is.

interface ManifestOptions {
  /** Letters, digits and `_`, one for each handler file: all functions of a root share one folder of build results. */
  id: string
  entryPath: string
  /** Folder that relative paths of the user's manifest start from. */
  fnDir: string
  workerFolder: string
  /** Versions of crates that a manifest of our own asks for: by name, for an old compiler. */
  pins: Readonly<Record<string, string>>
  /** True for `cargo test`: with the user's `dev-dependencies`, and without a program. */
  isTest?: boolean
}

interface Entry {
  /** First part of a dotted key, without quotes; '' for comments and blank lines. */
  key: string
  text: string
}

interface Table {
  /** Text of the header line; '' for what comes before the first one. */
  header: string
  /** Name without brackets and quotes: `dependencies.serde`. */
  name: string
  entries: Entry[]
}

/** Tables that say how the user's package is built or tested, and what a folder above might say. */
const DROPPED_TABLES =
  /^(?:lib|bin|example|test|bench|workspace|lints|badges|dev-dependencies|build-dependencies)(?:\.|$)/
const DROPPED_KEYS =
  /^(?:auto(?:benches|bins|examples|lib|tests)|build|default-run|exclude|include|license-file|links|publish|readme|workspace)$/
const TEST_TABLES = /^dev-dependencies(?:\.|$)/
const WITH_PATHS = /(?:^|\.)(?:(?:dev-)?dependencies|patch)(?:\.|$)/
const PACKAGE_DEFAULTS: Readonly<Record<string, string>> = { name: 'handler', version: '0.0.0', edition: '2021' }

/** @param user - text of the user's Cargo.toml, null without one */
export function toManifest(user: string | null, options: ManifestOptions): string {
  const isKept = ({ name }: Table): boolean =>
    !DROPPED_TABLES.test(name) || (options.isTest === true && TEST_TABLES.test(name))
  const tables = user === null ? [] : parseTables(user).filter(isKept)
  const own = tableOf(tables, 'package')
  own.entries = own.entries.filter(({ key }) => !DROPPED_KEYS.test(key))
  for (const [key, value] of Object.entries(PACKAGE_DEFAULTS)) {
    if (!own.entries.some(entry => entry.key === key)) own.entries.push({ key, text: `${key} = "${value}"` })
  }
  for (const key of ['autobins', 'autoexamples', 'autotests', 'autobenches'])
    own.entries.push({ key, text: `${key} = false` })
  for (const table of tables) {
    if (!WITH_PATHS.test(table.name)) continue
    for (const entry of table.entries) entry.text = withFullPaths(entry.text, options.fnDir)
  }
  const dependencies = tableOf(tables, 'dependencies')
  const has = (name: string) =>
    dependencies.entries.some(({ key }) => key === name) || tables.some(table => table.name === `dependencies.${name}`)
  for (const [key, version] of Object.entries({ serde_json: '1', ...(user === null && options.pins) })) {
    if (!has(key)) dependencies.entries.push({ key, text: `${key} = "${version}"` })
  }
  const worker = { key: 'fngw_worker', text: `fngw_worker = { path = ${JSON.stringify(options.workerFolder)} }` }
  if (options.isTest !== true) dependencies.entries.push(worker)
  const hasProfile = tables.some(({ name }) => name === 'profile.release')
  if (!hasProfile) tableOf(tables, 'profile.release').entries.push({ key: 'strip', text: 'strip = true' })
  const targets = `[lib]
name = "handler_${options.id}"
path = ${JSON.stringify(options.entryPath)}

${options.isTest === true ? '' : `[[bin]]\nname = "fn_${options.id}"\npath = "src/main.rs"\n\n`}[workspace]
`
  const texts = tables.map(({ header, entries }) => [header, ...entries.map(({ text }) => text)].join('\n').trim())
  return `${[...texts.filter(text => text !== ''), targets].join('\n\n')}`
}

/**
 * The Cargo.toml with which `cargo test` runs the tests in a handler.
 * @param workerFolder - full path of the worker's crate
 */
export function toTestManifest({ fnDir, entryPath }: FunctionVersion, workerFolder: string): string {
  const user = readOptional(join(fnDir, 'Cargo.toml'))
  const id = digestOf(entryPath, 12)
  return toManifest(user, { id, entryPath, fnDir, workerFolder, pins: {}, isTest: true })
}

/** Name of the package of a Cargo.toml, null for one without. */
export function packageNameOf(manifest: string): string | null {
  const name = tableOf(parseTables(manifest), 'package').entries.find(({ key }) => key === 'name')
  return /=\s*["']([\w-]+)["']/.exec(name?.text ?? '')?.[1] ?? null
}

function tableOf(tables: Table[], name: string): Table {
  const known = tables.find(table => table.name === name)
  if (known !== undefined) return known
  const made = { header: `[${name}]`, name, entries: [] }
  tables.push(made)
  return made
}

/** Comments and quoted text; text of one line that is not closed ends with its line. */
const TOML_TEXT = /#[^\n]*|"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"?|'[^'\n]*'?/g

/** Cuts a TOML text at its headers; a `[` inside a value that spans lines begins no table. */
export function parseTables(text: string): Table[] {
  const toml = text.replace(/^\uFEFF/, '').replace(/\r\n/g, '\n')
  const code = toml.replace(TOML_TEXT, found => ' '.repeat(found.length))
  const tables: Table[] = [{ header: '', name: '', entries: [] }]
  for (let at = 0; at < toml.length; ) {
    const end = toml.indexOf('\n', at)
    const lineEnd = end === -1 ? toml.length : end
    const line = toml.slice(at, lineEnd)
    const header = /^\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$/.exec(line)
    const key = /^\s*("[^"]+"|'[^']+'|[A-Za-z0-9_-]+)\s*[.=]/.exec(line)?.[1]
    if (header !== null) tables.push({ header: line, name: toPlainKey(header[1] as string), entries: [] })
    const entryEnd = header === null && key !== undefined ? endOfValue(code, at + line.indexOf('=') + 1) : lineEnd
    const entry = { key: key === undefined ? '' : toPlainKey(key), text: toml.slice(at, entryEnd) }
    if (header === null) tables.at(-1)!.entries.push(entry)
    at = entryEnd + 1
  }
  return tables
}

/**
 * The end of the line in which a value ends: after open brackets and text of several lines.
 * @param code - without comments and quoted text
 */
function endOfValue(code: string, from: number): number {
  let depth = 0
  for (const mark of code.slice(from).matchAll(/[[{\]}\n]/g)) {
    if (mark[0] === '\n' && depth <= 0) return from + mark.index
    if (mark[0] !== '\n') depth += '[{'.includes(mark[0]) ? 1 : -1
  }
  return code.length
}

function toPlainKey(key: string): string {
  const parts = key.match(/"[^"]*"|'[^']*'|[^.\s]+/g) ?? []
  return parts.map(part => part.replace(/^(["'])(.*)\1$/, '$2')).join('.')
}

function withFullPaths(text: string, folder: string): string {
  return text.replace(
    /\b(path\s*=\s*)(?:"([^"]*)"|'([^']*)')/g,
    (whole, start: string, double?: string, single?: string) => {
      const path = double ?? single ?? ''
      return isAbsolute(path) ? whole : `${start}${JSON.stringify(join(folder, path))}`
    },
  )
}

const CARGO_PATH = /\bpath\s*=\s*(?:"([^"]*)"|'([^']*)')/g

/** Full paths of the folders of crates that a folder's `Cargo.toml` names by path, and that these name. */
export function pathCratesOf(folder: string): string[] {
  const seen = new Set([folder])
  for (const crate of seen) {
    const text = readOptional(join(crate, 'Cargo.toml'))?.replace(/^\s*#.*$/gm, '') ?? ''
    // In its own tables `path` is a file: the one of a target.
    for (const [, double, single] of text.matchAll(CARGO_PATH)) {
      const path = resolve(crate, double ?? single ?? '')
      if (isFolder(path)) seen.add(path)
    }
  }
  seen.delete(folder)
  return [...seen]
}
