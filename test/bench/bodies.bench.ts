/**
 * Bodies through workers, as ratios to bare node:http in the same rounds: given back as text and as bytes, taken, answered,
 * streamed; a fast function beside a stream; and what the gateway keeps of the memory afterwards. Linux only (/proc).
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { QuietRounds, SYSTEM_METER } from './foreign.ts'
import { hasWrk, load, median, untilBuilt, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const PROGRAM = fileURLToPath(new URL('../../dist/bin/fngw.js', import.meta.url))
const KIB = 1024
const MIB = 1024 * KIB
const SECONDS = Number(process.env.FNGW_BENCH_SECONDS ?? 2)
const ROUNDS = Number(process.env.FNGW_BENCH_ROUNDS ?? 5)
/** Rounds that may be repeated in all. */
const SPARE_ROUNDS = Number(process.env.FNGW_BENCH_SPARE_ROUNDS ?? 20)
const STREAM_MIB = Number(process.env.FNGW_BENCH_STREAM_MIB ?? 1024)
/** Memory that may be more after large bodies than before, and how long the gateway has to give it back. */
const KEPT_MB = 50
const REST_MS = 10_000

/** Handlers that give back what they get, by language: its probe, file and text. */
const LANGUAGES = {
  node: [
    'node',
    'handler.mjs',
    'export const handler = e => e.is_base64\n  ? { status: 200, is_base64: true, body_base64: e.body_base64 }\n  : { status: 200, headers: { "content-type": "application/json" }, body: e.body }\n',
  ],
  python: [
    'python3',
    'handler.py',
    'def handler(e):\n    if e["is_base64"]:\n        return {"status": 200, "is_base64": True, "body_base64": e["body_base64"]}\n    return {"status": 200, "headers": {"content-type": "application/json"}, "body": e["body"]}\n',
  ],
  php: [
    'php',
    'handler.php',
    "<?php\nfunction handler($e) {\n  if ($e['is_base64']) return ['status' => 200, 'is_base64' => true, 'body_base64' => $e['body_base64']];\n  return ['status' => 200, 'headers' => ['content-type' => 'application/json'], 'body' => $e['body']];\n}\n",
  ],
  lua: [
    'node',
    'handler.lua',
    'function handler(e)\n  if e.is_base64 then return { status = 200, is_base64 = true, body_base64 = e.body_base64 } end\n  return { status = 200, headers = { ["content-type"] = "application/json" }, body = e.body }\nend\n',
  ],
  go: [
    'go',
    'handler.go',
    'package echo\n\nfunc handler(e map[string]any) any {\n\tif e["is_base64"] == true {\n\t\treturn map[string]any{"status": 200, "is_base64": true, "body_base64": e["body_base64"]}\n\t}\n\treturn map[string]any{"status": 200, "headers": map[string]any{"content-type": "application/json"}, "body": e["body"]}\n}\n',
  ],
  rust: [
    'cargo',
    'handler.rs',
    'use serde_json::{json, Value};\n\npub fn handler(mut e: Value) -> Value {\n    if e["is_base64"] == true {\n        return json!({ "status": 200, "is_base64": true, "body_base64": e["body_base64"].take() });\n    }\n    json!({ "status": 200, "headers": { "content-type": "application/json" }, "body": e["body"].take() })\n}\n',
  ],
} as const

const OTHERS: Record<string, string> = {
  take: 'export const handler = e => ({ status: 200, body: e.headers["content-length"] })\n',
  large:
    'const text = JSON.stringify({ text: "x".repeat(64 * 1024 - 11) })\nexport const handler = () => ({ status: 200, headers: { "content-type": "application/json" }, body: text })\n',
  stream:
    'const piece = Buffer.alloc(64 * 1024, "x")\nasync function* pieces(n) { while (n-- > 0) yield piece }\nexport const handler = e => ({ status: 200, body: pieces(Number(e.query.mb) * 16) })\n',
  hello: "export const handler = () => ({ message: 'hello' })\n",
}

interface Server {
  child: ChildProcess
  origin: string
}

interface Case {
  name: string
  path: string
  barePath: string
  /** File of the body and its type; null for a GET, `mixed` for bodies that differ. */
  body: readonly [file: string, type: string] | 'mixed' | null
  connections: number
  /** Null where no figure is aimed at. */
  goal: number | null
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  const started: ChildProcess[] = []
  try {
    const bare = await start(['bare-bodies.mjs'], started)
    const cases = write(root)
    const own = await start([PROGRAM, 'run', join(root, 'functions'), '--native', '--port', '0', '--json'], started)
    for (const path of new Set(cases.map(one => one.path))) await untilBuilt(own.origin + path)
    for (const one of cases) await call(own, bare, one, 1)
    // As it stands once everything has run, with small bodies alone.
    const before = usageOf(own.child.pid!).ownRssMb
    const quiet = new QuietRounds(SYSTEM_METER, SPARE_ROUNDS)
    const rows: BenchRow[] = []
    for (const one of cases) rows.push(...(await ratio(own, bare, one, quiet)))
    const pair = await start(['bare-pair.mjs'], started)
    for (const { body, connections } of cases.slice(0, 2)) {
      const name = `a bare pair of processes: ${connections === 4 ? '1 MiB' : '64 KiB'} back`
      const one = { name, path: '/echo', barePath: '/echo', body, connections, goal: null }
      rows.push(...(await ratio(pair, bare, one, quiet)))
    }
    rows.push(...(await streams(own, bare)))
    await new Promise(done => setTimeout(done, REST_MS))
    const kept = usageOf(own.child.pid!).ownRssMb - before
    rows.push({ name: 'kept after large bodies', value: kept, unit: 'MB', goal: `<= ${KEPT_MB}`, ok: kept <= KEPT_MB })
    return [...rows, ...quiet.toRows()]
  } finally {
    for (const child of started) child.kill('SIGTERM')
    rmSync(root, { recursive: true, force: true })
  }
}

/** Writes functions and bodies. @returns what is measured of them */
function write(root: string): Case[] {
  const folder = join(root, 'functions')
  const add = (name: string, file: string, text: string): void => {
    mkdirSync(join(folder, name), { recursive: true })
    writeFileSync(join(folder, name, file), text)
    const config = {
      max_body_bytes: 2 * MIB,
      max_concurrency: 0,
      timeout_ms: 600_000,
      invoke: { methods: ['GET', 'POST'] },
    }
    writeFileSync(join(folder, name, 'fn.config.json'), JSON.stringify(config))
  }
  const text = join(root, 'text')
  const binary = join(root, 'binary')
  writeFileSync(text, JSON.stringify({ text: 'x'.repeat(64 * KIB - 11) }))
  writeFileSync(binary, Buffer.concat([Buffer.from([0xff]), randomBytes(MIB - 1)]))
  const json = [text, 'application/json'] as const
  const cases: Case[] = []
  for (const [name, [program, file, source]] of Object.entries(LANGUAGES)) {
    if (spawnSync(program, ['--version']).error !== undefined) continue
    add(name, file, source)
    const shared = { path: `/${name}`, barePath: '/echo', goal: 0.5 }
    cases.push({ ...shared, name: `${name}: 64 KiB of text back`, body: json, connections: 16 })
    const bytes = [binary, 'application/octet-stream'] as const
    cases.push({ ...shared, name: `${name}: 1 MiB of bytes back`, body: bytes, connections: 4 })
    cases.push({ ...shared, name: `${name}: mixed bodies back`, body: 'mixed', connections: 16, goal: null })
  }
  for (const [name, source] of Object.entries(OTHERS)) add(name, 'handler.mjs', source)
  const shared = { connections: 16, goal: 0.6 }
  cases.push({ ...shared, name: 'node answers with 64 KiB', path: '/large', barePath: '/large', body: null })
  cases.push({ ...shared, name: 'node takes 64 KiB', path: '/take', barePath: '/take', body: json })
  return cases
}

async function start(args: string[], started: ChildProcess[]): Promise<Server> {
  const env = { ...process.env, FN_RUNTIMES: Object.keys(LANGUAGES).join(',') }
  const child = spawn(process.execPath, args, { cwd: HERE, env, stdio: ['pipe', 'pipe', 'inherit'] })
  started.push(child)
  for await (const line of createInterface({ input: child.stdout! })) {
    const port = /^(\d+)$|"url":"http:[^"]+:(\d+)/.exec(line)
    if (port === null) continue
    child.stdout!.resume()
    return { child, origin: `http://127.0.0.1:${port[1] ?? port[2]}` }
  }
  throw new Error(`${args.join(' ')} ended before it listened`)
}

/** One run of each of the two, one after the other. */
async function call(own: Server, bare: Server, { path, barePath, body, connections }: Case, seconds: number) {
  const figures = { rate: 0, bareRate: 0, ownUs: 0, workersUs: 0, bareUs: 0 }
  for (const [server, at] of [
    [bare, barePath],
    [own, path],
  ] as const) {
    const before = usageOf(server.child.pid!)
    const url = server.origin + at
    const result =
      body === 'mixed'
        ? await load(server.origin, connections, seconds, 'mixed-bodies.lua', [at])
        : await load(url, connections, seconds, body === null ? null : 'body.lua', body ?? [])
    if (result.failures > 0) throw new Error(`${server.origin}${at}: ${result.failures} failures`)
    const after = usageOf(server.child.pid!)
    const us = ((after.ownSeconds - before.ownSeconds) / result.requests) * 1e6
    if (server === bare) Object.assign(figures, { bareRate: result.requestsPerSecond, bareUs: us })
    else {
      const tree = ((after.treeSeconds - before.treeSeconds) / result.requests) * 1e6
      Object.assign(figures, { rate: result.requestsPerSecond, ownUs: us, workersUs: tree - us })
    }
  }
  return figures
}

async function ratio(own: Server, bare: Server, one: Case, quiet: QuietRounds): Promise<BenchRow[]> {
  const all: Awaited<ReturnType<typeof call>>[] = []
  for (let round = 0; round < ROUNDS; round++) all.push(await quiet.run(() => call(own, bare, one, SECONDS)))
  const value = median(all.map(({ rate, bareRate }) => rate / bareRate))
  const us = (name: 'ownUs' | 'workersUs' | 'bareUs'): number => median(all.map(figures => figures[name]))
  return [
    {
      name: `${one.name}, to bare`,
      value,
      unit: 'ratio',
      ...(one.goal === null ? {} : { goal: `>= ${one.goal}`, ok: value >= one.goal }),
    },
    { name: '  CPU of the gateway', value: us('ownUs'), unit: 'us' },
    { name: '  CPU of the workers', value: us('workersUs'), unit: 'us' },
    { name: '  CPU of bare', value: us('bareUs'), unit: 'us' },
  ]
}

/** MB a second of one long answer. */
async function streamRate(origin: string): Promise<number> {
  const from = performance.now()
  const [res] = (await once(get(`${origin}/stream?mb=${STREAM_MIB}`), 'response')) as [IncomingMessage]
  let bytes = 0
  for await (const piece of res) bytes += (piece as Buffer).length
  if (res.statusCode !== 200 || bytes !== STREAM_MIB * MIB) throw new Error(`${origin}: ${bytes} bytes of a stream`)
  return bytes / 1000 / (performance.now() - from)
}

async function streams(own: Server, bare: Server): Promise<BenchRow[]> {
  const rates: number[] = []
  const waits: number[] = []
  for (let round = 0; round < Math.min(ROUNDS, 3); round++) {
    const bareRate = await streamRate(bare.origin)
    rates.push((await streamRate(own.origin)) / bareRate)
    const alone = await load(`${own.origin}/hello`, 1, SECONDS)
    const stream = get(`${own.origin}/stream?mb=1048576`, res => res.resume())
    stream.on('error', () => {})
    const beside = await load(`${own.origin}/hello`, 1, SECONDS)
    stream.destroy()
    waits.push(beside.p99Us / alone.p99Us)
  }
  const [rate, wait] = [median(rates), median(waits)]
  return [
    { name: `a stream of ${STREAM_MIB} MiB, to bare`, value: rate, unit: 'ratio', goal: '>= 0.6', ok: rate >= 0.6 },
    { name: "hello's p99 beside a stream, to alone", value: wait, unit: 'ratio', goal: '<= 2', ok: wait <= 2 },
  ]
}
