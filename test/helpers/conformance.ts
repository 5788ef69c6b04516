/**
 * One gateway that serves the same answers in every language (test/fixtures/functions), for tests that compare them.
 *
 *   <label>/all      every answer          <label>/short    the same with a timeout of 400 ms
 *   <label>/other    invoke.handler        <label>/params/[id], docs/[...slug], maybe/[[...slug]]   file routes
 */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { fileURLToPath } from 'node:url'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { createGateway, type Gateway } from '../../lib/index.ts'
import type { LogRecord } from '../../lib/observe/events.ts'
import { makeTree, type Tree, type TreeEntry } from './tree.ts'

const FIXTURES = fileURLToPath(new URL('../fixtures/functions/', import.meta.url))

export const SHORT_TIMEOUT_MS = 400
/** Milliseconds the first build on a busy machine may take. */
const BUILD_WAIT_MS = 150_000
export const MAX_BODY_BYTES = 20 * 1024 * 1024

export interface Language {
  /** Folder of its functions, and name in titles. */
  label: string
  runtime: RuntimeName
  extension: string
  /** File of the fixtures that is the handler, and those beside it. */
  handler: string
  beside: Record<string, string>
  /** Program that must be there. */
  program: string
  /** Another style of the language before it: what costs much time is left out. */
  variant?: true
  /** Each function of it is built, which takes seconds: few functions with many routes instead of many functions. */
  compiled?: true
}

const ALL: readonly Language[] = [
  { label: 'js', runtime: 'node', extension: '.js', handler: 'all/handler.js', beside: {}, program: 'node' },
  {
    label: 'cjs',
    runtime: 'node',
    extension: '.cjs',
    handler: 'all/handler.cjs',
    beside: { '_plain.js': 'all/handler.js' },
    variant: true,
    program: 'node',
  },
  {
    label: 'ts',
    runtime: 'node',
    extension: '.ts',
    handler: 'all/handler.ts',
    beside: { '_plain.js': 'all/handler.js', '_types.ts': 'all/_types.ts' },
    variant: true,
    program: 'node',
  },
  { label: 'py', runtime: 'python', extension: '.py', handler: 'all/handler.py', beside: {}, program: 'python3' },
  {
    label: 'pya',
    runtime: 'python',
    extension: '.py',
    handler: 'async/handler.py',
    beside: { '_plain.py': 'all/handler.py' },
    variant: true,
    program: 'python3',
  },
  { label: 'php8', runtime: 'php', extension: '.php', handler: 'all/handler.php', beside: {}, program: 'php' },
  { label: 'lua5', runtime: 'lua', extension: '.lua', handler: 'all/handler.lua', beside: {}, program: 'node' },
  {
    label: 'golang',
    runtime: 'go',
    extension: '.go',
    handler: 'all/handler.go',
    beside: {},
    program: 'go',
    compiled: true,
  },
  {
    label: 'rs',
    runtime: 'rust',
    extension: '.rs',
    handler: 'all/handler.rs',
    beside: {},
    program: 'cargo',
    compiled: true,
  },
]

const only = process.env.FNGW_TEST_LANGUAGES?.split(',')

/** Those that are tested: all, or the labels named by `FNGW_TEST_LANGUAGES`. */
export const LANGUAGES = ALL.filter(({ label }) => only === undefined || only.includes(label))

export interface Bed {
  gateway: Gateway
  tree: Tree
  port: number
  languages: readonly Language[]
  /** Languages whose program is missing, with the reason. */
  missing: ReadonlyMap<string, string>
  /** What functions wrote and what the gateway said. */
  logs: LogRecord[]
  send: (options: SendOptions) => Promise<Answer>
  close: () => Promise<void>
}

export interface SendOptions {
  method?: string
  /** Request target. */
  path: string
  headers?: Record<string, string | string[]>
  body?: string | Buffer
}

export interface Answer {
  status: number
  /** As the client library joins them; `set-cookie` is a list. */
  headers: IncomingMessage['headers']
  /** Names and values in turn. */
  rawHeaders: string[]
  body: Buffer
  text: string
}

export function readFixture(path: string): string {
  return readFileSync(`${FIXTURES}${path}`, 'utf8')
}

/** @param extra - more entries of the tree, per language */
export async function makeBed(
  extra: (language: Language) => Record<string, TreeEntry>,
  env: Record<string, string> = {},
): Promise<Bed> {
  const missing = new Map<string, string>()
  const languages = LANGUAGES.filter(({ label, program }) => {
    const isThere = spawnSync(program, [program === 'go' ? 'version' : '--version']).status === 0
    if (!isThere) missing.set(label, `${program} is not installed`)
    return isThere
  })
  const entries: Record<string, TreeEntry> = {}
  for (const language of languages) {
    for (const [path, entry] of Object.entries({ ...treeOf(language), ...extra(language) })) {
      entries[`${language.label}/${path}`] = entry
    }
  }
  const tree = makeTree(entries)
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: [...new Set(languages.map(({ runtime }) => runtime))],
    workerMemoryMb: 128,
    env,
  })
  const logs: LogRecord[] = []
  gateway.on('log', record => logs.push(record))
  const { port } = await gateway.listen({ port: 0 })
  const agent = new Agent({ keepAlive: true })
  for (const { label, compiled } of languages) {
    if (!compiled) continue
    for (const folder of ['all', 'short', 'other']) await untilBuilt(agent, port, `/${label}/${folder}`)
  }
  return {
    gateway,
    tree,
    port,
    languages,
    missing,
    logs,
    send: options => send(agent, port, options),
    close: async () => {
      agent.destroy()
      await gateway.close({ timeoutMs: 1000 })
      tree.cleanup()
    },
  }
}

/** Calls wait for a build, but not longer than their timeout. */
async function untilBuilt(agent: Agent, port: number, path: string): Promise<void> {
  const from = performance.now()
  for (;;) {
    const answer = await send(agent, port, { path, headers: { 'x-do': 'echo' } })
    if (answer.status === 200) return
    const isLate = performance.now() - from > BUILD_WAIT_MS
    if (answer.status !== 503 || isLate) throw new Error(`${path}: ${answer.status} ${answer.text}`)
  }
}

function treeOf({ label, extension, handler, beside, compiled }: Language): Record<string, TreeEntry> {
  const text = readFixture(handler)
  const helpers = Object.entries(beside).map(([name, path]) => [name, readFixture(path)] as const)
  const entries: Record<string, TreeEntry> = {}
  const add = (folder: string, file: string, config: unknown): void => {
    entries[`${folder}/${file}${extension}`] = text
    for (const [name, content] of helpers) entries[`${folder}/${name}`] = content
    if (config !== null) entries[`${folder}/fn.config.json`] = { json: config }
  }
  const policy = { timeout_ms: 20_000, max_concurrency: 200, max_body_bytes: MAX_BODY_BYTES }
  add('all', 'handler', { ...policy, response: { include_debug_headers: true } })
  entries['all/fn.env.json'] = { json: { PLAIN: 'plän', SECRET: { value: 's3cret', is_secret: true }, NUMBER: 5 } }
  add('short', 'handler', { timeout_ms: SHORT_TIMEOUT_MS })
  add('other', 'handler', { invoke: { handler: 'other' } })
  if (compiled) {
    const routes = ['all', 'params/[id]', 'docs/[...slug]', 'maybe/[[...slug]]', 'wild', 'wild/*']
    const invoke = { routes: routes.map(route => `/${label}/${route}`) }
    add('all', 'handler', { ...policy, invoke, response: { include_debug_headers: true } })
    return entries
  }
  add('wild', 'handler', { name: `${label}/wild` })
  add('params', '[id]', null)
  add('docs', '[...slug]', null)
  add('maybe', '[[...slug]]', null)
  return entries
}

function send(agent: Agent, port: number, { method = 'GET', path, headers = {}, body }: SendOptions): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ agent, host: '127.0.0.1', port, method, path, headers }, incoming => {
      const chunks: Buffer[] = []
      incoming.on('data', chunk => chunks.push(chunk))
      incoming.on('error', reject)
      incoming.on('end', () => {
        const bytes = Buffer.concat(chunks)
        resolve({
          status: incoming.statusCode ?? 0,
          headers: incoming.headers,
          rawHeaders: incoming.rawHeaders,
          body: bytes,
          text: bytes.toString('utf8'),
        })
      })
    })
    outgoing.on('error', reject)
    // As bytes: text would make node write the header block in the encoding of the text.
    outgoing.end(body === undefined ? undefined : Buffer.from(body))
  })
}
