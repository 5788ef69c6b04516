/** `fngw test`: runs the tests beside handlers with the runner of their language, against a real gateway. Owner: page bin/test. */

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { orNull } from '../lib/core/errors.ts'
import { createGateway, type Gateway, type GatewayOptions } from '../lib/index.ts'
import { toWarningText } from './banner.ts'
import type { Output } from './output.ts'
import { createBuildStatus } from './status-line.ts'
import { followSignals } from './stop-signals.ts'

export interface TestFlags {
  json?: boolean
  watch?: boolean
}

/** Tests run as the user who starts them, and nothing of the tree runs beside them. */
const FOR_TESTS: GatewayOptions = {
  accessLog: false,
  logFiles: false,
  schedulerEnabled: false,
  jobsEnabled: false,
  isolation: 'process',
  isAlone: true,
}

type Planned = Awaited<ReturnType<Gateway['tests']>>[number]
type Run = Extract<Planned, { command: string }>

/** One run, as `--json` prints it. */
interface TestResult {
  runtime: string
  runner: string | null
  files: readonly string[]
  passed: number
  failed: number
  skipped: number
  /** Why the tests did not run; null when they did. */
  problem: string | null
}

/**
 * @param pattern - part of the paths of test files; null for all
 * @returns exit code: 0 every test passed, 1 some failed, 2 some or all could not run
 */
export async function runTests(
  options: GatewayOptions,
  pattern: string | null,
  flags: TestFlags,
  output: Output,
): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-test-'))
  const signals = followSignals(process.env)
  const abort = new AbortController()
  void signals.first.then(() => abort.abort())
  try {
    const gateway = await createGateway({ ...options, ...FOR_TESTS, hotReload: flags.watch === true })
    try {
      const status = createBuildStatus(output)
      if (status !== null) gateway.on('build', record => status.on(record))
      const { url } = await gateway.listen({ host: '127.0.0.1', port: 0 })
      showLog(gateway, output)
      const runOnce = () => runAll(gateway, { pattern, url, folder }, flags, output, abort.signal)
      return flags.watch === true ? await runOnChange(gateway, runOnce, output, abort.signal) : await runOnce()
    } finally {
      await gateway.close()
    }
  } finally {
    signals.forget()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Shows the output and errors of handlers beside those of the tests. */
function showLog(gateway: Gateway, output: Output): void {
  gateway.on('log', ({ level, message, fn }) => {
    if (level === 'debug' || (level === 'info' && fn === undefined)) return
    for (const line of message.split('\n'))
      output.note(output.style('dim', `[${output.clean(fn ?? 'gateway')}] ${output.clean(line)}`))
  })
}

/** Runs again after each change until the signal. */
async function runOnChange(
  gateway: Gateway,
  runOnce: () => Promise<number>,
  output: Output,
  signal: AbortSignal,
): Promise<number> {
  let code = 0
  let changed: (() => void) | null = null
  let isChanged = true
  const wake = (): void => {
    isChanged = true
    changed?.()
  }
  gateway.on('reload', wake)
  signal.addEventListener('abort', wake)
  while (!signal.aborted) {
    if (!isChanged) {
      output.note('waiting for changes; Ctrl+C ends')
      await new Promise<void>(resolve => {
        changed = resolve
      })
    }
    isChanged = false
    if (!signal.aborted) code = await runOnce()
  }
  return code
}

async function runAll(
  gateway: Gateway,
  request: Parameters<Gateway['tests']>[0],
  { json }: TestFlags,
  output: Output,
  signal: AbortSignal,
): Promise<number> {
  const planned = await gateway.tests(request)
  const results: TestResult[] = []
  for (const one of planned) {
    if (signal.aborted) break
    results.push('problem' in one ? toProblem(one) : await runOne(one, json === true, output, signal))
  }
  if (json === true) output.result(JSON.stringify(toSummary(results), null, 2))
  else if (!signal.aborted) showSummary(gateway, results, request.pattern, output)
  const has = (test: (result: TestResult) => boolean): boolean => results.some(test)
  if (signal.aborted) return 2
  if (has(({ failed }) => failed > 0)) return 1
  return results.length === 0 || has(({ problem }) => problem !== null) ? 2 : 0
}

function toProblem({ runtime, files, problem }: Exclude<Planned, Run>): TestResult {
  return { runtime, runner: null, files, passed: 0, failed: 0, skipped: 0, problem }
}

async function runOne(run: Run, isJson: boolean, output: Output, signal: AbortSignal): Promise<TestResult> {
  const { runtime, runner, files } = run
  output.note(output.style('bold', `${runtime} (${runner}): ${files.map(output.clean).join(', ')}`))
  const { code, text, problem } = await runProcess(run, isJson, output, signal)
  const counts = run.count(text)
  const result = { runtime, runner, files, ...(counts ?? { passed: 0, failed: 0, skipped: 0 }), problem }
  if (problem !== null) return result
  if (counts === null && code === 0) return { ...result, problem: `${runner} reported no tests` }
  // A runner that dies takes the rest of its tests along.
  if (code !== 0 && result.failed === 0) result.failed = 1
  if (code === 0 && result.passed + result.failed + result.skipped === 0)
    return { ...result, problem: 'there are no tests in these files' }
  return result
}

/** @returns what it printed on standard output, and why it could not be started */
function runProcess(
  { command, args, cwd, env, hide }: Run,
  isJson: boolean,
  output: Output,
  signal: AbortSignal,
): Promise<{ code: number | null; text: string; problem: string | null }> {
  return new Promise(resolve => {
    const colour =
      (isJson ? output.style : output.styleResult)('bold', '') === '' ? { NO_COLOR: '1' } : { FORCE_COLOR: '1' }
    // A separate process group: runners start a process for each file, and one signal ends them all.
    const stdio = ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe']
    const child = spawn(command, args, { cwd, env: { ...colour, ...env }, stdio, detached: true })
    const lines: string[] = []
    const show = (line: string): void => (isJson ? output.note(hide(line)) : output.result(hide(line)))
    createInterface({ input: child.stdout }).on('line', line => {
      lines.push(line)
      const shown = toShownLine(line)
      if (shown !== null) show(shown)
    })
    createInterface({ input: child.stderr }).on('line', line => output.note(hide(line)))
    const kill = (): void => {
      if (child.pid !== undefined) orNull(() => process.kill(-child.pid!, 'SIGKILL'))
    }
    signal.addEventListener('abort', kill)
    const end = (code: number | null, problem: string | null): void => {
      signal.removeEventListener('abort', kill)
      resolve({ code, text: lines.join('\n'), problem })
    }
    child.once('error', error => end(null, `cannot run ${command}: ${error.message}`))
    // Processes that a test left running would hold the pipes open.
    child.once('exit', kill)
    child.once('close', code => end(code, null))
  })
}

/** Of `go test -json` the text in it; a line of another runner as it is. */
function toShownLine(line: string): string | null {
  if (!line.startsWith('{"Time":') && !line.startsWith('{"ImportPath":')) return line
  const event = orNull(() => JSON.parse(line) as { Action: string; Output?: string })
  if (event === null) return line
  return event.Output === undefined ? null : event.Output.replace(/\n$/, '')
}

function toSummary(results: readonly TestResult[]) {
  const sum = (name: 'passed' | 'failed' | 'skipped') => results.reduce((total, result) => total + result[name], 0)
  return { passed: sum('passed'), failed: sum('failed'), skipped: sum('skipped'), runs: results }
}

function showSummary(gateway: Gateway, results: readonly TestResult[], pattern: string | null, output: Output): void {
  if (results.length === 0) {
    for (const warning of gateway.warnings.filter(({ code }) => code !== 'TEST_FILE'))
      output.note(toWarningText(warning, output))
    const { functionsRoot } = gateway.settings
    const which = pattern === null ? '' : ` whose path contains ${JSON.stringify(pattern)}`
    output.note(output.clean(`no tests in ${functionsRoot}${which}`))
    output.note(
      'tests are files such as hello.test.js, hello.test.py, hello.test.php and hello_test.go beside a handler',
    )
    return
  }
  output.result('')
  for (const { runtime, runner, files, problem, ...counts } of results) {
    const where = files.map(output.clean).join(', ')
    const text = problem === null ? toCounts(counts) : `not run: ${output.clean(problem)}`
    const [colour, mark] =
      problem !== null
        ? (['yellow', 'not run'] as const)
        : counts.failed > 0
          ? (['red', 'failed '] as const)
          : (['green', 'passed '] as const)
    output.result(`${output.styleResult(colour, mark)}  ${runner ?? runtime}  ${where}: ${text}`)
  }
  output.result(toCounts(toSummary(results)))
}

function toCounts({ passed, failed, skipped }: Pick<TestResult, 'passed' | 'failed' | 'skipped'>): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`
}
