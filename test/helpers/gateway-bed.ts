/** A gateway over a temporary tree, listening, with real workers. */

import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { existsSync, writeFileSync } from 'node:fs'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { createGateway, type Gateway, type GatewayOptions } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { type RawAnswer, RawConnection } from './raw-http.ts'
import { makeTree, type Tree, type TreeEntry } from './tree.ts'

/** The four runtimes that need no building, as far as their programs are installed. */
export const RUNTIMES: readonly RuntimeName[] = (['node', 'python', 'php', 'lua'] as const).filter(
  name => name === 'lua' || findProgram(name, {}, process.env.PATH ?? '').path !== null,
)

const EXTENSION: Partial<Record<RuntimeName, string>> = { node: 'js', python: 'py', php: 'php', lua: 'lua' }

/** `handler.<ext>` of a runtime. */
export function handlerFile(runtime: RuntimeName): string {
  return `handler.${EXTENSION[runtime]}`
}

/** One function's row of `functions.states` in health. */
export interface FunctionState {
  key: string
  state: string
  workers: number
  worker_pool: { active: number; queued: number; max_workers: number; max_queue: number }
}

interface HealthBody {
  functions: { summary: Record<string, number>; states: FunctionState[] }
  runtimes: Record<
    string,
    {
      routing: string
      health: { up: boolean; reason: string }
      sockets: { index: number; up: boolean; reason: string; uri: string }[]
    }
  >
}

export interface GatewayBed {
  tree: Tree
  gateway: Gateway
  url: string
  port: number
  open: () => Promise<RawConnection>
  health: () => HealthBody
  stateOf: (key: string) => FunctionState
  /** Resolves when `isTrue` holds; fails after 20 s. */
  until: (isTrue: () => boolean, what: string) => Promise<void>
}

/** A function that runs until a file is there, which `file` names. */
export const HELD_FUNCTION = `
  import { existsSync, writeFileSync } from 'node:fs'
  export const handler = async ({ query }) => {
    writeFileSync(query.file + '.runs', '')
    while (!existsSync(query.file)) await new Promise(done => setTimeout(done, 5))
    return 'held'
  }
`

/**
 * Asks a gateway that has begun to close, on a connection with a request that runs.
 * @param bed - of a tree that has `HELD_FUNCTION` as `held.mjs`; it is closed
 */
export async function askClosing(bed: GatewayBed, target: string): Promise<RawAnswer> {
  const connection = await bed.open()
  const file = bed.tree.path('go-on')
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`
  const follower = await fetch(`${bed.url}/_fn/events?events=reload`)
  connection.write(get(`/held?file=${encodeURIComponent(file)}`))
  await bed.until(() => existsSync(`${file}.runs`), 'the first request runs')
  const closed = bed.gateway.close()
  // Its stream is among the first that end.
  await follower.text()
  connection.write(get(target))
  // Behind the last answer nothing is read.
  await requested(target)
  writeFileSync(file, '')
  const answers = await connection.answers(2)
  await closed
  return answers[1] as RawAnswer
}

/** Resolves when a server of this process has the head of a request. */
function requested(target: string): Promise<void> {
  const channel = 'http.server.request.start'
  return new Promise(resolve => {
    const look = (message: unknown): void => {
      if ((message as { request: { url: string } }).request.url !== target) return
      unsubscribe(channel, look)
      resolve()
    }
    subscribe(channel, look)
  })
}

interface Test {
  teardown: (fn: () => unknown) => void
}

export async function serveTree(
  t: Test,
  entries: Record<string, TreeEntry>,
  options: GatewayOptions = {},
): Promise<GatewayBed> {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, env: process.env, ...options })
  t.teardown(() => gateway.close({ timeoutMs: 1000 }))
  const { url, port } = await gateway.listen({ port: 0, host: '127.0.0.1' })
  const health = (): HealthBody => gateway.health() as unknown as HealthBody
  return {
    tree,
    gateway,
    url,
    port,
    open: () => RawConnection.open(port),
    health,
    stateOf: key => {
      const state = health().functions.states.find(one => one.key === key)
      if (state === undefined) throw new Error(`no function ${key}`)
      return state
    },
    until: waitUntil,
  }
}

/** Looks again and again: for what no event tells, such as the end of a process that somebody else started. */
export async function waitUntil(isTrue: () => boolean, what: string): Promise<void> {
  const giveUpAt = performance.now() + 20_000
  while (!isTrue()) {
    if (performance.now() > giveUpAt) throw new Error(`not within 20 s: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}
