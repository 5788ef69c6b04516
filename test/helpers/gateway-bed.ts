/** A gateway over a temporary tree, listening, with real workers. */

import type { RuntimeName } from '../../lib/core/identity.ts'
import { createGateway, type Gateway, type GatewayOptions } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { RawConnection } from './raw-http.ts'
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
