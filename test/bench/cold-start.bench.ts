/**
 * First call of a function that never ran, its daemon being warm, in a tree of few and of many functions; and what a
 * function costs in memory before it was called, and while its worker idles. Linux only (/proc).
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { median, RawClient, untilBuilt, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const PROGRAM = fileURLToPath(new URL('../../dist/bin/fngw.js', import.meta.url))

interface Language {
  name: string
  /** As `FN_RUNTIMES` calls it; absent where that is its name. */
  runtime?: string
  /** How to see whether it can run here. */
  probe: string[]
  /** A process of the language that does nothing: what a first call would cost at least without a daemon. */
  fresh?: string[]
  file: string
  text: string
  goalMs: number
  /** Of the first call as the client sees it; null for none. */
  clientGoalMs: number | null
  /** Functions called once and left idle, to weigh their workers: each is a process, or a thread in lua. */
  idle: number
  /** Built once and copied: a build for each function is not what is measured. */
  compiled?: true
}

const LANGUAGES: Language[] = [
  {
    name: 'node',
    probe: ['node', '--version'],
    fresh: ['node', '--eval', '0'],
    file: 'handler.js',
    text: "export const handler = () => ({ message: 'hello' })\n",
    goalMs: 5,
    clientGoalMs: null,
    idle: 20,
  },
  {
    name: 'ts',
    runtime: 'node',
    probe: ['node', '--version'],
    file: 'handler.ts',
    text: "export const handler = (): { message: string } => ({ message: 'hello' })\n",
    goalMs: 8,
    clientGoalMs: 8,
    idle: 20,
  },
  {
    name: 'python',
    probe: ['python3', '--version'],
    fresh: ['python3', '-c', '0'],
    file: 'handler.py',
    text: 'def handler(event):\n    return {"message": "hello"}\n',
    goalMs: 10,
    clientGoalMs: 5,
    idle: 100,
  },
  {
    name: 'php',
    probe: ['php', '--version'],
    fresh: ['php', '-r', '0;'],
    file: 'handler.php',
    text: "<?php\nfunction handler($event) { return ['message' => 'hello']; }\n",
    goalMs: 5,
    clientGoalMs: null,
    idle: 100,
  },
  {
    name: 'lua',
    probe: ['node', '--version'],
    file: 'handler.lua',
    text: 'function handler(event) return { message = "hello" } end\n',
    goalMs: 3,
    clientGoalMs: 2,
    idle: 20,
  },
  {
    name: 'go',
    probe: ['go', 'version'],
    file: 'handler.go',
    text: 'package hello\n\nfunc handler(event map[string]any) any {\n\treturn map[string]any{"status": 200, "body": "hello"}\n}\n',
    goalMs: 10,
    clientGoalMs: 5,
    idle: 20,
    compiled: true,
  },
  {
    name: 'rust',
    probe: ['cargo', '-V'],
    file: 'handler.rs',
    text: 'use serde_json::{json, Value};\n\npub fn handler(_event: Value) -> Value {\n    json!({ "status": 200, "body": "hello" })\n}\n',
    goalMs: 10,
    clientGoalMs: 5,
    idle: 20,
    compiled: true,
  },
]

const ACCESS_LOG = '.svc/logs/access.log'
const SIZES = [1, 200]
/** Functions of the tree that weighs those never called. */
const MANY = 2000
const FIRST_CALLS = 8
/** Milliseconds between first calls, in which a daemon prepares its next spare worker, as between those of real traffic. */
const PAUSE_MS = 300

export async function run(): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const language of LANGUAGES) {
    const [program, ...args] = language.probe
    if (spawnSync(program!, args).status !== 0) continue
    for (const size of SIZES) rows.push(...(await firstCalls(language, size)))
    rows.push(await idleWorkers(language))
  }
  rows.push(await neverCalled())
  return rows
}

/**
 * As the gateway's access log has it, which is what the function costs; and as a client sees it, who after a pause waits
 * for its own and the gateway's awakening too, as with any call after a pause.
 */
async function firstCalls(language: Language, size: number): Promise<BenchRow[]> {
  const times = { first: [] as number[], logged: [] as number[], warm: [] as number[] }
  // One function can be called first once: a new gateway for each.
  while (times.first.length < FIRST_CALLS) {
    const count = Math.min(size, FIRST_CALLS - times.first.length)
    const log = await withGateway(language, size, async ({ url }) => {
      // Over one plain connection: what an HTTP client does for a request after a pause would count as much as the call.
      const client = await RawClient.connect(url)
      const timed = async (path: string): Promise<number> => {
        await pause()
        const from = performance.now()
        const status = await client.get(path)
        if (status !== 200) throw new Error(`${path} of ${language.name}: ${status}`)
        return performance.now() - from
      }
      for (let i = 0; i < count; i++) {
        times.first.push(await timed(`/f-${i}`))
        times.warm.push(await timed('/warm'))
      }
      client.close()
    })
    for (let i = 0; i < count; i++)
      times.logged.push(Number(new RegExp(`"/f-${i}".*"dur_ms":([\\d.]+)`).exec(log)?.[1]))
  }
  const { name, goalMs } = language
  const functions = `${size} function${size === 1 ? '' : 's'}`
  const row = (text: string, list: number[], goal: number | null): BenchRow => {
    const value = median(list)
    const verdict = goal === null ? {} : { goal: `<= ${goal}`, ok: value <= goal }
    return { name: text, value, unit: 'ms', ...verdict }
  }
  const rows = [
    row(`first call ${name}, ${functions}, in the gateway, median of ${FIRST_CALLS}`, times.logged, goalMs),
    row('  as the client sees it after a pause', times.first, language.clientGoalMs),
    row('  a warm call, as the client sees it after a pause', times.warm, null),
  ]
  if (language.fresh !== undefined) {
    const value = median(times.logged) / freshProcessMs(language.fresh)
    rows.push({ name: `  in the gateway, to a fresh ${language.fresh[0]} process`, value, unit: 'ratio' })
  }
  return rows
}

/** Median of as many starts of a process. */
function freshProcessMs([program, ...args]: string[]): number {
  const times = Array.from({ length: FIRST_CALLS }, () => {
    const from = performance.now()
    spawnSync(program!, args)
    return performance.now() - from
  })
  return median(times)
}

async function idleWorkers(language: Language): Promise<BenchRow> {
  let perWorker = 0
  await withGateway(language, language.idle, async ({ url, pid }) => {
    await pause()
    const before = memoryMb(pid)
    for (let i = 0; i < language.idle; i++) await (await fetch(`${url}/f-${i}`)).text()
    await pause()
    perWorker = (memoryMb(pid) - before) / language.idle
  })
  return {
    name: `idle worker ${language.name}, gateway and processes, of ${language.idle}`,
    value: perWorker,
    unit: 'MB',
  }
}

async function neverCalled(): Promise<BenchRow> {
  const sizes: number[] = []
  const language = LANGUAGES[0]!
  for (const size of [1, MANY]) {
    await withGateway(language, size, async ({ pid }) => {
      await pause()
      sizes.push(usageOf(pid).ownRssMb)
    })
  }
  const value = (((sizes[1] ?? 0) - (sizes[0] ?? 0)) * 1000) / MANY
  return { name: `function never called, of ${MANY}`, value, unit: 'KB', goal: 'no process' }
}

interface Running {
  url: string
  pid: number
}

/**
 * A gateway with `size` functions that were never called, and one more that was: its daemon is warm.
 * @returns its access log
 */
async function withGateway(
  language: Language,
  size: number,
  use: (running: Running) => Promise<void>,
): Promise<string> {
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  try {
    write(root, 'warm', language)
    if (language.compiled) {
      await withProgram(root, language, async ({ url }) => untilBuilt(`${url}/warm`))
      for (let i = 0; i < size; i++) cpSync(join(root, 'warm'), join(root, `f-${i}`), { recursive: true })
    } else {
      for (let i = 0; i < size; i++) write(root, `f-${i}`, language)
    }
    await withProgram(root, language, async running => {
      await untilBuilt(`${running.url}/warm`)
      await use(running)
    })
    return readFileSync(join(root, ACCESS_LOG), 'utf8')
  } finally {
    rmSync(root, { recursive: true, force: true })
  }
}

async function withProgram(
  root: string,
  { name, runtime }: Language,
  use: (running: Running) => Promise<void>,
): Promise<void> {
  const args = [PROGRAM, 'run', root, '--native', '--port', '0', '--json', '--log-files']
  const child = spawn(process.execPath, args, {
    env: { ...process.env, FN_RUNTIMES: runtime ?? name },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = new Promise(resolve => child.once('exit', resolve))
  try {
    await use({ url: await readUrl(child), pid: child.pid! })
  } finally {
    child.kill('SIGTERM')
    await ended
  }
}

async function readUrl(child: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: child.stdout! })) {
    const url = /"url":"(http:[^"]+)"/.exec(line)?.[1]
    if (url === undefined) continue
    child.stdout!.resume()
    return url
  }
  throw new Error('the gateway ended before it was ready')
}

function write(root: string, folder: string, { file, text }: Language): void {
  mkdirSync(join(root, folder))
  writeFileSync(join(root, folder, file), text)
}

const pause = (): Promise<unknown> => new Promise(done => setTimeout(done, PAUSE_MS))

/** Memory of a process and its descendants, each page counted once: forked workers share most of theirs. */
function memoryMb(pid: number): number {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc')) {
    const stat = /^\d+$/.test(name) ? readOrEmpty(`/proc/${name}/stat`) : ''
    if (stat !== '') parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 4).split(' ')[0]))
  }
  const isFamily = (child: number | undefined): boolean =>
    child !== undefined && (child === pid || isFamily(parents.get(child)))
  let kilobytes = 0
  for (const child of parents.keys()) {
    if (isFamily(child))
      kilobytes += Number(/^Pss:\s+(\d+)/m.exec(readOrEmpty(`/proc/${child}/smaps_rollup`))?.[1] ?? 0)
  }
  return kilobytes / 1024
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
