import t from 'tap'
import { findRows, toRouteRows, toSentence } from '../../console/pages/routes/route-rows.ts'
import type { Explanation, RouteClaim } from '../../console/data/records.ts'

const claim = (name: string, part: Partial<RouteClaim> = {}): RouteClaim => ({
  runtime: 'node',
  name,
  fn_name: name,
  version: null,
  methods: ['GET'],
  source: 'file',
  source_rank: 1,
  force_url: false,
  origin: `${name}.js`,
  file: `${name}.js`,
  ...part,
})

t.test('[console/routes.2] rows: conflicts first, found by words', async t => {
  const rows = toRouteRows({
    mapped_routes: {
      '/a': [claim('a'), claim('b', { methods: ['POST'], runtime: 'lua', file: 'b.lua' })],
      '/c': [claim('c')],
    },
    mapped_route_conflicts: { '/x': [claim('x'), claim('y')] },
  })
  const names = (search: string): string[] => findRows(rows, search).map(row => row.claim.name)
  t.same(names(''), ['x', 'y', 'a', 'b', 'c'])
  t.same(names('  POST lua '), ['b'])
  t.same(names('conflict'), ['x', 'y'])
  t.same(names('/c'), ['c'])
  t.same(names('c.js nothing'), [])
})

t.test('[console/routes.1] who answers, in a sentence', async t => {
  const nobody: Explanation = {
    method: 'GET',
    path: '/users/7',
    host: '',
    winner: null,
    refusal: null,
    losers: [],
    beside: null,
    ignored: [],
    warnings: [],
  }
  const winner = {
    runtime: 'node',
    name: 'users/[id]',
    version: null,
    file: 'users/[id].js',
    pattern: '/users/:id',
    methods: ['GET'],
    hosts: [],
    source: 'file',
    origin: 'users/[id].js',
    forced: false,
    params: { id: '7' },
  }
  const refusal = { status: 405, message: 'method not allowed', allow: 'GET, HEAD' }
  const cases: [Partial<Explanation>, string][] = [
    [{ winner }, 'GET /users/7 is served by users/[id].js (node): route /users/:id, with id = "7".'],
    [{ winner: { ...winner, params: {} } }, 'GET /users/7 is served by users/[id].js (node): route /users/:id.'],
    [{ refusal }, 'GET /users/7 is not served: 405, method not allowed; allowed: GET, HEAD.'],
    [
      { refusal: { ...refusal, status: 404, message: 'not found', allow: null } },
      'GET /users/7 is not served: 404, not found.',
    ],
    [{}, 'GET /users/7 is not served by any function.'],
    [{ beside: { kind: 'asset', text: 'a file' } }, 'GET /users/7 is served by a file.'],
    [
      { beside: { kind: 'asset', text: 'a file' }, winner },
      'GET /users/7 is served by a file. The route /users/:id of users/[id].js has a lower priority.',
    ],
  ]
  for (const [part, sentence] of cases) t.equal(toSentence({ ...nobody, ...part }), sentence)
})
