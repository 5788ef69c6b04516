import t from 'tap'
import type { CorsPolicy, Policy } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { createGateway } from '../../lib/gateway/gateway.ts'
import type { Step } from '../../lib/http/exchange.ts'
import { toHomeSteps } from '../../lib/http/home.ts'
import { inject } from '../../lib/http/inject.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { makeTree } from '../helpers/tree.ts'

const A = 'https://a.example'
const B = 'https://b.example'

const cors = (fields: Partial<CorsPolicy> = {}): CorsPolicy => ({
  origins: [A],
  methods: [],
  headers: [],
  expose: [],
  credentials: false,
  maxAgeSeconds: 600,
  ...fields,
})

const fn = (name: string, policy: Partial<Policy>) => makeFn({ name, policy })

function make(routes: Parameters<typeof makePublic>[0], before: Step[] = []) {
  const made = makePublic(routes, { before })
  const ask = (url: string, headers: Record<string, string> = {}, method = 'GET', body: string | null = null) =>
    inject(made.handle, { url, headers, method, body })
  const preflight = (url: string, method: string, origin: string | null = A, asked: string | null = null) =>
    ask(
      url,
      {
        ...(origin !== null && { origin }),
        'access-control-request-method': method,
        ...(asked !== null && { 'access-control-request-headers': asked }),
      },
      'OPTIONS',
    )
  return { ...made, ask, preflight }
}

/** Cross-origin headers of an answer, with Vary. */
function corsOf(headers: Record<string, string>): Record<string, string> {
  const kept = Object.entries(headers).filter(([name]) => name === 'vary' || name.startsWith('access-control-'))
  return Object.fromEntries(kept.map(([name, value]) => [name.replace('access-control-', ''), value]))
}

t.test('[http/cors.1] off by default', async t => {
  const { ask, preflight, runtime } = make({ '/a': fn('a', { methods: ['GET', 'POST'] }) })
  runtime.answer = (call, own) => own.reply(call, 200, { 'Access-Control-Allow-Origin': 'https://own.example' })
  const answer = await ask('/a', { origin: A })
  t.same(corsOf(answer.headers), { 'allow-origin': 'https://own.example' }, "a handler's own headers")
  const refused = await preflight('/a', 'POST')
  t.equal(refused.status, 405)
  t.equal(refused.headers.allow, 'GET, HEAD, POST')
  t.same(corsOf(refused.headers), {})
  t.equal((await preflight('/missing', 'GET')).status, 404)
})

t.test('[http/cors.2, http/cors.3, http/cors.4] answers to origins', async t => {
  const all = cors({ origins: ['*'], expose: ['x-total'] })
  const full = cors({ origins: [A, B], credentials: true, expose: ['x-total', 'x-page'] })
  const { ask, runtime } = make({
    '/list': fn('list', { cors: cors({ origins: [A, B] }) }),
    '/full': fn('full', { cors: full }),
    '/all': fn('all', { cors: all }),
    '/mixed': fn('mixed', { cors: cors({ origins: ['*', A] }) }),
    '/unsafe': fn('unsafe', { cors: cors({ origins: ['*', A], credentials: true }) }),
    '/null': fn('null', { cors: cors({ origins: ['null'] }) }),
  })
  const vary = 'Origin'
  for (const [path, origin, expected] of [
    ['/list', A, { 'allow-origin': A, vary }],
    ['/list', B, { 'allow-origin': B, vary }],
    ['/list', 'https://c.example', { vary }],
    ['/list', 'https://a.example.evil', { vary }],
    ['/list', 'http://a.example', { vary }],
    ['/list', `${A}:8443`, { vary }],
    ['/list', `${A}, ${B}`, { vary }],
    ['/list', 'HTTPS://A.EXAMPLE', { vary }],
    ['/list', 'null', { vary }],
    ['/list', '*', { vary }],
    ['/list', '', { vary }],
    ['/list', null, { vary }],
    ['/full', B, { 'allow-origin': B, 'allow-credentials': 'true', 'expose-headers': 'x-total, x-page', vary }],
    ['/full', 'https://c.example', { vary }],
    ['/all', A, { 'allow-origin': '*', 'expose-headers': 'x-total' }],
    ['/all', 'null', { 'allow-origin': '*', 'expose-headers': 'x-total' }],
    ['/all', null, { 'allow-origin': '*', 'expose-headers': 'x-total' }],
    ['/mixed', B, { 'allow-origin': '*' }],
    ['/unsafe', A, { 'allow-origin': A, 'allow-credentials': 'true', vary }],
    ['/unsafe', B, { vary }],
    ['/null', 'null', { 'allow-origin': 'null', vary }],
    ['/null', A, { vary }],
  ] as [string, string | null, Record<string, string>][]) {
    const before = runtime.calls.length
    const answer = await ask(path, origin === null ? {} : { origin })
    t.equal(answer.status, 200)
    t.equal(runtime.calls.length, before + 1, 'the function runs for every origin')
    t.same(corsOf(answer.headers), expected, `${path} ${origin}`)
  }
})

t.test('[http/cors.5] errors', async t => {
  const { ask, runtime } = make({
    '/small': fn('small', { methods: ['POST'], maxBodyBytes: 3, cors: cors() }),
    '/busy': fn('busy', { maxConcurrency: 1, cors: cors() }),
    '/odd': fn('odd', { adapter: null, cors: cors() }),
    '/down': fn('down', { cors: cors() }),
    '/two': [fn('c', { cors: cors() }), fn('d', { cors: cors() })],
  })
  runtime.answer = (call, own) => {
    if (call.fn.name === 'down') own.fail(call, new GatewayError('RUNTIME_DOWN', 'runtime down'))
  }
  void ask('/busy')
  for (const [method, path, status] of [
    ['POST', '/small', 413],
    ['DELETE', '/small', 405],
    ['GET', '/busy', 429],
    ['GET', '/odd', 500],
    ['GET', '/down', 503],
  ] as const) {
    const answer = await ask(path, { origin: A }, method, method === 'POST' ? '1234' : null)
    t.equal(answer.status, status, path)
    t.same(corsOf(answer.headers), { 'allow-origin': A, vary: 'Origin' }, path)
  }
  t.same(corsOf((await ask('/small', { origin: B }, 'DELETE')).headers), { vary: 'Origin' })
  t.same(corsOf((await ask('/missing', { origin: A })).headers), {})
})

t.test('[http/cors.6, http/cors.7, http/cors.8] preflights', async t => {
  const { preflight, ask, runtime } = make({
    '/a': [
      fn('get', { methods: ['GET'], cors: cors({ maxAgeSeconds: 5 }) }),
      fn('put', { methods: ['PUT'], cors: cors({ credentials: true, headers: ['x-a', 'x-b'] }) }),
      fn('post', { methods: ['POST'], cors: cors({ origins: [B] }) }),
      fn('delete', { methods: ['DELETE'] }),
    ],
    '/all': fn('all', { methods: ['GET', 'PATCH'], cors: cors({ origins: ['*'], headers: ['*', 'authorization'] }) }),
    '/cut': fn('cut', { methods: ['GET', 'POST'], cors: cors({ methods: ['POST'], maxAgeSeconds: 0 }) }),
    '/named': fn('named', { cors: cors({ credentials: true, headers: ['*'] }) }),
  })
  const asks = 'access-control-request-method, access-control-request-headers'
  const vary = `Origin, ${asks}`
  const base = { 'allow-origin': A, 'allow-methods': 'GET, PUT', 'max-age': '600', vary }
  for (const [path, method, origin, asked, expected] of [
    ['/a', 'GET', A, null, { ...base, 'max-age': '5' }],
    ['/a', 'GET', A, 'x-one, X-Two', { ...base, 'max-age': '5', 'allow-headers': 'x-one, X-Two' }],
    ['/a', 'HEAD', A, null, { ...base, 'max-age': '5' }],
    ['/a', 'GET', A, 'x-one\u0001', { ...base, 'max-age': '5' }],
    ['/a', 'GET', A, 'x one, <x>', { ...base, 'max-age': '5' }],
    ['/a', 'PUT', A, 'x-c', { ...base, 'allow-credentials': 'true', 'allow-headers': 'x-a, x-b' }],
    ['/a', 'POST', A, null, { vary }],
    ['/a', 'POST', B, null, { ...base, 'allow-origin': B, 'allow-methods': 'POST' }],
    ['/a', 'GET', 'https://c.example', 'x-one', { vary }],
    [
      '/all',
      'PATCH',
      B,
      'x-one',
      {
        'allow-origin': '*',
        'allow-methods': 'GET, PATCH',
        'allow-headers': '*, authorization',
        'max-age': '600',
        vary: asks,
      },
    ],
    ['/cut', 'POST', A, null, { ...base, 'allow-methods': 'POST', 'max-age': '0' }],
    ['/cut', 'GET', A, null, { ...base, 'allow-methods': 'POST', 'max-age': '0' }],
    [
      '/named',
      'GET',
      A,
      'x-one',
      { ...base, 'allow-methods': 'GET', 'allow-credentials': 'true', 'allow-headers': 'x-one' },
    ],
  ] as [string, string, string, string | null, Record<string, string>][]) {
    const answer = await preflight(path, method, origin, asked)
    t.equal(answer.status, 204, `${path} ${method}`)
    t.equal(answer.body.length, 0)
    t.same(corsOf(answer.headers), expected, `${path} ${method} ${origin} ${asked}`)
  }
  for (const [path, method] of [
    ['/a', 'DELETE'],
    ['/a', 'PATCH'],
    ['/a', 'get'],
    ['/a', 'TRACE'],
    ['/a', ''],
  ] as const) {
    const refused = await preflight(path, method)
    t.equal(refused.status, 405, `${path} ${method}`)
    t.equal(refused.headers.allow, 'GET, HEAD, POST, PUT, DELETE')
  }
  t.equal((await preflight('/a', 'GET', null)).status, 405, 'without an origin')
  t.equal((await ask('/a', { origin: A }, 'OPTIONS')).status, 405, 'without a method')
  t.equal(runtime.calls.length, 0)
})

t.test('[http/cors.9] methods that are not listed', async t => {
  const { ask } = make({ '/a': fn('a', { methods: ['GET', 'POST'], cors: cors({ methods: ['GET'], expose: ['x'] }) }) })
  t.match(corsOf((await ask('/a', { origin: A })).headers), { 'allow-origin': A })
  t.match(corsOf((await ask('/a', { origin: A }, 'HEAD')).headers), { 'allow-origin': A })
  t.same(corsOf((await ask('/a', { origin: A }, 'POST')).headers), { vary: 'Origin' })
})

t.test("[http/cors.10] a handler's own headers", async t => {
  const { ask, runtime } = make({
    '/a': fn('a', { cors: cors() }),
    '/s': fn('s', { cors: cors({ origins: ['*'], methods: ['PUT'] }) }),
  })
  runtime.answer = (call, own) =>
    own.reply(call, 200, {
      'access-control-allow-origin': '*',
      'Access-Control-Allow-Credentials': 'true',
      Vary: 'Accept',
      'Access-Controlled': 'x',
    })
  const answer = await ask('/a', { origin: A })
  t.same(corsOf(answer.headers), { 'allow-origin': A, vary: 'Accept, Origin' })
  t.equal(answer.headers['access-controlled'], 'x')
  t.same(corsOf((await ask('/s', { origin: A })).headers), { vary: 'Accept' }, 'also when none takes its place')
  runtime.answer = (call, own) => {
    own.stream(call, { headers: { 'Access-Control-Allow-Origin': 'https://own.example' } })
    own.end(call)
  }
  t.same(corsOf((await ask('/a', { origin: A })).headers), { 'allow-origin': A, vary: 'Origin' }, 'a stream')
})

t.test('[http/cors.11] hosts and homes', async t => {
  const before: Step[] = []
  const made = make(
    {
      '/h': fn('h', { allowHosts: ['a.test'], cors: cors() }),
      '/home': fn('home', { methods: ['GET'], cors: cors() }),
      '/f/home': fn('f/home', { methods: ['GET'], cors: cors() }),
      '/f': fn('f', { methods: ['POST'], cors: cors({ origins: [B] }) }),
    },
    before,
  )
  const action = { route: '/home', redirect: null, origin: 'fn.config.json' }
  const homes = [
    { ...action, folder: '/' },
    { ...action, route: '/f/home', folder: '/f' },
  ]
  before.push(
    ...toHomeSteps({ homes, homeFunction: null, homeRedirect: null, routes: made.catalog.routes, isAsset: () => false })
      .before,
  )
  t.equal((await made.preflight('http://a.test/h', 'GET')).status, 204)
  t.equal((await made.preflight('http://b.test/h', 'GET')).status, 405)
  t.match(corsOf((await made.preflight('/', 'GET')).headers), { 'allow-origin': A, 'allow-methods': 'GET' })
  t.match(corsOf((await made.preflight('/f', 'GET')).headers), { 'allow-origin': A })
  t.match(corsOf((await made.preflight('/f', 'POST', B)).headers), { 'allow-origin': B })
})

t.test('[http/cors.1, http/cors.2, http/cors.11] inherited and turned off in a tree', async t => {
  const tree = makeTree({
    'fn.config.json': { json: { cors: { origins: ['https://A.example'] }, assets: { directory: 'public' } } },
    'public/font.woff2': 'font',
    'on.js': '',
    'off/fn.config.json': { json: { cors: false } },
    'off/x.js': '',
    'own/fn.config.json': { json: { cors: { origins: ['*'], credentials: true } } },
    'own/x.js': '',
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, inspect: true })
  t.teardown(() => gateway.close())
  for (const [path, expected] of [
    ['/on', { 'allow-origin': A, vary: 'Origin' }],
    ['/off/x', {}],
    ['/own/x', { 'allow-origin': '*' }],
    ['/font.woff2', {}],
  ] as const)
    t.same(corsOf((await gateway.inject({ url: path, headers: { origin: A } })).headers), expected, path)
})
