// Runs the test files and ends with one plain line: `N passed, N failed`. In CI (the variable CI is set) a module whose own test runs too little of it fails too.
// Usage: node test/run.mjs [--coverage] [file ...]   JOBS=n sets how many files run at once besides one that waits, FILE_TIMEOUT_S how long one may take.
//   --coverage  only tests named for a module; shows for every module which lines did not run
//
// A tap test is a program. Each file is one process of its own, started plainly: tap's own runner puts its loader into
// every process that a test starts, and these tests start the product's processes and look at their environment.
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, homedir, tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { countsProcesses, joinCoverage, namesakeOf, readCoverage, toCoverageReport } from './helpers/coverage.mjs'
import { compileSources } from './helpers/compiled-sources.mjs'
import { ASK_SIGNAL } from './helpers/open-handles.mjs'
import { compileProduct } from './helpers/product.mjs'
import { bundleTap } from './helpers/tap-bundle.mjs'
import { otherVersionRuns } from './node-versions.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const COMPILED_FROM_FILES = 10
/** Milliseconds a late file has to tell what keeps it. */
const ANSWER_MS = 2000
const FILE_TIMEOUT_MS = Number(process.env.FILE_TIMEOUT_S ?? 300) * 1000

if (!existsSync(`${root}/node_modules/tap`)) {
  process.stderr.write('node_modules is missing or incomplete: run `npm ci` first\n')
  process.exit(1)
}

const isCoverage = process.argv.includes('--coverage')
const named = process.argv.slice(2).filter(word => word !== '--coverage')
const isWhole = named.length === 0 && process.env.CI !== undefined
// It costs the files that start the product a third more processor time.
const takesCoverage = isCoverage || isWhole
const all = readdirSync(`${root}/test`, { recursive: true })
  .map(String)
  .filter(file => file.endsWith('.test.ts') && !file.includes('fixtures'))
  .map(file => `test/${file}`)
  .sort()
const chosen =
  named.length > 0 ? named.flatMap(word => all.filter(file => file === word || file.startsWith(word))) : all
const files = isCoverage ? chosen.filter(file => namesakeOf(root, file) !== null) : chosen
if (files.length === 0) process.stderr.write(`no test file is named ${named.join(', ')}\n`)

/**
 * Files of 8 s and more. They come first, so that at the end no job waits for another's long file. Those that build with cargo are
 * apart from each other: they share a folder, and cargo lets one in at a time.
 */
const LONGEST = [
  'test/runtimes/conformance.test.ts',
  'test/runtime/lua-runtime.test.ts',
  'test/console/function.test.ts',
  'test/e2e/isolation.test.ts',
  'test/e2e/fuzz.test.ts',
  'test/package.test.ts',
  'test/dependencies/rust.test.ts',
  'test/e2e/detached.test.ts',
  'test/docs.test.ts',
  'test/docs-servers.test.ts',
  'test/e2e/attack.test.ts',
  'test/e2e/policy.test.ts',
  'test/e2e/hostile-daemon.test.ts',
  'test/e2e/kill-fleet.test.ts',
  'test/e2e/kill-installs.test.ts',
  'test/e2e/stand-in.test.ts',
  'test/processes/processes.test.ts',
  'test/e2e/isolation-builds.test.ts',
  'test/dependencies/node.node-set.test.ts',
  'test/remote/remote-daemon.test.ts',
  'test/runtimes/node.test.ts',
  'test/runtime/function-users.quotas.test.ts',
  'test/gateway/gateway.test.ts',
  'test/dependencies/python.dependencies.test.ts',
  'test/dependencies/node.dependencies.test.ts',
  'test/fleet/fleet-jobs.test.ts',
  'test/runtime/daemon.test.ts',
  'test/e2e/cut-cable.test.ts',
  'test/runtimes/rust.test.ts',
  'test/http/server.test.ts',
  'test/e2e/many-functions.test.ts',
  'test/console/console.test.ts',
  'test/bin/container-mode.test.ts',
  'test/bin/production.test.ts',
  'test/bin/conformance-command.test.ts',
  'test/runtimes/python.test.ts',
  'test/e2e/streaming.test.ts',
  'test/dependencies/python.python-set.test.ts',
  'test/jobs/jobs.job-table.test.ts',
  'test/scheduler/scheduler.schedules.test.ts',
  'test/bin/dev.test.ts',
  'test/runtimes/go.test.ts',
  'test/console/functions.test.ts',
  'test/processes/acceptor.test.ts',
  'test/e2e/kill-schedules.test.ts',
]
/** Files that use less than half of a processor, because they mostly wait: one of them runs beside the others. */
const WAITING = [
  'test/e2e/cut-cable.test.ts',
  'test/http/server.test.ts',
  'test/runtime/daemon.test.ts',
  'test/runtime/function-users.quotas.test.ts',
  'test/scheduler/scheduler.schedules.test.ts',
  'test/fleet/fleet-jobs.test.ts',
  'test/e2e/kill-schedules.test.ts',
]
const rankOf = ({ file, beside = [] }) =>
  Math.min(...[file, ...beside].map(one => (LONGEST.includes(one) ? LONGEST.indexOf(one) : LONGEST.length)))

/** Runs one file, or several of a module, in a process group of its own, so that whatever it leaves behind ends with it. */
function run({ file, beside = [], program = process.execPath, version = null, env = {} }) {
  return new Promise(resolve => {
    const startedAt = performance.now()
    // Coverage is counted once.
    const module = takesCoverage && version === null ? namesakeOf(root, file) : null
    const folder = module === null ? null : mkdtempSync(join(tmpdir(), 'fngw-coverage-'))
    const isInside = folder !== null && !countsProcesses(file)
    const hook = isInside ? ['--import', './test/helpers/coverage-hook.mjs'] : []
    const child = spawn(program, [...hook, '--import', loader.href, toEntry([file, ...beside])], {
      cwd: root,
      detached: true,
      // tap's own limit is 30 s a file, too short for one that builds Rust on a busy machine.
      // Each root would fetch its crates again: these tests have hundreds of roots. Go's own cache may hold gigabytes of other programs, and
      // tests of isolation copy it.
      env: {
        CARGO_HOME: join(homedir(), '.cargo'),
        GOCACHE: join(homedir(), '.cache/fngw-test-go'),
        ...process.env,
        // Tests look for what gateways leave in the temporary folder.
        XDG_RUNTIME_DIR: undefined,
        ...env,
        ...(tap.file !== null && { FNGW_TEST_TAP: tap.file }),
        ...(product !== null && { FNGW_TEST_PROGRAM: product.program }),
        TAP_TIMEOUT: String(FILE_TIMEOUT_MS / 1000),
        ...(folder !== null && { NODE_V8_COVERAGE: folder }),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const end = () => {
      try {
        process.kill(-child.pid, 'SIGKILL')
      } catch {
        // Nothing is left of the group.
      }
    }
    let text = ''
    const take = chunk => {
      text += chunk
    }
    child.stdout.on('data', take)
    child.stderr.on('data', take)
    let isLate = false
    let timer = setTimeout(() => {
      isLate = true
      child.kill(ASK_SIGNAL)
      timer = setTimeout(end, ANSWER_MS)
    }, FILE_TIMEOUT_MS)
    child.once('exit', () => end())
    child.once('close', code => {
      clearTimeout(timer)
      const seconds = (performance.now() - startedAt) / 1000
      const lines = folder === null ? null : readCoverage(root, folder, module)
      if (folder !== null) rmSync(folder, { recursive: true, force: true })
      resolve({
        file: toTitle(file, beside, version),
        module,
        lines,
        text,
        code,
        isLate,
        seconds,
      })
    })
  })
}

function toTitle(file, beside, version) {
  if (version !== null) return `${file} (node ${version})`
  return beside.length === 0 ? file : `${file} and ${beside.map(name => basename(name, '.test.ts')).join(', ')}`
}

/** What Node is to run: a file that imports several when there are more than one. */
function toEntry(files) {
  const [file] = files
  if (sources === null || READS_SOURCES.test(readFileSync(join(root, file), 'utf8'))) return file
  const compiled = files.map(file => join(sources.folder, file.replace(/ts$/, 'js')))
  if (files.length === 1) return compiled[0]
  const entry = compiled[0].replace(/js$/, 'all.js')
  writeFileSync(entry, compiled.map(path => `import ${JSON.stringify(path)}\n`).join(''))
  return entry
}

/** Scripts of the build import modules of the product: they need the loader. */
const READS_SOURCES = /from '\.\.\/build\//

/** Processes that tests of pages share: each starts a browser. */
const PAGE_PROCESSES = 3

/**
 * Tests of one module share a process: each costs 0.2 s. So do those of the console. Other tests that set a time limit are long, or set up
 * what they are alone with.
 */
function toRuns(files) {
  const byKey = new Map()
  const runs = []
  let pages = 0
  for (const file of files) {
    const text = readFileSync(join(root, file), 'utf8')
    const isOfConsole = file.startsWith('test/console/')
    const isPage = isOfConsole && text.includes('/console-bed.ts')
    const isLong = !isPage && /^t\.setTimeout/m.test(text)
    const group = isPage ? `pages ${pages++ % PAGE_PROCESSES}` : isOfConsole ? 'console' : namesakeOf(root, file)
    const key = sources === null || isLong || group === null ? file : group
    const first = byKey.get(key)
    if (first === undefined) {
      const run = { file, beside: [] }
      runs.push(run)
      byKey.set(key, run)
    } else first.beside.push(file)
  }
  return runs
}

/** A test that is left out and does not say why. */
const UNEXPLAINED_SKIP = /^\s*ok .*# SKIP\s*$/gm

/** A file that is left out as a whole, with its reason. */
const SKIPPED_FILE = /^1\.\.0 (# .+)$/m

/** Totals of a file; one that says nothing, or ends badly with all points passed, counts as one failure; so does each test that is left out without a reason. */
function toTotals({ text, code, isLate }) {
  const line = [...text.matchAll(/^# \{ (total: .*) \}$/gm)].at(-1)?.[1]
  const totals = Object.fromEntries((line ?? '').split(', ').map(part => part.split(': ')))
  const passed = Number(totals.pass ?? 0)
  const failed = Number(totals.fail ?? 0)
  const isBad = line === undefined || isLate || (code !== 0 && failed === 0)
  const unexplained = [...text.matchAll(UNEXPLAINED_SKIP)].length
  const skipped = Number(totals.skip ?? 0) + (SKIPPED_FILE.test(text) ? 1 : 0)
  return { passed, failed: (isBad ? failed + 1 : failed) + unexplained, skipped }
}

/** The points that failed with their diagnostics, or the end of the output when there are none. */
function toReport({ text, isLate }) {
  const lines = text.split('\n')
  const kept = lines.filter((_, i) => lines.slice(Math.max(0, i - 40), i + 1).some(line => /^\s*not ok /.test(line)))
  kept.push(...Array.from(text.matchAll(UNEXPLAINED_SKIP), ([line]) => `left out without a reason: ${line.trim()}`))
  const late = isLate ? [`did not end within ${FILE_TIMEOUT_MS / 1000} s`] : []
  const open = isLate
    ? lines.slice(
        Math.max(
          0,
          lines.findLastIndex(line => line.startsWith('what is open: ')),
        ),
      )
    : []
  return [...late, ...open, ...(kept.length > 0 ? kept : lines.slice(-40))].join('\n')
}

// A few files start the program from its sources, which is sooner than compiling it.
const product = files.length > COMPILED_FROM_FILES ? compileProduct() : null
const tap = await bundleTap(root)
const sources = files.length > COMPILED_FROM_FILES ? await compileSources(tap.file) : null
const loader = pathToFileURL(join(root, 'test/helpers/tap-loader.mjs'))
if (sources !== null) loader.searchParams.set('compiled', sources.folder)
if (tap.note !== null) process.stdout.write(`${tap.note}\n`)
const sum = { passed: 0, failed: 0, skipped: 0 }
/** Modules with what of them their own tests ran. */
const covered = new Map()
const again = named.length > 0 || isCoverage ? { runs: [], note: null } : await otherVersionRuns(root)
if (again.note !== null) process.stdout.write(`${again.note}\n`)
const queue = [...toRuns(files), ...again.runs].sort((a, b) => rankOf(a) - rankOf(b))
const isWaiting = ({ file, beside = [] }) => [file, ...beside].some(one => WAITING.includes(one))
const waiting = queue.filter(isWaiting)
const others = queue.filter(run => !isWaiting(run))
const takeWaiting = () => waiting.shift()
const takeAny = () => others.shift() ?? waiting.shift()
const work = async take => {
  for (let next = take(); next !== undefined; next = take()) {
    const outcome = await run(next)
    const { file } = outcome
    const totals = toTotals(outcome)
    // What failed half-way says nothing about coverage.
    if (outcome.module !== null && totals.failed === 0)
      covered.set(outcome.module, joinCoverage(covered.get(outcome.module), outcome.lines))
    for (const key of Object.keys(sum)) sum[key] += totals[key]
    const state = totals.failed === 0 ? 'ok' : 'not ok'
    process.stdout.write(
      `${state} ${file} ${totals.passed}/${totals.passed + totals.failed} ${outcome.seconds.toFixed(1)}s\n`,
    )
    for (const [, reason] of outcome.text.matchAll(/^\s*ok .*(# SKIP.*)$/gm)) process.stdout.write(`  ${reason}\n`)
    const [, reason] = SKIPPED_FILE.exec(outcome.text) ?? []
    if (reason !== undefined) process.stdout.write(`  ${reason.replace('#', '# SKIP')}\n`)
    if (totals.failed > 0) process.stdout.write(`${toReport(outcome)}\n`)
  }
}
// More than there are processors would make limits of time in tests depend on the machine.
const jobs = Number(process.env.JOBS) || Math.min(4, availableParallelism())
await Promise.all([...Array.from({ length: jobs }, () => work(takeAny)), work(takeWaiting)])
product?.cleanup()
sources?.cleanup()
const { text: coverageText, isLow } = toCoverageReport(covered, { isLong: isCoverage, isWhole })
process.stdout.write(coverageText)
process.stdout.write(`${sum.passed} passed, ${sum.failed} failed${sum.skipped > 0 ? `, ${sum.skipped} skipped` : ''}\n`)
process.exit(sum.failed === 0 && sum.passed > 0 && !isLow ? 0 : 1)
