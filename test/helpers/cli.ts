import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

/** What lets Node run the sources: the loader of test/run.mjs when it has them compiled, or tsx. */
export const FROM_SOURCES: readonly string[] = [
  '--import',
  process.execArgv.find(word => word.includes('tap-loader.mjs?compiled=')) ?? import.meta.resolve('tsx'),
]

/** Command line that starts `fngw`: what test/run.mjs compiled for all files, or the sources. */
export const FNGW: readonly [program: string, ...args: string[]] =
  process.env.FNGW_TEST_PROGRAM !== undefined
    ? [process.execPath, process.env.FNGW_TEST_PROGRAM]
    : [process.execPath, ...FROM_SOURCES, fileURLToPath(new URL('../../bin/fngw.ts', import.meta.url))]

export interface CliOptions {
  cwd: string
  env?: Record<string, string>
  /** Command line that starts the program, such as `setpriv`. */
  prefix?: readonly string[]
}

export function toEnv(extra: Record<string, string> = {}): Record<string, string | undefined> {
  const env: Record<string, string | undefined> = { ...extra }
  for (const [name, value] of Object.entries(process.env)) {
    if (!/^(FN_|FNGW_|TAP|PORT$|NODE_OPTIONS$|FORCE_COLOR$|NO_COLOR$)/.test(name)) env[name] ??= value
  }
  return env
}

/** Runs `fngw` to its end. */
export function runCli(
  args: string[],
  { cwd, env }: CliOptions,
): { status: number | null; stdout: string; stderr: string } {
  const [program, ...words] = FNGW
  return spawnSync(program, [...words, ...args], { cwd, env: toEnv(env), encoding: 'utf8' })
}

export interface RunningCli {
  child: ChildProcess
  url: string
  /** Everything printed so far. */
  stdout: () => string
  stderr: () => string
  /** Resolves with the next line of standard output that matches. */
  line: (pattern: RegExp) => Promise<string>
  /** Exit code and signal. */
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
}

/** Starts `fngw dev`, `run` or `daemon` and resolves at its readiness line. */
export async function startCli(args: string[], { cwd, env, prefix = [] }: CliOptions): Promise<RunningCli> {
  const [command, ...rest] = [...prefix, ...FNGW, ...args]
  const child = spawn(command!, rest, {
    cwd,
    env: toEnv(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let out = ''
  let err = ''
  const waiting = new Set<{ pattern: RegExp; resolve: (line: string) => void }>()
  createInterface({ input: child.stdout! }).on('line', line => {
    out += `${line}\n`
    for (const one of waiting) {
      if (!one.pattern.test(line)) continue
      waiting.delete(one)
      one.resolve(line)
    }
  })
  child.stderr!.on('data', chunk => {
    err += String(chunk)
  })
  const line = (pattern: RegExp): Promise<string> => new Promise(resolve => waiting.add({ pattern, resolve }))
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>(resolve => {
    child.once('close', (code, signal) => resolve({ code, signal }))
  })
  const ready = await Promise.race([line(/^ready |"event":"ready"/), ended.then(() => null)])
  if (ready === null) throw new Error(`fngw ${args.join(' ')} ended before it was ready\n${out}${err}`)
  const url = /(?:http|tcp|tls):\/\/[^"\s]+/.exec(ready)![0]
  return { child, url, stdout: () => out, stderr: () => err, line, ended }
}
