import { request } from 'node:http'
import t from 'tap'
import { toPasswordHash } from '../../lib/config/password-hash.ts'
import type { Answer, Connection } from '../helpers/processes-bed.ts'
import { serveTwice } from '../helpers/processes-bed.ts'

const FILES = {
  'hello.js': 'export const handler = event => ({ hello: event.query.name ?? "world" })\n',
  'post.echo.js': 'export const handler = event => ({ bytes: (event.body ?? "").length })\n',
}

/** What may differ between two answers to the same request. */
const OWN = /"(?:latency_ms|worker_ms|total_ms|queue_ms|request_id|trace_id)":[^,}]+/g

function toFacts({ status, headers, text }: Answer): object {
  const { 'x-request-id': id, date, 'content-length': length, 'set-cookie': cookie, etag, ...rest } = headers
  return { status, rest, text: text.replace(OWN, '') }
}

t.test('[processes/processes.5] the control plane answers the same at every process', async t => {
  const { first, front } = await serveTwice(t, FILES, { uiEnabled: true, adminToken: 'a-token-of-the-test' })
  const foreign = { 'X-Forwarded-For': '203.0.113.9' }
  const requests: [string, NonNullable<Parameters<Connection['ask']>[1]>?][] = [
    ['/_fn/health'],
    ['/_fn/health?ready=1'],
    ['/_fn/health', { method: 'HEAD' }],
    ['/_fn/catalog'],
    ['/_fn/nope'],
    ['/_fn/health', { method: 'DELETE' }],
    ['/%5ffn/health'],
    ['/console'],
    ['/_fn/settings'],
    ['/_fn/catalog', { headers: foreign }],
    ['/_fn/reload', { method: 'POST', headers: { Origin: 'http://evil.example' } }],
    ['/_fn/invoke', { method: 'POST', body: '{"name":"hello","query":{"name":"x"}}' }],
    ['/_fn/invoke', { method: 'POST', body: '{ no json' }],
    [
      '/_fn/invoke',
      { method: 'POST', body: JSON.stringify({ name: 'post.echo', method: 'POST', body: 'x'.repeat(300_000) }) },
    ],
    ['/_fn/invoke', { method: 'POST', body: Buffer.alloc(3 * 1024 * 1024, 32), headers: { Expect: '100-continue' } }],
    ['/_fn/logs?file=error'],
    ['/_fn/metrics?format=json'],
  ]
  for (const [path, options] of requests) {
    const [here, there] = [await first.ask(path, options), await front.ask(path, options)]
    const { status } = here
    t.equal(there.status, status, `${options?.method ?? 'GET'} ${path}: ${status}`)
    if (!/health|metrics|settings/.test(path)) t.same(toFacts(there), toFacts(here), path)
    t.equal(there.headers['content-type'], here.headers['content-type'])
  }
})

t.test(
  '[processes/processes.5] who has logged in at one process is known at every other, and a client keeps its request id',
  async t => {
    const { first, front } = await serveTwice(t, FILES, {
      uiEnabled: true,
      consoleLoginApi: true,
      consoleLoginUsername: 'me',
      consoleLoginPasswordHash: toPasswordHash('correct horse'),
    })
    t.equal((await front.ask('/_fn/catalog')).status, 401)
    const body = JSON.stringify({ username: 'me', password: 'correct horse' })
    const login = await front.ask('/_fn/login', {
      method: 'POST',
      body,
      headers: { 'Content-Type': 'application/json' },
    })
    t.equal(login.status, 200, login.text)
    const cookie = String(login.headers['set-cookie']?.[0]).split(';')[0]!
    for (const connection of [first, front]) {
      const { status, headers } = await connection.ask('/_fn/catalog', {
        headers: { Cookie: cookie, 'X-Request-Id': 'mine' },
      })
      t.same([status, headers['x-request-id']], [200, 'mine'])
    }
    const wrong = JSON.stringify({ username: 'me', password: 'wrong' })
    const statuses: number[] = []
    for (let at = 0; at < 7; at++)
      statuses.push((await [first, front][at % 2]!.ask('/_fn/login', { method: 'POST', body: wrong })).status)
    t.same(statuses, [401, 401, 401, 401, 401, 429, 429], 'failed logins are counted together')
  },
)

t.test(
  '[processes/processes.5] an answer that goes on comes through a front as it is made, and ends when the client leaves',
  async t => {
    const { gateway, front } = await serveTwice(t, FILES)
    const answer = await front.open('/_fn/events')
    t.match(answer.headers['content-type'], /text\/event-stream/)
    answer.setEncoding('utf8')
    const seen = (async () => {
      let text = ''
      for await (const chunk of answer) {
        text += chunk
        if (text.includes('event: reload')) return true
      }
      return false
    })()
    await gateway.reload()
    t.equal(await seen, true)
    answer.destroy()
  },
)

t.test('[processes/processes.5] a request that leaves before its body is whole leaves nothing behind', async t => {
  const { url, front } = await serveTwice(t, FILES)
  const broken = request(new URL('/_fn/invoke', url), { method: 'POST', headers: { 'Content-Length': 1000 } })
  broken.on('error', () => {})
  broken.write('{"name":')
  await new Promise(resolve => broken.once('socket', socket => socket.once('connect', resolve)))
  broken.destroy()
  t.equal((await front.ask('/_fn/health')).status, 200)
})
