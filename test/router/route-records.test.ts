import t from 'tap'
import { countRecords, toDocumentedRoutes, toRecords } from '../../lib/router/route-records.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import { makeClaim } from '../helpers/claims.ts'
import { makeFn } from '../helpers/fn.ts'

t.test('[router/route-table.19] owners with the methods they own, in text order', async t => {
  const claims = [
    makeClaim('/z', { fn: 'z', source: 'config', forced: true, runtime: 'python' }),
    makeClaim('GET /a/:id', { fn: 'one' }),
    makeClaim('POST /a/:key', { fn: 'two', source: 'manifest', hosts: ['x.test'] }),
    makeClaim('/a/:id', { fn: 'three', source: 'config' }),
    makeClaim('GET /gone', { fn: 'gone', source: 'config' }),
    makeClaim('/gone', { fn: 'kept' }),
    makeClaim('GET,POST /c', { fn: 'c1' }),
    makeClaim('GET /c', { fn: 'c2' }),
  ]
  const table = buildRouteTable(claims, { functions: [], forceUrl: false })
  const { mapped_routes, mapped_route_conflicts, warnings } = toRecords(table)
  t.same(Object.keys(mapped_routes), ['/a/:id', '/a/:key', '/c', '/gone', '/z'])
  t.same(countRecords(table), { routes: 5, conflicts: 1 }, 'counted without being made')
  t.same(mapped_routes['/z'], [
    {
      runtime: 'python',
      name: 'z',
      fn_name: 'z',
      version: null,
      methods: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
      source: 'config',
      source_rank: 3,
      file: 'z/z.js',
      origin: 'z/fn.config.json',
      allow_hosts: [],
      force_url: true,
    },
  ])
  t.match(mapped_routes['/a/:id'], [
    { name: 'one', methods: ['GET'], source_rank: 1 },
    { name: 'three', methods: ['POST', 'PUT', 'PATCH', 'DELETE'], source_rank: 3 },
  ])
  t.match(mapped_routes['/a/:key'], [{ name: 'two', methods: ['POST'], source_rank: 2, allow_hosts: ['x.test'] }])
  t.match(mapped_routes['/gone'], [{ name: 'kept' }])
  t.equal(mapped_routes['/gone']?.length, 1, 'who owns nothing is not listed')
  t.same(
    mapped_routes['/c']?.map(({ name, methods }) => [name, methods]),
    [['c1', ['POST']]],
  )
  t.same(
    mapped_route_conflicts['/c']?.map(({ route, name, methods }) => [route, name, methods]),
    [
      ['/c', 'c1', ['GET']],
      ['/c', 'c2', ['GET']],
    ],
  )
  t.equal(warnings.length, 4)
})

t.test(
  '[router/route-table.19, http/openapi.1] the routes of the document, without addresses and disputed methods',
  async t => {
    const claims = [
      makeClaim('GET /b', { fn: 'b' }),
      makeClaim('GET,POST /a/:id', { fn: 'one' }),
      makeClaim('GET /a/:id', { fn: 'two' }),
      makeClaim('PUT /a/:name', { fn: 'put' }),
      makeClaim('GET /b', { fn: 'lost', source: 'config' }),
    ]
    const functions = [makeFn({ name: 'b', version: 'v1' })]
    const documented = toDocumentedRoutes(buildRouteTable(claims, { functions, forceUrl: false }))
    t.same(
      documented.map(({ pattern, owners }) => [
        pattern,
        owners.map(({ fn, methods }) => `${fn.name} ${methods.join()}`).sort(),
      ]),
      [
        ['/a/:id', ['one POST', 'put PUT']],
        ['/b', ['b GET']],
      ],
    )
  },
)
