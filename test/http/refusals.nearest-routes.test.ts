import t from 'tap'
import { NearestRoutes, nearestRoutes } from '../../lib/http/refusals.ts'
import { createGateway } from '../../lib/index.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

const GET = 1
const POST = 2
const leaves = [
  { pattern: '/', methods: GET },
  { pattern: '/hello', methods: GET | POST },
  { pattern: '/users', methods: POST },
  { pattern: '/users/:id', methods: GET },
  { pattern: '/users/:id/posts', methods: GET },
  { pattern: '/docs/:path*', methods: GET },
  { pattern: '/files/*', methods: GET },
]

t.test('[http/public.32] the routes that may have been meant', async t => {
  const cases: [path: string, nearest: string[]][] = [
    ['/helo', ['GET,POST /hello']],
    ['/HELLO', ['GET,POST /hello']],
    ['/user/7', ['GET /users/:id']],
    ['/users/7/post', ['GET /users/:id/posts', 'GET /users/:id', 'POST /users']],
    ['/doc/a/b/c', ['GET /docs/:path*']],
    ['/file', ['GET /files/*']],
    ['/user', ['POST /users']],
    ['/', ['GET /', 'GET,POST /hello', 'POST /users']],
    ['/quite/something/else', []],
    ['/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', []],
    [`/hello${'/'.repeat(300)}`, []],
    [`/${'h'.repeat(100)}`, []],
  ]
  for (const [path, wanted] of cases) {
    t.same(nearestRoutes(path, leaves), wanted, path.slice(0, 40))
  }
  t.same(nearestRoutes('/x', []), [])
  const many = Array.from({ length: 20_000 }, (_, i) => ({ pattern: `/route-${i}`, methods: GET }))
  t.same(nearestRoutes('/route-1x', many)[0], 'GET /route-1', 'bounded')
})

t.test('[http/public.32] looking takes a small part of the time', async t => {
  const clock = new FakeClock()
  const nearest = new NearestRoutes(clock)
  /** Leaves that take 2 ms to look at. */
  const slow = Object.assign([...leaves], {
    slice: () => {
      clock.stall(2)
      return leaves
    },
  })
  t.same(nearest.find('/helo', slow), ['GET,POST /hello'])
  t.same(nearest.find('/helo', slow), [])
  clock.advance(39)
  t.same(nearest.find('/helo', slow), [], 'for twenty times as long')
  clock.advance(1)
  t.same(nearest.find('/helo', slow), ['GET,POST /hello'])
  const quick = new NearestRoutes(clock)
  for (let i = 0; i < 3; i++) t.same(quick.find('/helo', leaves), ['GET,POST /hello'])
})

t.test('[http/public.20] 405 and 409 name the claims of their path in development, never in production', async t => {
  const tree = makeTree({
    'users/[id].js': 'export const handler = () => 1\n',
    'twice/index.js': 'export const handler = () => 1\n',
    'twice.py': 'def handler(event):\n    return 1\n',
  })
  t.teardown(tree.cleanup)
  const ask = async (production: boolean, method: string, url: string) => {
    const gateway = await createGateway({ functionsRoot: tree.root, production, inspect: true })
    const { status, json, headers } = await gateway.inject({ method, url })
    await gateway.close()
    return [status, json(), headers.allow]
  }
  const users = {
    error: 'method not allowed',
    detail: { hint: 'claims of this path: GET /users/:id is node/users/[id] (users/[id].js)' },
  }
  t.same(await ask(false, 'POST', '/users/7'), [405, users, 'GET, HEAD'])
  t.match((await ask(false, 'GET', '/twice'))[1], {
    detail: {
      hint: 'claims of this path: GET /twice is node/twice (twice/index.js); GET /twice is python/twice (twice.py)',
    },
  })
  t.same(await ask(true, 'POST', '/users/7'), [405, { error: 'method not allowed' }, 'GET, HEAD'])
  t.same((await ask(true, 'GET', '/twice'))[1], { error: 'ambiguous route' })
})

t.test('[http/public.32] a 404 names them in development, never in production', async t => {
  const tree = makeTree({
    'hello.js': 'export const handler = () => 1\n',
    'users/[id].js': 'export const handler = () => 1\n',
  })
  t.teardown(tree.cleanup)
  const ask = async (production: boolean, url: string) => {
    const gateway = await createGateway({ functionsRoot: tree.root, env: process.env, production })
    const { status, json, headers } = await gateway.inject(url)
    await gateway.close()
    return [status, json(), headers['content-type']]
  }
  t.same(await ask(false, '/helo'), [
    404,
    { error: 'not found', detail: { hint: 'nearest routes: GET /hello' } },
    'application/json',
  ])
  t.same(await ask(false, '/something-else-entirely'), [404, { error: 'not found' }, 'application/json'])
  t.same(await ask(true, '/helo'), [404, { error: 'not found' }, 'application/json'])
  t.same((await ask(false, '/_fn/helth'))[1], { error: 'not found' })
})
