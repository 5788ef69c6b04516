import { once } from 'node:events'
import { readdirSync, readlinkSync } from 'node:fs'
import { get } from 'node:http'
import t from 'tap'
import { type GatewayBed, serveTree } from '../helpers/gateway-bed.ts'

const TREE = {
  'hello/handler.js': 'exports.handler = async e => ({ status: 201, headers: { "x-a": "b" }, body: e.body ?? "hi" })',
  'hello/fn.config.json': { json: { name: 'hello', runtime: 'node', invoke: { methods: ['GET', 'POST'] } } },
  'big/handler.js':
    'exports.handler = async () => ({ status: 200, body: (async function* () { for (let i = 0; i < 200; i++) yield Buffer.alloc(65536, 255) })() })',
  'slow/handler.js': 'exports.handler = () => new Promise(() => {})',
  'slow/fn.config.json': { json: { name: 'slow', runtime: 'node', timeout_ms: 60000 } },
}

interface Answer {
  status: number
  headers: Headers
  body: Record<string, unknown>
}

async function setup(t: Parameters<typeof serveTree>[0]): Promise<
  GatewayBed & {
    call: (method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<Answer>
    over: (id: string) => Promise<void>
  }
> {
  const bed = await serveTree(t, TREE, { consoleWriteEnabled: true })
  const call = async (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> => {
    const answer = await fetch(bed.url + path, {
      method,
      headers: { 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    const text = await answer.text()
    return {
      status: answer.status,
      headers: answer.headers,
      body: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>),
    }
  }
  const over = async (id: string): Promise<void> => {
    let tell: () => void = () => {}
    const told = new Promise<void>(resolve => (tell = resolve))
    const stop = bed.gateway.on('job', event => {
      if (event.id === id && ['done', 'failed', 'canceled'].includes(event.state)) tell()
    })
    const { status } = await bed.gateway.jobs.get(id)
    if (!['done', 'failed', 'canceled'].includes(status)) await told
    stop()
  }
  return { ...bed, call, over }
}

t.test('[control/jobs-endpoints.1, control/jobs-endpoints.2] make, list, read, delete', async t => {
  const { call, over, url } = await setup(t)
  t.same((await call('GET', '/_fn/jobs')).body, { jobs: [], next_cursor: null })
  const made = await call(
    'POST',
    '/_fn/jobs',
    { name: 'hello', method: 'POST', body: { a: 1 } },
    { 'idempotency-key': 'k' },
  )
  t.equal(made.status, 201)
  const id = String(made.body.id)
  t.equal(made.headers.get('location'), `/_fn/jobs/${id}`)
  const again = await call(
    'POST',
    '/_fn/jobs',
    { name: 'hello', method: 'POST', body: { a: 1 } },
    { 'idempotency-key': 'k' },
  )
  t.same([again.status, again.body.id, again.headers.get('idempotency-replayed')], [200, id, 'true'])
  await over(id)
  const read = await call('GET', `/_fn/jobs/${id}`)
  t.match(read, { status: 200, body: { id, status: 'done', result_status: 201, attempt: 1 } })
  const result = await call('GET', `/_fn/jobs/${id}/result`)
  t.match(result, {
    status: 200,
    body: { id, status: 201, headers: { 'x-a': 'b' }, is_base64: false, body: '{"a":1}' },
  })
  const raw = await fetch(`${url}/_fn/jobs/${id}/result?raw=1`)
  t.same(
    [
      await raw.text(),
      raw.headers.get('content-type'),
      raw.headers.get('x-content-type-options'),
      raw.headers.get('x-job-status'),
    ],
    ['{"a":1}', 'application/octet-stream', 'nosniff', '201'],
  )
  t.match(raw.headers.get('content-disposition'), /^attachment/)
  const head = await fetch(`${url}/_fn/jobs/${id}/result`, { method: 'HEAD' })
  t.same([head.status, await head.text()], [200, ''])
  const list = await call('GET', '/_fn/jobs?fn=hello&state=done&limit=1')
  t.match(list.body, { jobs: [{ id }], next_cursor: null })
  t.match(await call('DELETE', `/_fn/jobs/${id}`), { status: 200, body: { id, deleted: true } })
  t.match(await call('GET', `/_fn/jobs/${id}`), { status: 404, body: { error: 'job not found' } })
  t.match(await call('GET', `/_fn/jobs/${id}/result`), { status: 404 })
})

t.test('[control/jobs-endpoints.1] a result that is not there yet, or never will be', async t => {
  const { call, over } = await setup(t)
  const id = String((await call('POST', '/_fn/jobs', { name: 'slow' })).body.id)
  t.match(await call('GET', `/_fn/jobs/${id}/result`), {
    status: 202,
    body: { error: 'result not ready', max_attempts: 1 },
  })
  t.match(await call('DELETE', `/_fn/jobs/${id}`), { status: 200, body: { status: 'canceled', deleted: false } })
  await over(id)
  t.match(await call('GET', `/_fn/jobs/${id}/result`), {
    status: 404,
    body: { error: 'result not found', status: 'canceled' },
  })
})

t.test('[control/jobs-endpoints.1] pages of the list', async t => {
  const { call } = await setup(t)
  for (let index = 0; index < 5; index++) await call('POST', '/_fn/jobs', { name: 'hello', delay_ms: 100_000 })
  const ids: unknown[] = []
  for (let cursor: unknown = '0'; cursor !== null; ) {
    const { body } = await call('GET', `/_fn/jobs?limit=2&cursor=${cursor}`)
    ids.push(...(body.jobs as { id: string }[]).map(({ id }) => Number(id.split('-')[2])))
    cursor = body.next_cursor
  }
  t.same(ids, [5, 4, 3, 2, 1])
})

t.test('[control/jobs-endpoints.4] what is malformed is told, and nothing is kept of it', async t => {
  const { call } = await setup(t)
  const rows: [string, string, unknown, number, RegExp][] = [
    ['POST', '/_fn/jobs', '{', 400, /body is not JSON/],
    ['POST', '/_fn/jobs', '[]', 400, /must be a JSON object/],
    ['POST', '/_fn/jobs', '', 400, /got nothing/],
    ['POST', '/_fn/jobs', `{"name":"hello","context":${'{"a":'.repeat(200)}1${'}'.repeat(200)}}`, 400, /deeper/],
    ['POST', '/_fn/jobs', {}, 400, /name is missing/],
    ['POST', '/_fn/jobs', { name: '../../etc' }, 400, /name must be the name of a function/],
    ['POST', '/_fn/jobs', { name: 'none' }, 404, /unknown function/],
    ['POST', '/_fn/jobs', { name: 'hello', method: 'DELETE' }, 405, /method not allowed/],
    [
      'POST',
      '/_fn/jobs',
      { name: 'hello', method: 'POST', body: 'x'.repeat(1024 * 1024 + 1) },
      413,
      /payload too large/,
    ],
    ['POST', '/_fn/jobs', 'x'.repeat(8 * 1024 * 1024 + 1), 413, /too large/],
    ['GET', '/_fn/jobs?limit=0', undefined, 400, /limit must be an integer from 1 to 200/],
    ['GET', '/_fn/jobs?limit=x', undefined, 400, /limit/],
    ['GET', '/_fn/jobs?cursor=-1', undefined, 400, /cursor/],
    ['GET', '/_fn/jobs?state=gone', undefined, 400, /state must be one of queued, running/],
    ['GET', '/_fn/jobs?page=2', undefined, 400, /"page" is not known/],
    ['GET', '/_fn/jobs/..%2f..%2fx', undefined, 404, /./],
    ['GET', '/_fn/jobs/%00', undefined, 400, /./],
    ['GET', '/_fn/jobs/x', undefined, 404, /job not found/],
    ['DELETE', '/_fn/jobs/x', undefined, 404, /job not found/],
    ['GET', '/_fn/jobs/x/result', undefined, 404, /job not found/],
    ['GET', '/_fn/jobs/x/result?raw=maybe', undefined, 400, /raw must be one of 1, true/],
    ['PUT', '/_fn/jobs/x', {}, 405, /method not allowed/],
  ]
  for (const [method, path, body, status, error] of rows) {
    const answer = await call(method, path, body)
    t.same(
      [answer.status, error.test(String(answer.body.error))],
      [status, true],
      `${method} ${path} ${answer.body.error}`,
    )
  }
  t.same((await call('GET', '/_fn/jobs')).body, { jobs: [], next_cursor: null })
})

t.test(
  '[control/jobs-endpoints.3] a client that leaves in the midst of a result leaves no file open',
  { skip: process.platform !== 'linux' && 'counts in /proc' },
  async t => {
    const { call, over, url, until } = await setup(t)
    const id = String((await call('POST', '/_fn/jobs', { name: 'big' })).body.id)
    await over(id)
    const openParts = (): number =>
      readdirSync('/proc/self/fd').filter(fd => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`).includes('/results/')
        } catch {
          return false
        }
      }).length
    const req = get(`${url}/_fn/jobs/${id}/result`)
    const [res] = (await once(req, 'response')) as [import('node:http').IncomingMessage]
    await once(res, 'readable')
    await until(() => openParts() === 1, 'the result is being read')
    res.on('error', () => {})
    req.destroy()
    await until(() => openParts() === 0, 'the file is closed')
    for (const query of ['', '?raw=1']) {
      t.equal((await fetch(`${url}/_fn/jobs/${id}/result${query}`, { method: 'HEAD' })).status, 200)
      await until(() => openParts() === 0, `HEAD${query} leaves no file open`)
    }
    const { body } = await call('GET', `/_fn/jobs/${id}/result`)
    t.equal(Buffer.from(String(body.body_base64), 'base64').length, 200 * 65536, 'and another one gets all of it')
  },
)

t.test(
  '[control/jobs-endpoints.5, jobs/jobs.18, jobs/jobs.19] a finished job shows its input and runs again',
  async t => {
    const { call, over } = await setup(t)
    const headers = { authorization: 'Bearer s3cret' }
    const first = await call('POST', '/_fn/jobs', { name: 'hello', method: 'POST', body: 'one', headers })
    const path = `/_fn/jobs/${String(first.body.id)}`
    await over(String(first.body.id))
    t.match((await call('GET', path)).body.attempts, [
      { request_id: `${String(first.body.id)}.1`, status: 201, error: null },
    ])
    const input = await call('GET', `${path}/input`)
    t.match(input, { status: 200, body: { name: 'hello', body: 'one', headers: { authorization: '<hidden>' } } })
    const again = await call('POST', `${path}/retry`, { body: 'two' })
    t.equal(again.status, 201)
    t.equal(again.headers.get('location'), `/_fn/jobs/${String(again.body.id)}`)
    await over(String(again.body.id))
    t.match((await call('GET', `/_fn/jobs/${String(again.body.id)}/result`)).body, { body: 'two' })
    const waits = await call('POST', '/_fn/jobs', { name: 'hello', delay_ms: 60_000 })
    t.match(await call('POST', `/_fn/jobs/${String(waits.body.id)}/retry`, {}), {
      status: 409,
      body: { error: /only finished/ },
    })
    t.match(await call('POST', `${path}/retry`, { colour: 1 }), { status: 400 })
    t.match(await call('POST', '/_fn/jobs/job-1-1-000000000000/retry', {}), { status: 404 })
  },
)
