import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import type { InjectResponse } from '../../lib/http/inject.ts'
import { makeTree, type Tree, type TreeEntry } from './tree.ts'

type Json = Record<string, unknown>

/** A gateway over a tree of its own, asked as a local caller who may write. */
export interface ControlBed {
  tree: Tree
  gateway: Awaited<ReturnType<typeof createGateway>>
  ask: (method: string, url: string, body?: unknown, headers?: Record<string, string>) => Promise<InjectResponse>
  /** Status and body of an answer. */
  say: (method: string, url: string, body?: unknown, headers?: Record<string, string>) => Promise<[number, Json]>
}

export async function makeControlBed(
  t: { teardown: (run: () => unknown) => void },
  entries: Record<string, TreeEntry>,
  options: GatewayOptions = {},
): Promise<ControlBed> {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: ['lua', 'node'],
    consoleWriteEnabled: true,
    ...options,
  })
  t.teardown(() => gateway.close())
  const ask: ControlBed['ask'] = (method, url, body, headers = {}) =>
    gateway.inject({ method, url, body, headers: { 'content-type': 'application/json', ...headers } })
  return {
    tree,
    gateway,
    ask,
    say: async (...request) => {
      const answer = await ask(...request)
      return [answer.status, answer.json() as Json]
    },
  }
}
