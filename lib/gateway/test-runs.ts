/** Tests of functions: which files are tests, and the command that runs each group of them. Owner: page bin/test. */

import { execFile } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Settings } from '../config/settings.ts'
import type { EnvValue, FunctionVersion } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError, orNull } from '../core/errors.ts'
import { type HostEnv, toFunctionHostEnv, toToolHostEnv } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { SharedPacks } from '../dependencies/dependencies.ts'
import { labelOf, readOptional, tryRead } from '../dependencies/build.ts'
import { digestOf } from '../dependencies/build-cache.ts'
import { GoPackage } from '../dependencies/go.ts'
import { CargoHome, toTestManifest } from '../dependencies/rust.ts'
import { toOffReason, toTurnOnHint } from '../discovery/layouts.ts'
import type { DirNode } from '../discovery/snapshot.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { SecretMask } from '../observe/function-output.ts'
import { findOnPath, findProgram } from '../runtime/binaries.ts'
import { runtimeFile } from '../runtime/package-files.ts'
import type { Catalog } from './catalog-loader.ts'

/** How many tests of a run passed, failed and were skipped. */
interface TestCounts {
  passed: number
  failed: number
  skipped: number
}

/** One process of a test runner. */
export interface TestRun {
  runtime: RuntimeName
  /** Such as `node:test`. */
  runner: string
  /** Below the functions root. */
  files: readonly string[]
  command: string
  args: readonly string[]
  /** Full path. */
  cwd: string
  env: Readonly<Record<string, string>>
  /** Text without the secrets of the function. */
  hide(text: string): string
  /** @param output - what the runner printed on standard output; @returns null when it reports nothing */
  count(output: string): TestCounts | null
}

/** Tests that cannot run. */
export interface TestProblem {
  runtime: RuntimeName
  files: readonly string[]
  /** What is missing and how to get it. */
  problem: string
}

/** The parts of the gateway from which tests are found and planned. */
interface Tested {
  settings: Settings
  hostEnv: HostEnv
  catalog: Catalog
  packs: Pick<SharedPacks, 'dirsOf'>
  secrets: Pick<SecretMask, 'hide'>
  /** Installs the packages of a function. @throws GatewayError */
  prepare(fn: FunctionVersion): Promise<void>
}

export interface TestRequest {
  /** Part of a path below the functions root; null for all tests. */
  pattern: string | null
  /** Address of the gateway. */
  url: string
  /** Full path of a private folder for reports. */
  folder: string
}

/** Test files by their names. Rust has its tests in its sources. */
const TEST_NAMES: Readonly<Record<RuntimeName, RegExp>> = {
  node: /\.(?:test|spec)\.[mc]?[jt]s$/,
  python: /^test_.*\.py$|\.test\.py$/,
  php: /\.test\.php$/,
  lua: /\.test\.lua$/,
  go: /_test\.go$/,
  rust: /\.rs$/,
}
const RUNTIMES = Object.keys(TEST_NAMES) as RuntimeName[]
/** Runtimes whose tests import packages that the gateway installs. Build tools fetch their own. */
const INSTALLED: ReadonlySet<RuntimeName> = new Set(['node', 'python', 'php'])
/** Variables of a terminal and of a CI service, which runners read. */
const RUNNER_VARIABLES = /^(?:CI|TERM|COLUMNS|NO_COLOR|FORCE_COLOR)$/
/** The module `fngw/test`: in the sources, and in the built package, whose joined files are in folders beside `lib`. */
const FIXTURE = new URL(import.meta.url.endsWith('.ts') ? '../test.ts' : '../lib/test.js', import.meta.url)
const NO_ENV: Readonly<Record<string, EnvValue>> = Object.freeze({})

interface Group {
  runtime: RuntimeName
  /** The function beside or above the tests; null for tests that belong to none. */
  fn: FunctionVersion | null
  /** Full paths. */
  paths: string[]
}

type Command = Pick<TestRun, 'runner' | 'command' | 'args' | 'count'> & { env?: Record<string, string> }

/**
 * Finds the tests of the tree. Tests of one language in one folder with one environment are one run.
 * @returns runs and problems in the order of their files
 */
export async function planTests(tested: Tested, request: TestRequest): Promise<(TestRun | TestProblem)[]> {
  const planned: (TestRun | TestProblem)[] = []
  for (const group of findGroups(tested, request.pattern)) planned.push(...(await planGroup(group, tested, request)))
  return planned
}

function findGroups({ settings, catalog }: Tested, pattern: string | null): Group[] {
  const groups = new Map<string, Group>()
  const functions = [...catalog.functions.values()]
  const visit = ({ path, files, dirs, skipped }: DirNode): void => {
    if (skipped !== null) return
    for (const { name } of files) {
      const runtime = RUNTIMES.find(one => TEST_NAMES[one].test(name))
      if (runtime === undefined || !labelOf(path || '.', name).includes(pattern ?? '')) continue
      const full = join(settings.functionsRoot, path, name)
      if (runtime === 'rust' && !/^\s*#\[(?:\w+::)?test\]/m.test(tryRead(full) ?? '')) continue
      const fn = ownerOf(functions, runtime, full)
      // A compiler builds one handler at a time; the other languages load what a test imports.
      const isBuilt = runtime === 'go' || runtime === 'rust'
      const key = `${runtime} ${isBuilt ? fn?.key : fn?.fnDir} ${JSON.stringify(fn?.env ?? null)}`
      getOrMake(groups, key, (): Group => ({ runtime, fn, paths: [] })).paths.push(full)
    }
    dirs.forEach(visit)
  }
  visit(catalog.snapshot.root)
  return [...groups.values()]
}

/** The function in the nearest folder at or above a test; of several there, the one that the test is named after. */
function ownerOf(functions: readonly FunctionVersion[], runtime: RuntimeName, path: string): FunctionVersion | null {
  const above = functions.filter(fn => fn.runtime === runtime && path.startsWith(fn.fnDir + sep))
  const depth = Math.max(...above.map(({ fnDir }) => fnDir.length))
  const nearest = above.filter(({ fnDir }) => fnDir.length === depth)
  const subject = basename(path).replace(/^test_|(?:[._](?:test|spec))?\.\w+$/g, '')
  return nearest.find(({ entryPath }) => basename(entryPath).replace(/\.\w+$/, '') === subject) ?? nearest[0] ?? null
}

async function planGroup(group: Group, tested: Tested, request: TestRequest): Promise<(TestRun | TestProblem)[]> {
  const { runtime, fn, paths } = group
  const { settings, hostEnv, secrets } = tested
  const root = settings.functionsRoot
  const shown = (path: string): string =>
    path
      .slice(root.length + 1)
      .split(sep)
      .join('/')
  const fail = (problem: string): TestProblem[] => [{ runtime, files: paths.map(shown), problem }]
  if (!settings.runtimes.includes(runtime)) {
    const hint = toTurnOnHint([...settings.runtimes, runtime])
    return fail(`${toOffReason(runtime)}. ${hint}`)
  }
  const program = findProgram(runtime, settings.binaries, hostEnv.PATH ?? '')
  if (program.path === null) return fail(program.problem)
  if ((runtime === 'go' || runtime === 'rust') && fn === null) return fail('no function is in this folder or above it')
  const cwd = fn?.fnDir ?? root
  try {
    if (fn !== null && INSTALLED.has(runtime)) await tested.prepare(fn)
    const commands = await PLANS[runtime](program.path, { ...group, fn: fn as FunctionVersion, cwd, tested, request })
    return commands.map(({ env, paths: own = paths, ...command }) => ({
      ...{ ...command, runtime, files: own.map(shown), cwd },
      env: { ...toEnv(group, tested, request), ...env },
      hide: (text: string) => secrets.hide({ env: fn?.env ?? NO_ENV }, text),
    }))
  } catch (error) {
    if (!(error instanceof GatewayError || error instanceof MissingRunner)) throw error
    const hint = error instanceof GatewayError ? error.detail?.hint : undefined
    return fail(hint === undefined ? error.message : `${error.message}; ${hint}`)
  }
}

/** The host variables that a worker of the function gets, the function's own variables, and the address of the gateway. */
function toEnv({ runtime, fn }: Group, { hostEnv }: Tested, { url }: TestRequest): Record<string, string> {
  const isBuilt = runtime === 'go' || runtime === 'rust'
  const own = Object.entries(fn?.env ?? NO_ENV).map(([key, { value }]) => [key, value])
  const runner = Object.entries(hostEnv).filter(([name, value]) => RUNNER_VARIABLES.test(name) && value !== undefined)
  return {
    ...(isBuilt ? toToolHostEnv(hostEnv) : {}),
    ...toFunctionHostEnv(hostEnv),
    ...Object.fromEntries([...runner, ...own]),
    FNGW_TEST_URL: url,
  }
}

/** A test runner is not installed; the message says how to get it. */
class MissingRunner extends Error {}

interface PlannedGroup extends Group {
  fn: FunctionVersion
  cwd: string
  tested: Tested
  request: TestRequest
}

type Plan = (program: string, group: PlannedGroup) => Promise<(Command & { paths?: string[] })[]>

const PLANS: Readonly<Record<RuntimeName, Plan>> = {
  node: planNode,
  python: planPython,
  php: planPhp,
  lua: planLua,
  go: planGo,
  rust: planRust,
}

/** A file that imports a runner is run by it; the others by vitest where the project has it installed. */
async function planNode(program: string, { paths, fn, cwd, tested, request }: PlannedGroup) {
  const vitest = orNull(() => createRequire(join(cwd, 'package.json')).resolve('vitest/package.json'))
  const isForNode = (path: string): boolean => vitest === null || /['"]node:test['"]/.test(tryRead(path) ?? '')
  const own = paths.filter(isForNode)
  const others = paths.filter(path => !own.includes(path))
  const commands: (Command & { paths: string[] })[] = []
  if (own.length > 0) {
    const report = reportOf(request, `node ${own}`)
    // TypeScript, and modules in a package of scripts, as the gateway loads them.
    const tsx = orNull(() => createRequire(import.meta.url).resolve('tsx'))
    const imports = [...(tsx === null ? [] : [tsx]), runtimeFile('node/test-hooks.mjs')]
    commands.push({
      ...{ runner: 'node:test', command: program, paths: own },
      args: [
        ...imports.flatMap(path => ['--import', pathToFileURL(path).href]),
        ...[runtimeFile('node/run-tests.mjs'), report, ...own],
      ],
      env: {
        FNGW_TEST_MODULE: fileURLToPath(FIXTURE),
        FNGW_TEST_PACKS: JSON.stringify(fn === null ? [] : tested.packs.dirsOf(fn)),
      },
      count: () => readCounts(report),
    })
  }
  if (vitest !== null && others.length > 0) {
    const report = reportOf(request, `vitest ${others}`)
    const project = dirname(dirname(dirname(vitest)))
    commands.push({
      ...{ runner: 'vitest', command: program, paths: others },
      args: [
        ...[join(dirname(vitest), 'vitest.mjs'), 'run', '--root', project],
        ...['--reporter=default', '--reporter=json', `--outputFile.json=${report}`, ...others],
      ],
      count: () => countVitest(tryRead(report)),
    })
  }
  return commands
}

/** pytest where the interpreter has it, else unittest: the runner asks. */
async function planPython(program: string, { paths, fn, cwd, tested, request }: PlannedGroup) {
  const report = reportOf(request, `python ${paths}`)
  const plan = {
    ...{ report, files: paths, dir: cwd, entry: fn?.entryPath ?? join(cwd, 'none.py') },
    packs: fn === null ? [] : tested.packs.dirsOf(fn),
  }
  return [
    {
      ...{ runner: (await hasPytest(program, cwd)) ? 'pytest' : 'unittest', command: program },
      args: [runtimeFile('python/testing/run_tests.py'), JSON.stringify(plan)],
      // The tree stays as it is.
      env: { PYTHONDONTWRITEBYTECODE: '1' },
      count: () => readCounts(report),
    },
  ]
}

function hasPytest(program: string, cwd: string): Promise<boolean> {
  const code =
    'import importlib.util, sys; sys.path.insert(0, ".deps"); sys.exit(importlib.util.find_spec("pytest") is None)'
  return new Promise(resolve => execFile(program, ['-c', code], { cwd }, error => resolve(error === null)))
}

async function planPhp(program: string, { paths, cwd, tested, request }: PlannedGroup) {
  const { settings, hostEnv } = tested
  const project = dirname(settings.functionsRoot)
  const runner = findPhpunit(cwd, project) ?? findOnPath('phpunit', hostEnv.PATH ?? '')
  if (runner === null)
    throw new MissingRunner(
      `phpunit is not installed: run "composer require --dev phpunit/phpunit" in ${project}, or install it on PATH (Debian: apt-get install phpunit)`,
    )
  const report = reportOf(request, `php ${paths}`)
  const config = `${report}.xml`
  const files = paths.map(path => `<file>${toXml(path)}</file>`).join('')
  const bootstrap = toXml(runtimeFile('php/testing/bootstrap.php'))
  const text = `<phpunit bootstrap="${bootstrap}"><testsuites><testsuite name="functions">${files}</testsuite></testsuites></phpunit>`
  writeFileSync(config, text)
  const args = [runner, '--configuration', config, '--do-not-cache-result', '--log-junit', report]
  return [{ runner: 'phpunit', command: program, args, count: () => countJunit(tryRead(report)) }]
}

/** The phpunit of the function, or of a folder above it up to the project's. */
function findPhpunit(folder: string, project: string): string | null {
  const path = join(folder, 'vendor', 'bin', 'phpunit')
  if (existsSync(path)) return path
  return folder === project || dirname(folder) === folder ? null : findPhpunit(dirname(folder), project)
}

/** The runner has the interpreter of the gateway. */
async function planLua(program: string, { paths: files, fn, cwd: dir, tested, request }: PlannedGroup) {
  const { functionsRoot: root, workerMemoryMb, defaultTimeoutMs } = tested.settings
  const report = reportOf(request, `lua ${files}`)
  const limits = { timeoutMs: fn?.policy.timeoutMs ?? defaultTimeoutMs, memoryMb: workerMemoryMb }
  // Values are not shown to other users of the machine, as arguments are.
  const plan = { report, root, dir, files, keys: Object.keys(fn?.env ?? NO_ENV), ...limits }
  const args = [runtimeFile('lua/run-tests.mjs'), JSON.stringify(plan)]
  return [{ runner: 'lua', command: program, args, count: () => readCounts(report) }]
}

async function planGo(program: string, { paths, fn, cwd, tested }: PlannedGroup) {
  const isModule = readOptional(join(cwd, 'go.mod')) !== null && fn.kind === 'function'
  const { folder, members } = new GoPackage(fn, tested.settings.functionsRoot)
  // Without a module the files are named: other handlers of the folder define the same names.
  const names = isModule
    ? [...new Set(paths.map(path => `./${relative(cwd, dirname(path))}`))]
    : [...members.map(({ name }) => join(folder, name)), ...paths]
  const args = ['test', '-json', '-count=1', ...names]
  const env = { GOWORK: 'off', CGO_ENABLED: tested.hostEnv.CGO_ENABLED === '1' ? '1' : '0' }
  return [{ runner: 'go test', command: program, args, env, count: countGo }]
}

async function planRust(program: string, { fn, tested }: PlannedGroup) {
  const build = new OwnFolder(tested.settings.functionsRoot, '.svc', 'build')
  const folder = build.below(`tests-${digestOf(fn.entryPath, 12)}`)
  folder.make()
  folder.write('Cargo.toml', toTestManifest(fn, runtimeFile('rust/worker')))
  const lock = readOptional(join(fn.fnDir, 'Cargo.lock'))
  if (lock !== null) folder.write('Cargo.lock', lock)
  // As the gateway builds it, so that crates are compiled once.
  const env = { ...new CargoHome(build, tested.hostEnv).prepare(), CARGO_PROFILE_RELEASE_PANIC: 'unwind' }
  const args = ['test', '--release', '--quiet', '--lib', '--manifest-path', folder.pathOf('Cargo.toml')]
  return [{ runner: 'cargo test', command: program, args, env, count: countCargo }]
}

function reportOf({ folder }: TestRequest, name: string): string {
  return join(folder, digestOf(name, 12))
}

function toXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}

// Reports of the runners.

function readCounts(report: string): TestCounts | null {
  return orNull(() => JSON.parse(readFileSync(report, 'utf8')) as TestCounts)
}

function countVitest(text: string | null): TestCounts | null {
  if (text === null) return null
  const { numPassedTests, numFailedTests, numPendingTests, numFailedTestSuites } = JSON.parse(text)
  // A file that does not load has no tests.
  const failed = Math.max(numFailedTests, numFailedTestSuites > 0 ? 1 : 0)
  return { passed: numPassedTests, failed, skipped: numPendingTests }
}

function countJunit(text: string | null): TestCounts | null {
  const suite = /<testsuite [^>]*>/.exec(text ?? '')?.[0]
  if (suite === undefined) return null
  const read = (name: string): number => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(suite)?.[1] ?? 0)
  const failed = read('errors') + read('failures') + read('warnings')
  return { passed: read('tests') - failed - read('skipped'), failed, skipped: read('skipped') }
}

/** @param output - lines of `go test -json` */
function countGo(output: string): TestCounts | null {
  const events = output.split('\n').flatMap(line => orNull(() => [JSON.parse(line)]) ?? [])
  if (events.length === 0) return null
  const counted = (action: string): number => events.filter(one => one.Action === action && one.Test).length
  const failed = counted('fail')
  // A package that does not compile fails without a test.
  const isBroken = failed === 0 && events.some(one => one.Action === 'fail')
  return { passed: counted('pass'), failed: isBroken ? 1 : failed, skipped: counted('skip') }
}

function countCargo(output: string): TestCounts | null {
  const [, passed, failed, skipped] =
    /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/m.exec(output) ?? []
  return passed === undefined ? null : { passed: Number(passed), failed: Number(failed), skipped: Number(skipped) }
}
