/** Gateways of a fleet in this process, each on its tree, and requests with the admin token. */

import type { Test } from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import type { RedisBed } from './redis.ts'
import { makeTree } from './tree.ts'

const FLEET_TREE = {
  'hello/handler.js': 'exports.handler = e => ({ trigger: e.context.trigger?.type ?? null })',
  'tick/handler.js': 'exports.handler = () => ({})',
  'tick/fn.config.json': { json: { schedule: { enabled: true, every_seconds: 3600, method: 'GET' } } },
}

export async function startMember(t: Test, redis: RedisBed, more: object = {}): Promise<Gateway> {
  const tree = makeTree(FLEET_TREE)
  t.teardown(tree.cleanup)
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: ['node'],
    storeUrl: redis.url,
    adminToken: 'a'.repeat(32),
    consoleWriteEnabled: true,
    ...more,
  })
  t.teardown(() => gateway.close())
  return gateway
}

export async function askAsAdmin(gateway: Gateway, method: string, url: string, body?: unknown) {
  const headers = { authorization: `Bearer ${'a'.repeat(32)}`, 'content-type': 'application/json' }
  const answer = await gateway.inject({
    method,
    url,
    headers,
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, body: JSON.parse(String(answer.body)) }
}
