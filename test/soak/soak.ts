/**
 * Mixed traffic in every language against a running gateway, while workers, daemons and clients are killed and files are edited,
 * broken and mended; and what must be true of each request, job, schedule run, and of the process afterwards.
 */

import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { startCli } from '../helpers/cli.ts'
import { missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { commandOf, descendantsOf, isAlive, killIfThere, statusOf } from '../helpers/processes.ts'
import { Random } from '../helpers/random.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

export interface SoakOptions {
  seconds: number
  seed: number
  clients?: number
  say?: (text: string) => void
}

export interface SoakReport {
  requests: number
  /** By status; `aborted` are those that their client left. */
  statuses: Record<string, number>
  jobs: number
  runs: number
  kills: number
  edits: number
  wrong: string[]
}

/** Statuses that chaos may cause: a killed worker, a queue that is full, a call that took too long. */
const REFUSALS: ReadonlySet<number> = new Set([429, 503, 504])
/** Milliseconds in which a whole response must be here; it covers a start of every language and `timeout_ms`. */
const ANSWER_MS = 30_000
/** The same of the first one, which may build. */
const BUILD_MS = 240_000
const SETTLE_MS = 60_000

type Language = 'node' | 'ts' | 'python' | 'php' | 'lua' | 'go' | 'rust'

/** Handlers return the version that is in their text, and what they were sent. */
const HANDLERS: Readonly<Record<Language, readonly [file: string, toText: (version: number) => string]>> = {
  node: ['handler.js', v => `exports.handler = async e => ({ version: ${v}, nonce: e.query.nonce, body: e.body })\n`],
  ts: [
    'handler.ts',
    v =>
      `export const handler = (e: { query: Record<string, string>, body: string }) => ({ version: ${v}, nonce: e.query.nonce, body: e.body })\n`,
  ],
  python: [
    'handler.py',
    v => `def handler(e):\n    return {"version": ${v}, "nonce": e["query"]["nonce"], "body": e["body"]}\n`,
  ],
  php: [
    'handler.php',
    v =>
      `<?php\nfunction handler($e) { return ["version" => ${v}, "nonce" => $e["query"]["nonce"], "body" => $e["body"]]; }\n`,
  ],
  lua: [
    'handler.lua',
    v => `function handler(e) return { version = ${v}, nonce = e.query.nonce, body = e.body } end\n`,
  ],
  go: [
    'handler.go',
    v =>
      `package main\n\nfunc Handler(e map[string]any) map[string]any {\n\tquery := e["query"].(map[string]any)\n\treturn map[string]any{"status": 200, "body": map[string]any{"version": ${v}, "nonce": query["nonce"], "body": e["body"]}}\n}\n`,
  ],
  rust: [
    'handler.rs',
    v =>
      `use serde_json::{json, Value};\npub fn handler(e: Value) -> Value {\n    json!({"status": 200, "body": {"version": ${v}, "nonce": e["query"]["nonce"], "body": e["body"]}})\n}\n`,
  ],
}
const BROKEN = 'this is ( not a program'
/** A build takes seconds: sources of these are not edited. */
const COMPILED: ReadonlySet<Language> = new Set(['go', 'rust'])

/** Each run leaves a line before anything else happens. */
const RECORDER = `const { appendFileSync } = require('node:fs')
exports.handler = async e => {
  const { id } = e.context.trigger
  appendFileSync(__dirname + '/runs.txt', JSON.stringify({ id, at: Date.now() }) + '\\n')
  return { ok: true }
}
`

class Soak {
  readonly report: SoakReport = { requests: 0, statuses: {}, jobs: 0, runs: 0, kills: 0, edits: 0, wrong: [] }
  readonly #random: Random
  readonly #tree: Tree
  readonly #languages: readonly Language[]
  readonly #versions = new Map<Language, number>()
  readonly #jobs = new Map<string, number>()
  readonly #options: SoakOptions
  #url = ''
  #pid = 0
  #nonce = 0
  #isOver = false

  constructor(tree: Tree, languages: readonly Language[], options: SoakOptions) {
    this.#tree = tree
    this.#languages = languages
    this.#options = options
    this.#random = new Random(options.seed)
    for (const language of languages) this.#save(language)
    tree.write({
      'jobs/handler.js': RECORDER,
      'jobs/fn.config.json': '{"invoke":{"methods":["POST"]}}',
      'tick/handler.js': RECORDER,
      'tick/fn.config.json': '{"schedule":{"enabled":true,"every_seconds":1,"method":"GET"}}',
    })
  }

  async run(): Promise<void> {
    const { seconds, clients = 12, say = () => {} } = this.#options
    const runtimes = [...new Set(this.#languages.map(one => (one === 'ts' ? 'node' : one)))].join(',')
    const fngw = await startCli(['dev', '--native', '--port', '0', '--runtimes', runtimes], {
      cwd: this.#tree.root,
      env: { ...shareCrates(), FN_CONSOLE_WRITE_ENABLED: '1', FN_DEPS_WAIT_MS: '250000' },
    })
    this.#url = fngw.url
    this.#pid = fngw.child.pid!
    try {
      for (const language of this.#languages) await this.#ask(language, BUILD_MS)
      say(`serving ${this.#languages.join(', ')} at ${fngw.url}`)
      const endsAt = performance.now() + seconds * 1000
      const before: ReturnType<Soak['measure']>[] = []
      const watch = (async () => {
        await Promise.race([pause((seconds * 1000) / 3), fngw.ended])
        before.push(this.measure())
      })()
      const isOn = () => performance.now() < endsAt && isAlive(this.#pid)
      await Promise.all([
        watch,
        this.#chaos(isOn),
        this.#createJobs(isOn),
        ...Array.from({ length: clients }, async () => {
          while (isOn()) await this.#ask(this.#random.pick(this.#languages))
        }),
      ])
      if (!isAlive(this.#pid)) this.#wrong(`the gateway died\n${fngw.stderr().slice(-2000)}`)
      for (const language of this.#languages) this.#save(language)
      await this.#settle()
      this.#checkMemory(before[0]!, this.measure())
      const started = descendantsOf(this.#pid)
      fngw.child.kill('SIGTERM')
      const { code } = await fngw.ended
      if (code !== 0) this.#wrong(`ended with ${code}\n${fngw.stderr().slice(-2000)}`)
      await pause(500)
      for (const pid of started) if (isAlive(pid)) this.#wrong(`process ${pid} is left: ${commandOf(pid)}`)
      this.#checkRuns()
    } finally {
      this.#isOver = true
      fngw.child.kill('SIGKILL')
    }
  }

  #wrong(text: string): void {
    if (this.report.wrong.length < 50) this.report.wrong.push(text)
  }

  /** Writes the next version of a handler. */
  #save(language: Language): void {
    const version = (this.#versions.get(language) ?? 0) + 1
    const [file, toText] = HANDLERS[language]
    this.#tree.write({ [`${language}/${file}`]: toText(COMPILED.has(language) ? 1 : version) })
    this.#versions.set(language, version)
  }

  /** One request, with a body as often as not; one in twenty clients leaves in the middle. */
  async #ask(language: Language, waitMs: number | null = null): Promise<void> {
    const nonce = `${language}-${++this.#nonce}`
    const size = this.#random.pick([0, 0, 10, 1000, 70_000])
    const body = size === 0 ? null : nonce.repeat(Math.ceil(size / nonce.length))
    const leaves = waitMs === null && this.#random.below(20) === 0
    this.report.requests += 1
    const leaveMs = leaves ? this.#random.below(30) : null
    const outcome = await this.#send(`/${language}?nonce=${nonce}`, 'GET', body, leaveMs, waitMs ?? ANSWER_MS)
    const { statuses } = this.report
    statuses[outcome.status] = (statuses[outcome.status] ?? 0) + 1
    if (outcome.status === 'aborted') return
    if (outcome.status !== 200) {
      if (!REFUSALS.has(outcome.status as number))
        this.#wrong(`${nonce}: ${outcome.status} ${outcome.text.slice(0, 300)}`)
      return
    }
    const answer = JSON.parse(outcome.text) as { version: number; nonce: string; body: string | null }
    if (answer.nonce !== nonce) this.#wrong(`${nonce} got the response of ${answer.nonce}`)
    if ((answer.body || null) !== body) this.#wrong(`${nonce}: another body of ${answer.body?.length} bytes came back`)
    if (answer.version > this.#versions.get(language)!)
      this.#wrong(`${nonce}: version ${answer.version} was never saved`)
  }

  /** @param leaveMs - the client leaves then; null stays */
  #send(
    path: string,
    method: string,
    body: string | null,
    leaveMs: number | null = null,
    waitMs = ANSWER_MS,
  ): Promise<{ status: number | 'aborted'; text: string }> {
    return new Promise(resolve => {
      const headers = body === null ? {} : { 'content-type': 'text/plain', 'content-length': Buffer.byteLength(body) }
      const request = httpRequest(`${this.#url}${path}`, { method, headers, agent: false }, response => {
        let text = ''
        response.setEncoding('utf8')
        response.on('data', (piece: string) => {
          text += piece
        })
        response.once('close', () => {
          clearTimeout(timer)
          if (leaveMs === null && !response.complete) this.#wrong(`${method} ${path}: the response was cut`)
          resolve({ status: response.complete ? response.statusCode! : 'aborted', text })
        })
      })
      const timer = setTimeout(() => {
        if (leaveMs === null) this.#wrong(`${method} ${path}: no response within ${waitMs} ms`)
        request.destroy()
        resolve({ status: 'aborted', text: '' })
      }, leaveMs ?? waitMs)
      request.once('error', error => {
        clearTimeout(timer)
        if (leaveMs === null && !this.#isOver && !request.destroyed) this.#wrong(`${method} ${path}: ${error.message}`)
        resolve({ status: 'aborted', text: '' })
      })
      request.end(body)
    })
  }

  async #createJobs(isOn: () => boolean): Promise<void> {
    while (isOn()) {
      const maxAttempts = 1 + this.#random.below(3)
      const input = JSON.stringify({ name: 'jobs', method: 'POST', max_attempts: maxAttempts, retry_delay_ms: 100 })
      const response = await fetch(`${this.#url}/_fn/jobs`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: input,
      }).catch((error: Error) => error)
      if (response instanceof Error) this.#wrong(`POST /_fn/jobs: ${response.message}`)
      else if (response.status === 201) this.#jobs.set(((await response.json()) as { id: string }).id, maxAttempts)
      else this.#wrong(`POST /_fn/jobs: ${response.status} ${(await response.text()).slice(0, 300)}`)
      await pause(300 + this.#random.below(300))
    }
    this.report.jobs = this.#jobs.size
  }

  async #chaos(isOn: () => boolean): Promise<void> {
    const edited = this.#languages.filter(language => !COMPILED.has(language))
    while (isOn()) {
      await pause(100 + this.#random.below(400))
      switch (this.#random.below(8)) {
        case 0:
        case 1:
          this.#kill(this.#daemons().flatMap(descendantsOf))
          break
        case 2:
          this.#kill(this.#daemons())
          break
        case 3:
        case 4:
          this.report.edits += 1
          this.#save(this.#random.pick(edited))
          break
        case 5: {
          const language = this.#random.pick(edited)
          this.report.edits += 1
          this.#tree.write({ [`${language}/${HANDLERS[language][0]}`]: BROKEN })
          await pause(this.#random.below(400))
          this.#save(language)
          break
        }
        case 6: {
          const config = join(this.#tree.root, this.#random.pick(this.#languages), 'fn.config.json')
          this.report.edits += 1
          writeFileSync(config, this.#random.below(2) === 0 ? '{ broken' : '{"timeout_ms": 20000}')
          await pause(this.#random.below(400))
          rmSync(config)
          break
        }
        default:
          await fetch(`${this.#url}/_fn/reload`, { method: 'POST', headers: { 'x-fngw-request': '1' } }).catch(() => {})
      }
    }
  }

  /** Their descendants are workers; tools that build and install are the gateway's own children. */
  #daemons(): number[] {
    return descendantsOf(this.#pid).filter(pid => /runtimes\/\w+\/daemon\./.test(commandOf(pid)))
  }

  #kill(victims: readonly number[]): void {
    if (victims.length === 0) return
    this.report.kills += 1
    killIfThere(this.#random.pick(victims))
  }

  /** Every function serves its last version, and every job has come to its end. */
  async #settle(): Promise<void> {
    const giveUpAt = performance.now() + SETTLE_MS
    for (const language of this.#languages) {
      const wanted = COMPILED.has(language) ? 1 : this.#versions.get(language)!
      for (;;) {
        const { status, text } = await this.#send(`/${language}?nonce=last`, 'GET', null)
        if (status === 200 && (JSON.parse(text) as { version: number }).version === wanted) break
        if (performance.now() > giveUpAt) {
          this.#wrong(`${language} does not serve version ${wanted}: ${status} ${text.slice(0, 300)}`)
          break
        }
        await pause(100)
      }
    }
    for (const id of this.#jobs.keys()) {
      for (;;) {
        const { status, text } = await this.#send(`/_fn/jobs/${id}`, 'GET', null)
        // At most 250 finished jobs are kept.
        if (status === 404) break
        const job = JSON.parse(text) as { status: string; attempt: number; last_error: string | null }
        if (job.status === 'done' || job.status === 'failed') {
          if (job.status === 'failed' && job.attempt < this.#jobs.get(id)!)
            this.#wrong(`job ${id} failed after attempt ${job.attempt}: ${job.last_error}`)
          break
        }
        if (performance.now() > giveUpAt) {
          this.#wrong(`job ${id} is ${job.status}`)
          break
        }
        await pause(100)
      }
    }
  }

  /** No job ran more often than it may, and no due time had two runs that were whole. */
  #checkRuns(): void {
    const runs = (name: string) =>
      readFileSync(join(this.#tree.root, name, 'runs.txt'), 'utf8')
        .trim()
        .split('\n')
        .map(line => JSON.parse(line) as { id: string; at: number })
    const seen = new Map<string, number>()
    for (const { id } of runs('jobs')) seen.set(id, (seen.get(id) ?? 0) + 1)
    for (const [id, count] of seen)
      if (count > (this.#jobs.get(id) ?? Number.POSITIVE_INFINITY)) this.#wrong(`job ${id} ran ${count} times`)
    const ticks = runs('tick')
    this.report.runs = ticks.length
    const { seconds } = this.#options
    const most = (ticks.at(-1)!.at - ticks[0]!.at) / 1000 + 2
    if (ticks.length > most) this.#wrong(`${ticks.length} schedule runs in ${most.toFixed(1)} s`)
    if (ticks.length < seconds * 0.5) this.#wrong(`only ${ticks.length} schedule runs in ${seconds} s`)
  }

  measure(): { memoryMb: number; files: number } {
    const kb = Number(/^VmRSS:\s+(\d+)/m.exec(statusOf(this.#pid))?.[1] ?? 0)
    let files = 0
    try {
      files = readdirSync(`/proc/${this.#pid}/fd`).length
    } catch {
      // It ended.
    }
    return { memoryMb: Math.round(kb / 1024), files }
  }

  #checkMemory(before: ReturnType<Soak['measure']>, after: ReturnType<Soak['measure']>): void {
    this.#options.say?.(
      `memory ${before.memoryMb} > ${after.memoryMb} MB, descriptors ${before.files} > ${after.files}`,
    )
    if (after.memoryMb > before.memoryMb * 1.5 + 40)
      this.#wrong(`memory grew from ${before.memoryMb} to ${after.memoryMb} MB`)
    if (after.files > before.files * 1.5 + 40) this.#wrong(`descriptors grew from ${before.files} to ${after.files}`)
  }
}

export async function soak(options: SoakOptions): Promise<SoakReport> {
  const tree = makeTree()
  try {
    const all = Object.keys(HANDLERS) as Language[]
    const languages = all.filter(one => {
      const missing = one === 'go' || one === 'rust' ? missingToolchain(one) : null
      if (missing !== null) options.say?.(`without ${one}: ${missing}`)
      return missing === null
    })
    const run = new Soak(tree, languages, options)
    await run.run()
    return run.report
  } finally {
    tree.cleanup()
  }
}
