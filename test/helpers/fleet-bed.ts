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

/** Logs in with the admin token. @returns its cookie */
export async function logIn(gateway: Gateway): Promise<string> {
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ token: 'a'.repeat(32) })
  const answer = await gateway.inject({ method: 'POST', url: '/_fn/login', headers, body })
  return String(answer.headers['set-cookie']).split(';')[0]!
}

/** A request of a browser that is logged in. */
export async function askAsUser(gateway: Gateway, cookie: string, method: string, url: string, body?: unknown) {
  const headers = { cookie, 'content-type': 'application/json' }
  const text = body === undefined ? {} : { body: JSON.stringify(body) }
  const answer = await gateway.inject({ method, url, headers, ...text })
  const isJson = answer.headers['content-type']?.includes('json') === true
  return { status: answer.status, headers: answer.headers, body: isJson ? JSON.parse(String(answer.body)) : null }
}

export async function askAsAdmin(gateway: Gateway, method: string, url: string, body?: unknown) {
  const headers = { 'x-fn-admin-token': 'a'.repeat(32), 'content-type': 'application/json' }
  const answer = await gateway.inject({
    method,
    url,
    headers,
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, body: JSON.parse(String(answer.body)) }
}
