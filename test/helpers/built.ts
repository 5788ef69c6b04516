/** The product as it is installed, running in a temporary folder of its own. */

import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { compileProduct } from './product.mjs'

export interface Product {
  /** Full path of the program. */
  program: string
  cleanup: () => void
}

/** What test/run.mjs compiled for all files, or a build of its own. @throws Error with the compiler's words */
export function buildProduct(): Product {
  const program = process.env.FNGW_TEST_PROGRAM
  return program === undefined ? compileProduct() : { program, cleanup: () => {} }
}

export interface RunningProduct {
  child: ChildProcess
  pid: number
  url: string
  port: number
  /** Its own temporary folder: sockets lie there, and every process of it carries the name in its environment. */
  temp: string
  stdout: () => string
  stderr: () => string
  /** Exit code and signal. */
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null; ms: number }>
  signal: (signal: NodeJS.Signals) => void
  /** Processes that carry this gateway's temporary folder in their environment, the gateway among them. */
  processes: () => number[]
  /** Resolves when none is left, or after the limit, with those that are. */
  leftovers: (limitMs?: number) => Promise<number[]>
}

export interface StartOptions {
  args?: string[]
  env?: Record<string, string>
  /** Program and arguments that run the gateway, such as `['prlimit', '--nofile=64']`. */
  wrapper?: string[]
  stdio?: StdioOptions
  /** Resolves at once instead of at the readiness line. */
  unready?: boolean
  temp?: string
  detached?: boolean
}

/** Starts `fngw dev <root> --port 0` of the compiled product in a temporary folder of its own. */
export async function startProduct(
  product: Product,
  root: string,
  options: StartOptions = {},
): Promise<RunningProduct> {
  const temp = options.temp ?? realpathSync(mkdtempSync(join(tmpdir(), 'fngw-run-')))
  const words = [
    ...(options.wrapper ?? []),
    process.execPath,
    product.program,
    'dev',
    root,
    '--native',
    '--port',
    '0',
    ...(options.args ?? []),
  ]
  const child = spawn(words[0]!, words.slice(1), {
    cwd: root,
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      TMPDIR: temp,
      NO_COLOR: '1',
      FN_ACCESS_LOG: '0',
      ...options.env,
    },
    stdio: options.stdio ?? ['ignore', 'pipe', 'pipe'],
    detached: options.detached ?? false,
  })
  let out = ''
  let err = ''
  let onReady: (url: string) => void = () => {}
  const ready = new Promise<string>(resolve => {
    onReady = resolve
  })
  child.stdout?.on('data', chunk => {
    out += chunk
    const match = /^(?:ready |\{"event":"ready".*"url":")([^\s"]+)/m.exec(out)
    if (match !== null) onReady(match[1]!)
  })
  child.stderr?.on('data', chunk => {
    err += chunk
  })
  const startedAt = performance.now()
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null; ms: number }>(resolve => {
    child.once('exit', (code, signal) => resolve({ code, signal, ms: performance.now() - startedAt }))
  })
  const url = options.unready
    ? ''
    : await Promise.race([
        ready,
        ended.then(({ code, signal }) => {
          throw new Error(`fngw ended with ${code ?? signal} before it was ready\n${out}${err}`)
        }),
      ])
  const processes = () => processesWith(`TMPDIR=${temp}`)
  return {
    child,
    pid: child.pid ?? 0,
    url,
    port: url === '' ? 0 : Number(new URL(url).port),
    temp,
    stdout: () => out,
    stderr: () => err,
    ended,
    signal: signal => void child.kill(signal),
    processes,
    leftovers: async (limitMs = 3000) => {
      const limit = performance.now() + limitMs
      let left = processes()
      while (left.length > 0 && performance.now() < limit) {
        await new Promise(resolve => setTimeout(resolve, 20))
        left = processes()
      }
      return left
    },
  }
}

/** Ids of processes with this variable in their environment. Linux only (/proc). */
export function processesWith(variable: string): number[] {
  const found: number[] = []
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      if (readFileSync(`/proc/${name}/environ`, 'latin1').split('\0').includes(variable)) found.push(Number(name))
    } catch {
      // It ended meanwhile.
    }
  }
  return found
}

/** What a process ended by itself leaves of a running product is ended here; for teardowns. */
export async function endProduct(running: RunningProduct): Promise<void> {
  running.child.kill('SIGKILL')
  for (const pid of running.processes()) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // Already gone.
    }
  }
  await running.leftovers(2000)
  rmSync(running.temp, { recursive: true, force: true })
}
