import t from 'tap'
import type { Claim } from '../../lib/core/catalog.ts'
import { type Explanation, explain } from '../../lib/router/explain.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import { makeClaim } from '../helpers/claims.ts'
import { makeFn } from '../helpers/fn.ts'

function explained(claims: Claim[], method: string, path: string, host = ''): Explanation {
  return explain(buildRouteTable(claims, { functions: [], forceUrl: false }), method, path, host)
}

const CLAIMS = [
  makeClaim('GET /users/:id', { fn: 'file' }),
  makeClaim('/users/:name', { fn: 'config', source: 'config' }),
  makeClaim('POST /users/:id', { fn: 'post', source: 'manifest' }),
  makeClaim('GET /users/:id', { fn: 'hosted', hosts: ['api.test'], source: 'manifest' }),
  makeClaim('/users/*', { fn: 'rest', source: 'config', implied: true }),
  makeClaim('/users/:id', { fn: 'file', source: 'config' }),
  makeClaim('/other', { fn: 'other' }),
]

t.test('[router/route-table.20] the winner with its file and params, every loser with its rule', async t => {
  const { winner, refusal, losers } = explained(CLAIMS, 'GET', '/users/a%20b')
  t.match(winner, {
    file: 'file/file.js',
    pattern: '/users/:id',
    params: { id: 'a b' },
    source: 'file',
    origin: 'file/file.js',
  })
  t.equal(refusal, null)
  t.same(
    losers.map(({ name, rule, by }) => [name, rule, by]),
    [
      ['hosted', 'host', null],
      ['post', 'method', null],
      ['file', 'same-function', 'file/file.js'],
      ['config', 'taken', 'file/file.js'],
      ['rest', 'less-specific', 'file/file.js'],
    ],
  )
  for (const { reason } of losers) t.ok(reason.length > 10)
})

t.test('[router/route-table.20] each rule by which a claim loses its own route', async t => {
  const file = makeClaim('GET /x', { fn: 'a' })
  const rows: [string, Claim, string, RegExp][] = [
    [
      'file under a manifest',
      makeClaim('GET /x', { fn: 'm', source: 'manifest' }),
      'replaced',
      /fn\.routes\.json replaces/,
    ],
    ['file under force', makeClaim('GET /x', { fn: 'f', source: 'config', forced: true }), 'replaced', /forced/],
  ]
  for (const [name, winner, rule, reason] of rows) {
    t.match(
      explained([file, winner], 'GET', '/x').losers,
      [{ name: 'a', rule, reason, by: `${winner.fn.name}/${winner.fn.name}.js` }],
      name,
    )
  }
  const version = makeClaim('GET /x', { fn: 'v', version: 'v2', source: 'config' })
  t.match(explained([file, version], 'HEAD', '/x').losers, [
    { name: 'v', version: 'v2', rule: 'taken', reason: /a version/ },
  ])
})

t.test('[router/route-table.20] requests that nobody answers', async t => {
  const conflict = explained(
    [makeClaim('GET /x', { fn: 'a' }), makeClaim('GET /x', { fn: 'b' }), makeClaim('/*', { fn: 'c' })],
    'GET',
    '/x',
  )
  t.equal(conflict.winner, null)
  t.match(conflict.refusal, { status: 409, code: 'ROUTE_CONFLICT', message: 'ambiguous route' })
  t.same(
    conflict.losers.map(({ name, rule, by }) => [name, rule, by]),
    [
      ['a', 'conflict', 'b/b.js'],
      ['b', 'conflict', 'a/a.js'],
      ['c', 'less-specific', 'a/a.js'],
    ],
  )
  const hosted = [
    makeClaim('GET /x', { fn: 'a', hosts: ['a.test'] }),
    makeClaim('GET /x', { fn: 'b', hosts: ['b.test'] }),
    makeClaim('GET /x', { fn: 'c', hosts: ['a.test', 'b.test'] }),
  ]
  t.match(
    explained(hosted, 'GET', '/x', 'a.test')
      .losers.map(({ name, rule, by }) => [name, rule, by])
      .sort(),
    [
      ['a', 'conflict', 'c/c.js'],
      ['b', 'host', null],
      ['c', 'conflict', 'a/a.js'],
    ],
    'the one it is in conflict with on this host',
  )
  t.match(explained(CLAIMS, 'DELETE', '/other/x').refusal, { status: 404, allow: null })
  t.match(explained([makeClaim('GET /x', { fn: 'a' })], 'POST', '/x').refusal, { status: 405, allow: 'GET, HEAD' })
  t.match(explained([makeClaim('GET /x', { fn: 'a', hosts: ['a.test'] })], 'GET', '/x').refusal, { status: 421 })
  t.match(explained(CLAIMS, 'GET', '/%zz'), { refusal: { status: 400 }, winner: null, losers: [] })
  const address = buildRouteTable([], { functions: [makeFn({ name: 'a', version: 'v1' })], forceUrl: false })
  t.match(explain(address, 'GET', '/a@v1', '').winner, { name: 'a', version: 'v1', pattern: '/a@v1' })
})
