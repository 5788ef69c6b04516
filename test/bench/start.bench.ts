/**
 * From the start of the program to its readiness line, with one function and with ten thousand, beside bare node:http in the same run; and with ten
 * thousand a save, a reload of what did not change, and memory.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { QuietRounds } from './foreign.ts'
import { median, READY } from './load.ts'
import type { BenchRow } from './rows.ts'

const PROGRAM = fileURLToPath(new URL('../../dist/bin/fngw.js', import.meta.url))
const BARE = fileURLToPath(new URL('./bare-server.mjs', import.meta.url))
const MANY = 10_000
const STARTS = 7
const CHANGES = 7
/** Milliseconds in which a program that is ready finishes what it does in the background. */
const REST_MS = 3000
/** Milliseconds until the engine has given back what the start left. */
const LATER_MS = 20_000

interface Running {
  child: ChildProcess
  url: string
  readyMs: number
}

async function start(args: string[], ready: RegExp): Promise<Running> {
  const from = performance.now()
  const child = spawn(process.execPath, args, {
    env: { ...process.env, FN_RUNTIMES: 'node' },
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  for await (const line of createInterface({ input: child.stdout! })) {
    const url = ready.exec(line)?.[1]
    if (url === undefined) continue
    const readyMs = performance.now() - from
    child.stdout!.resume()
    return { child, url, readyMs }
  }
  throw new Error(`${args.join(' ')} ended before it was ready`)
}

async function stop({ child }: Running): Promise<void> {
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
}

const startProgram = (command: 'run' | 'dev', root: string): Promise<Running> =>
  start([PROGRAM, command, root, '--native', '--port', '0', '--no-access-log'], READY)

function write(root: string, file: string, text: string): void {
  mkdirSync(dirname(join(root, file)), { recursive: true })
  writeFileSync(join(root, file), `export const handler = () => ({ message: '${text}' })\n`)
}

function memoryKb({ child }: Running): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1])
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const from = performance.now()
  await act()
  return performance.now() - from
}

const rest = (ms: number): Promise<unknown> => new Promise(done => setTimeout(done, ms))

/** KB a function that a program has more with many than with one: when it has finished its start, and later. */
async function memoryAFunction(command: 'run' | 'dev', few: string, many: string): Promise<[number, number]> {
  const running = [await startProgram(command, few), await startProgram(command, many)]
  const readAfter = async (ms: number): Promise<number> => {
    await rest(ms)
    const [one, all] = running.map(memoryKb)
    return (all! - one!) / MANY
  }
  const read: [number, number] = [await readAfter(REST_MS), await readAfter(LATER_MS - REST_MS)]
  await Promise.all(running.map(stop))
  return read
}

/** Until the answer has the text that was saved. */
async function untilAnswered(url: string, text: string): Promise<void> {
  while (!(await (await fetch(url)).text()).includes(text)) await rest(1)
}

const row = (name: string, value: number, unit: string, most: number): BenchRow => ({
  name,
  value,
  unit,
  goal: `<= ${most}`,
  ok: value <= most,
})

export async function run(): Promise<BenchRow[]> {
  const few = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  const many = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  const quiet = new QuietRounds()
  const times = {
    bare: [] as number[],
    one: [] as number[],
    many: [] as number[],
    save: [] as number[],
    reload: [] as number[],
  }
  const memory: BenchRow[] = []
  try {
    write(few, 'hello.js', 'hello')
    for (let i = 0; i < MANY; i++) write(many, `group-${i % 100}/fn-${i}/handler.js`, 'hello')
    const measured = async (list: number[], begin: () => Promise<Running>) => {
      await quiet.run(async () => {
        const running = await begin()
        list.push(running.readyMs)
        await stop(running)
      })
    }
    for (let i = 0; i < STARTS; i++) {
      await measured(times.bare, () => start([BARE], /^(\d+)$/))
      await measured(times.one, () => startProgram('run', few))
      if (i < 3) await measured(times.many, () => startProgram('run', many))
    }
    for (const command of ['run', 'dev'] as const) {
      const [soon, later] = await memoryAFunction(command, few, many)
      memory.push(
        row(`  memory a function, ${command}, ${REST_MS / 1000} s after the start`, soon, 'KB', 8),
        row(`  memory a function, ${command}, ${LATER_MS / 1000} s after the start`, later, 'KB', 8),
      )
    }
    const running = await startProgram('dev', many)
    await rest(REST_MS)
    await fetch(`${running.url}/group-0/fn-0`)
    for (let i = 0; i < CHANGES; i++) {
      times.reload.push(
        await quiet.run(() =>
          timed(() => fetch(`${running.url}/_fn/reload`, { method: 'POST' }).then(done => done.text())),
        ),
      )
      times.save.push(
        await timed(() => {
          write(many, 'group-0/fn-0/handler.js', `saved ${i}.`)
          return untilAnswered(`${running.url}/group-0/fn-0`, `saved ${i}.`)
        }),
      )
    }
    await stop(running)
  } finally {
    for (const root of [few, many]) rmSync(root, { recursive: true, force: true })
  }
  const one = median(times.one)
  return [
    row('start with one function, to its readiness line', one, 'ms', 250),
    row('  to bare node:http', one / median(times.bare), 'ratio', 2.5),
    row(`start with ${MANY} functions`, median(times.many), 'ms', 1000),
    row(`  save to answer among them`, median(times.save), 'ms', 50),
    row(`  POST /_fn/reload with nothing changed`, median(times.reload), 'ms', 60),
    ...memory,
    ...quiet.toRows(),
  ]
}
