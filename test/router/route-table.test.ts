import t from 'tap'
import type { Claim, FunctionVersion } from '../../lib/core/catalog.ts'
import { METHODS } from '../../lib/core/identity.ts'
import { segmentsOf } from '../../lib/core/pattern.ts'
import { explain } from '../../lib/router/explain.ts'
import { normalizePath } from '../../lib/router/radix-tree.ts'
import { toRecords } from '../../lib/router/route-records.ts'
import { buildRouteTable, type RouteTable, RouteTableBuilder } from '../../lib/router/route-table.ts'
import { makeClaim } from '../helpers/claims.ts'
import { makeFn } from '../helpers/fn.ts'
import {
  naiveMatch,
  naiveOrder,
  naivePattern,
  naiveSegments,
  pairCount,
  randomPath,
  randomPattern,
  seed,
} from './naive-router.ts'
import { Random } from '../helpers/random.ts'

interface Options {
  functions?: FunctionVersion[]
  forceUrl?: boolean
}

function build(claims: Claim[], { functions = [], forceUrl = false }: Options = {}): RouteTable {
  return buildRouteTable(claims, { functions, forceUrl })
}

/** Looks up a path in any spelling, which must be well-formed. */
function find(table: RouteTable, method: string, path: string, host: string) {
  return table.find(method, normalizePath(path) as string, host)
}

/** `name` of the function that answers, else the status text such as `405 GET, HEAD`. */
function ask(table: RouteTable, request: string, host = 'localhost'): string {
  const [method = '', path = ''] = request.split(' ')
  const found = find(table, method, path, host)
  if (found.kind === 'match') return found.fn.version === null ? found.fn.name : `${found.fn.name}@${found.fn.version}`
  const status = explain(table, method, path, host).refusal?.status
  return found.allow === null ? `${status} ${found.message}` : `${status} ${found.allow}`
}

/** Asks what `rows` names and expects the answers it gives. */
function check(test: Pick<typeof t, 'same'>, table: RouteTable, rows: Record<string, string>): void {
  test.same(Object.fromEntries(Object.keys(rows).map(request => [request, ask(table, request)])), rows)
}

const CONFLICT = '409 ambiguous route'
const WRONG_HOST = '421 host not allowed'

t.test('[router/route-table.1] the order of claims does not matter', async t => {
  const claims = [
    makeClaim('GET,POST /x', { fn: 'a' }),
    makeClaim('GET /x', { fn: 'b' }),
    makeClaim('/x', { fn: 'c', source: 'config' }),
    makeClaim('/x', { fn: 'd', source: 'config', hosts: ['d.test'] }),
    makeClaim('PUT /x', { fn: 'e', source: 'manifest' }),
    makeClaim('/:p', { fn: 'f' }),
    makeClaim('DELETE /:q', { fn: 'g' }),
  ]
  const functions = [makeFn({ name: 'a', version: 'v2' }), makeFn({ name: 'a', version: 'v1' })]
  const text = (list: Claim[], fns: FunctionVersion[]): string =>
    JSON.stringify([
      toRecords(build(list, { functions: fns })),
      explain(build(list, { functions: fns }), 'GET', '/x', ''),
    ])
  const first = text(claims, functions)
  const random = new Random(1)
  for (let round = 0; round < 50; round++) {
    const shuffled = [...claims]
    for (let i = shuffled.length - 1; i > 0; i--) {
      const other = random.below(i + 1)
      const kept = shuffled[i]!
      shuffled[i] = shuffled[other]!
      shuffled[other] = kept
    }
    if (text(shuffled, [...functions].reverse()) !== first) t.fail('another order, another table')
  }
  t.ok(first.length > 1000)
})

t.test('[router/route-table.2, router/route-table.4] a file and a config route share a route', async t => {
  const table = build([
    makeClaim('GET /x', { fn: 'file' }),
    makeClaim('/x', { fn: 'config', source: 'config' }),
    makeClaim('GET /y', { fn: 'yfile', hosts: ['a.test'] }),
    makeClaim('GET /y', { fn: 'yconfig', source: 'config' }),
  ])
  check(t, table, { 'GET /x': 'file', 'HEAD /x': 'file', 'POST /x': 'config', 'DELETE /x': 'config' })
  t.equal(ask(table, 'GET /y', 'a.test'), 'yfile')
  t.equal(ask(table, 'GET /y', 'b.test'), 'yconfig')
  t.same(
    table.warnings.map(({ code, path }) => [code, path]),
    [
      ['ROUTE_TAKEN', 'config/fn.config.json'],
      ['ROUTE_TAKEN', 'yconfig/fn.config.json'],
    ],
  )
})

t.test('[router/route-table.3, router/route-table.4] which source keeps a route', async t => {
  const table = build([
    makeClaim('GET,POST /x', { fn: 'file' }),
    makeClaim('GET /x', { fn: 'manifest', source: 'manifest' }),
    makeClaim('/x', { fn: 'config', source: 'config' }),
  ])
  check(t, table, { 'GET /x': 'manifest', 'POST /x': 'file', 'PUT /x': 'config' })
  t.equal(table.warnings.filter(({ path }) => path === 'file/file.js').length, 0, 'a manifest was meant to win')
  const taken = table.warnings.filter(({ code }) => code === 'ROUTE_TAKEN')
  t.match(taken[0]!.message, /config\/fn\.config\.json: GET \/x already belongs to fn\.routes\.json/)
  t.match(taken[1]!.message, /config\/fn\.config\.json: POST \/x already belongs to the file route file\/file\.js/)
  t.match(taken[0]!.hint, /"force-url": true/)
  t.equal(taken.length, 2)
})

t.test('[router/route-table.5] force', async t => {
  const claims = (forced: boolean): Claim[] => [
    makeClaim('GET,POST /x', { fn: 'file' }),
    makeClaim('GET /x', { fn: 'manifest', source: 'manifest' }),
    makeClaim('GET,PUT /x', { fn: 'other', source: 'config' }),
    makeClaim('GET,PUT /x', { fn: 'forced', source: 'config', forced }),
  ]
  const table = build(claims(true))
  check(t, table, { 'GET /x': 'forced', 'PUT /x': 'forced', 'POST /x': 'file' })
  t.same(table.warnings, [], 'what was forced needs no warning')
  check(t, build(claims(false)), { 'GET /x': 'manifest', 'PUT /x': CONFLICT, 'POST /x': 'file' })
  check(t, build(claims(true), { forceUrl: true }), { 'GET /x': CONFLICT, 'PUT /x': CONFLICT, 'POST /x': 'file' })
  const config = [makeClaim('/y', { fn: 'file' }), makeClaim('/y', { fn: 'config', source: 'config' })]
  t.equal(ask(build(config, { forceUrl: true }), 'GET /y'), 'config')
  t.equal(
    ask(build([makeClaim('/y', { fn: 'a' }), makeClaim('/y', { fn: 'b' })], { forceUrl: true }), 'GET /y'),
    CONFLICT,
  )
})

t.test('[router/route-table.6, router/route-table.2] a conflict spoils what is disputed and nothing else', async t => {
  const table = build([
    makeClaim('GET,POST /x', { fn: 'a' }),
    makeClaim('GET,PUT /x', { fn: 'b' }),
    makeClaim('/:any', { fn: 'any' }),
    makeClaim('GET /users/:id', { fn: 'u1' }),
    makeClaim('GET /users/:name', { fn: 'u2' }),
    makeClaim('GET /h', { fn: 'h1', hosts: ['a.test', 'b.test'] }),
    makeClaim('GET /h', { fn: 'h2', hosts: ['b.test', 'c.test'] }),
    makeClaim('GET /w', { fn: 'w1', hosts: ['*.test'] }),
    makeClaim('GET /w', { fn: 'w2', hosts: ['a.test'] }),
    makeClaim('/dup', { fn: 'dup', source: 'config', runtime: 'python', implied: true }),
    makeClaim('/dup', { fn: 'dup', source: 'config', runtime: 'node', implied: true }),
  ])
  check(t, table, {
    'GET /x': CONFLICT,
    'HEAD /x': CONFLICT,
    'POST /x': 'a',
    'PUT /x': 'b',
    'DELETE /x': 'any',
    'GET /users/7': CONFLICT,
    'GET /dup': CONFLICT,
    'POST /dup': CONFLICT,
  })
  const hosts = { 'a.test': 'h1', 'b.test': CONFLICT, 'c.test': 'h2' }
  for (const [host, answer] of Object.entries(hosts)) t.equal(ask(table, 'GET /h', host), answer, host)
  t.equal(ask(table, 'GET /w', 'a.test'), CONFLICT)
  t.equal(ask(table, 'GET /w', 'b.test'), 'w1')
  const { mapped_route_conflicts: conflicts } = toRecords(table)
  t.same(Object.keys(conflicts), ['/dup', '/h', '/users/:id', '/w', '/x'])
  t.match(conflicts['/x'], [
    { route: '/x', name: 'a', methods: ['GET'], file: 'a/a.js', source_rank: 1 },
    { route: '/x', name: 'b', methods: ['GET'], file: 'b/b.js', source_rank: 1 },
  ])
  t.match(conflicts['/users/:id'], [{ route: '/users/:id' }, { route: '/users/:name' }])
  t.match(conflicts['/dup'], [{ runtime: 'node' }, { runtime: 'python' }])
  const warned = table.warnings.filter(({ code }) => code === 'ROUTE_CONFLICT')
  t.equal(warned.length, 5)
  t.match(
    warned[0]!.message,
    /^GET \/x is claimed with the same priority by the file route a\/a\.js, the file route b\/b\.js/,
  )
})

t.test('[router/route-table.6] three equal claims, all with different hosts and one without', async t => {
  const table = build([
    makeClaim('GET /x', { fn: 'a', hosts: ['a.test'] }),
    makeClaim('GET /x', { fn: 'b', hosts: ['b.test'] }),
    makeClaim('GET /x', { fn: 'c' }),
  ])
  t.equal(ask(table, 'GET /x', 'a.test'), CONFLICT)
  t.equal(ask(table, 'GET /x', 'b.test'), CONFLICT)
  t.equal(ask(table, 'GET /x', 'c.test'), 'c')
})

t.test('[router/route-table.7] a stronger claim ends a conflict', async t => {
  const table = build([
    makeClaim('GET,POST /x', { fn: 'a' }),
    makeClaim('GET,POST /x', { fn: 'b' }),
    makeClaim('GET /x', { fn: 'm', source: 'manifest' }),
    makeClaim('POST /x', { fn: 'late', source: 'config' }),
  ])
  check(t, table, { 'GET /x': 'm', 'POST /x': CONFLICT })
  t.same(
    toRecords(table).mapped_route_conflicts['/x']?.map(({ methods }) => methods),
    [['POST'], ['POST']],
  )
})

t.test('[router/route-table.8] claims of one function do not compete', async t => {
  const table = build([
    makeClaim('GET /x', { fn: 'a' }),
    makeClaim('GET,POST /x', { fn: 'a', source: 'config' }),
    makeClaim('GET /x', { fn: 'a' }),
    makeClaim('GET /u/:b', { fn: 'a' }),
    makeClaim('GET /u/:a', { fn: 'a' }),
  ])
  check(t, table, { 'GET /x': 'a', 'POST /x': 'a' })
  t.match(table.find('GET', '/u/7', ''), { params: { a: '7' }, pattern: '/u/:a' })
  t.same(table.warnings, [])
  t.same(toRecords(table).mapped_route_conflicts, {})
})

t.test('[router/route-table.9] an address that cannot be a pattern is left out, the rest stands', async t => {
  const functions = [makeFn({ name: `${'a/'.repeat(64)}b`, version: 'v1' }), makeFn({ name: 'a', version: 'v1' })]
  const table = build([], { functions })
  t.equal(ask(table, 'GET /a@v1'), 'a@v1')
  t.match(table.warnings, [
    { code: 'INVALID_ROUTE', message: /cannot have the address \/a\/.*@v1: it must have at most 64/ },
  ])
  t.equal(table.warnings.length, 1)
})

t.test('[router/route-table.10] pinned versions', async t => {
  const functions = [
    makeFn({ name: 'hello' }),
    makeFn({ name: 'hello', version: 'v1', policy: { methods: ['GET'] } }),
    makeFn({ name: 'hello', version: '2.0', policy: { methods: ['POST'], allowHosts: ['api.test'] } }),
    makeFn({ name: 'api/v1/users', version: 'beta-1' }),
    makeFn({ name: 'dup', version: 'v1', runtime: 'python' }),
    makeFn({ name: 'dup', version: 'v1', runtime: 'node' }),
    makeFn({ name: 'dup', version: 'v2', runtime: 'node' }),
    makeFn({ name: 'users/[id]', version: 'v1', kind: 'file' }),
  ]
  const table = build([makeClaim('/hello', { fn: 'hello', source: 'config', implied: true })], { functions })
  check(t, table, {
    'GET /hello': 'hello',
    'GET /hello@v1': 'hello@v1',
    'HEAD /hello@v1/': 'hello@v1',
    'GET /hello%40v1': 'hello@v1',
    'POST /hello@v1': '405 GET, HEAD',
    'GET /hello@2.0': '405 POST',
    'POST /hello@2.0': WRONG_HOST,
    'GET /hello@v3': '404 not found',
    'GET /hello@': '404 not found',
    'GET /nobody@v1': '404 not found',
    'GET /hello@v1/more': '404 not found',
    'GET /api/v1/users@beta-1': 'api/v1/users@beta-1',
    'GET /dup@v1': CONFLICT,
    'GET /dup@v2': 'dup@v2',
    'GET /users/[id]@v1': '404 not found',
  })
  t.equal(ask(table, 'POST /hello@2.0', 'api.test'), 'hello@2.0')
  t.match(table.find('GET', '/hello@v1', ''), { pattern: '/hello@v1', params: {} })
  const dynamic = build([makeClaim('/:page', { fn: 'page' }), makeClaim('/:all*', { fn: 'all' })], { functions })
  check(t, dynamic, { 'GET /hello@v1': 'hello@v1', 'POST /hello@v1': 'page', 'GET /hello@v9': 'page' })
  const literal = build([makeClaim('GET /hello@v1', { fn: 'file' })], { functions })
  t.equal(ask(literal, 'GET /hello@v1'), 'file', 'a route that was written out wins')
  const records = toRecords(table)
  t.same(Object.keys(records.mapped_routes), ['/hello'])
  t.same(Object.keys(records.mapped_route_conflicts), ['/dup@v1'])
})

t.test('[router/route-table.11] routes of a version config', async t => {
  const claims = [
    makeClaim('/x', { fn: 'x', source: 'config', implied: true }),
    makeClaim('/x', { fn: 'x', version: 'v2', source: 'config', forced: true, folder: 'x/v2' }),
    makeClaim('/free', { fn: 'x', version: 'v2', source: 'config', folder: 'x/v2' }),
    makeClaim('/two', { fn: 'x', version: 'v2', source: 'config' }),
    makeClaim('/two', { fn: 'x', version: 'v3', source: 'config' }),
    makeClaim('GET /f', { fn: 'f', source: 'config', forced: true }),
    makeClaim('GET /f', { fn: 'x', version: 'v2', source: 'config' }),
    makeClaim('GET /half', { fn: 'h' }),
    makeClaim('GET,POST /half', { fn: 'x', version: 'v2', source: 'config', folder: 'x/v2' }),
    makeClaim('GET /by-host', { fn: 'h', hosts: ['a.test'] }),
    makeClaim('GET /by-host', { fn: 'x', version: 'v2', source: 'config', hosts: ['b.test'] }),
  ]
  const table = build(claims)
  check(t, table, { 'GET /x': 'x', 'GET /free': 'x@v2', 'GET /two': CONFLICT, 'GET /f': 'f' })
  // Another method of a URL that is there is no free URL.
  check(t, table, { 'GET /half': 'h', 'POST /half': '405 GET, HEAD' })
  t.equal(ask(table, 'GET /by-host', 'b.test'), 'x@v2')
  t.match(explain(table, 'POST', '/half', ''), {
    winner: null,
    refusal: { status: 405 },
    losers: [{ rule: 'method' }, { rule: 'taken', version: 'v2', by: /h/ }],
  })
  t.equal(
    table.warnings.filter(({ code, message }) => code === 'ROUTE_TAKEN' && /GET,POST \/half/.test(message)).length,
    1,
  )
  t.match(
    table.warnings.find(({ path }) => path === 'x/v2/fn.config.json'),
    { code: 'ROUTE_TAKEN', hint: /call x@v2, or set FN_FORCE_URL=1/ },
  )
  check(t, build(claims, { forceUrl: true }), {
    'GET /x': 'x@v2',
    'GET /free': 'x@v2',
    'GET /two': CONFLICT,
    'GET /f': 'x@v2',
    'GET /half': 'x@v2',
    'POST /half': 'x@v2',
  })
})

t.test('[router/route-table.12, router/route-table.13] methods', async t => {
  const table = build([
    makeClaim('GET /x', { fn: 'get' }),
    makeClaim('DELETE,POST /x', { fn: 'write' }),
    makeClaim('PATCH /:any', { fn: 'any' }),
    makeClaim('POST /only', { fn: 'only' }),
    makeClaim('/all', { fn: 'all' }),
  ])
  check(t, table, {
    'GET /x': 'get',
    'HEAD /x': 'get',
    'POST /x': 'write',
    'PATCH /x': 'any',
    'PUT /x': '405 GET, HEAD, POST, PATCH, DELETE',
    'OPTIONS /x': '405 GET, HEAD, POST, PATCH, DELETE',
    'TRACE /x': '405 GET, HEAD, POST, PATCH, DELETE',
    'get /x': '405 GET, HEAD, POST, PATCH, DELETE',
    'HEAD /only': '405 POST, PATCH',
    'GET /only': '405 POST, PATCH',
    'OPTIONS /all': '405 GET, HEAD, POST, PUT, PATCH, DELETE',
    'PUT /other': '405 PATCH',
    'GET /x/y': '404 not found',
    'OPTIONS /x/y': '404 not found',
    'constructor /x': '405 GET, HEAD, POST, PATCH, DELETE',
  })
})

t.test('[router/route-table.14, router/route-table.17, router/route-table.18] hosts', async t => {
  const table = build([
    makeClaim('GET /x', { fn: 'a', hosts: ['a.test'] }),
    makeClaim('GET /x', { fn: 'b', hosts: ['b.test', '*.b.test'] }),
    makeClaim('POST /:any', { fn: 'any', hosts: ['a.test'] }),
    makeClaim('GET /:any', { fn: 'c', hosts: ['c.test'] }),
  ])
  const rows: [string, string, string][] = [
    ['GET /x', 'a.test', 'a'],
    ['HEAD /x', 'A.TEST.:80', 'a'],
    ['GET /x', 'b.test', 'b'],
    ['GET /x', 'sub.b.test', 'b'],
    ['GET /x', 'c.test', 'c'],
    ['GET /x', 'd.test', WRONG_HOST],
    ['GET /x', '', WRONG_HOST],
    ['POST /x', 'a.test', 'any'],
    ['POST /x', 'd.test', WRONG_HOST],
    ['PUT /x', 'd.test', '405 GET, HEAD, POST'],
    ['GET /x/y', 'd.test', '404 not found'],
  ]
  for (const [request, host, answer] of rows) t.equal(ask(table, request, host), answer, `${request} ${host}`)
  t.same(table.warnings, [])
})

t.test('[router/route-table.15] malformed paths', async t => {
  const table = build([makeClaim('/:all*?', { fn: 'all' })])
  for (const path of ['/%zz', '/..', '/%00', 'x', '']) {
    const { winner, refusal } = explain(table, 'GET', path, '')
    t.match([winner, refusal], [null, { status: 400, code: 'BAD_REQUEST', allow: null }], path)
  }
  t.match(table.find('GET', '/', ''), { kind: 'match' })
})

t.test('[router/route-table.16, router/radix-tree.14] answers belong to the one who asked', async t => {
  const table = build([makeClaim('/u/:__proto__/:constructor', { fn: 'u' }), makeClaim('/s', { fn: 's' })])
  const other = build([makeClaim('/u/:x/:y', { fn: 'u' })])
  const first = table.find('GET', '/u/1/2', '')
  const second = table.find('GET', '/u/3/4', '')
  other.find('GET', '/u/5/6', '')
  if (first.kind !== 'match' || second.kind !== 'match') throw new Error('both match')
  t.equal(JSON.stringify(first.params), '{"__proto__":"1","constructor":"2"}')
  t.equal(JSON.stringify(second.params), '{"__proto__":"3","constructor":"4"}')
  t.same(Object.keys(first.params), ['__proto__', 'constructor'])
  t.notOk('toString' in first.params)
  t.equal(({} as Record<string, unknown>).polluted, undefined)
  const shared = table.find('GET', '/s', '')
  t.throws(() => Object.assign(shared, { pattern: '/changed' }), 'an answer that is shared cannot be changed')
  if (shared.kind === 'match') t.throws(() => Object.assign(shared.params, { id: '1' }))
})

/** Who answers, by the rules of the page, every claim weighed anew for every request. */
function isHost({ hosts }: Claim, host: string): boolean {
  return hosts.length === 0 || hosts.some(rule => (rule.startsWith('*') ? host.endsWith(rule.slice(1)) : rule === host))
}

function naiveAnswer(claims: readonly Claim[], forceUrl: boolean, method: string, path: string, host: string): string {
  const segments = naiveSegments(path)
  if (segments === null) return '400'
  const wanted = method === 'HEAD' ? 'GET' : method
  const shapeOf = ({ pattern }: Claim): string => naivePattern(pattern.text).shape
  const isBarred = (claim: Claim): boolean =>
    claim.fn.version !== null &&
    !forceUrl &&
    claims.some(
      other =>
        other.fn.version === null &&
        shapeOf(other) === shapeOf(claim) &&
        // Every kind of host that the lists of this test speak of.
        ['', 'a.test', 'b.test', 'c.org', 'd.test'].some(name => isHost(other, name) && isHost(claim, name)),
    )
  const matching = claims.filter(
    claim => naiveMatch(naivePattern(claim.pattern.text), segments) !== null && !isBarred(claim),
  )
  const forHost = (claim: Claim): boolean => isHost(claim, host)
  const withMethod = matching.filter(({ methods }) => methods.some(name => name === wanted))
  const able = withMethod.filter(forHost)
  if (able.length === 0) {
    if (withMethod.length > 0) return '421'
    if (matching.length === 0) return '404'
    const names = METHODS.filter(name => matching.some(({ methods }) => methods.includes(name)))
    return `405 ${names.flatMap(name => (name === 'GET' ? ['GET', 'HEAD'] : [name])).join(', ')}`
  }
  able.sort((a, b) => naiveOrder(naivePattern(a.pattern.text), naivePattern(b.pattern.text)))
  const shape = shapeOf(able[0]!)
  const weight = ({ source, forced, fn }: Claim): number => {
    if (fn.version !== null) return forceUrl ? 9 : 0
    if (forced || (forceUrl && source === 'config')) return 8
    return { config: 1, file: 2, manifest: 3 }[source]
  }
  const here = able.filter(claim => shapeOf(claim) === shape)
  const most = Math.max(...here.map(weight))
  const holders = here.filter(claim => weight(claim) === most)
  return new Set(holders.map(({ fn }) => fn.key)).size > 1 ? '409' : holders[0]!.fn.key
}

t.test('[router/route-table.22] a table made from an earlier one is the one that is made anew', async t => {
  const start = seed()
  t.comment(`seed ${start}`)
  const random = new Random(start)
  for (const forceUrl of [false, true]) {
    const makeSome = () => {
      const text = `${METHODS.filter(() => random.below(2) === 0).join() || 'GET'} ${randomPattern(random)}`
      return makeClaim(text, {
        fn: random.pick(['f', 'g', 'h']),
        version: random.below(4) === 0 ? 'v1' : null,
        source: random.pick(['file', 'manifest', 'config'] as const),
        hosts: random.pick([[], ['a.test']]),
      })
    }
    const builder = new RouteTableBuilder(forceUrl)
    let claims = Array.from({ length: 60 }, makeSome)
    for (let round = 0; round < 60; round++) {
      claims = claims.filter(() => random.below(10) > 0)
      while (claims.length < 60) claims.splice(random.below(claims.length), 0, makeSome())
      const functions = [...new Set(claims.map(({ fn }) => fn))]
      const made = builder.build([...claims], functions)
      const anew = buildRouteTable([...claims], { functions, forceUrl })
      // As text: tap takes 100 ms to compare two such trees of objects.
      t.equal(JSON.stringify(made.leaves.map(shown)), JSON.stringify(anew.leaves.map(shown)))
      t.same(made.warnings, anew.warnings)
    }
  }
})

/** A leaf as data: what answers, who lost, in order. */
function shown({ pattern, methods, entries, losses, conflicts }: RouteTable['leaves'][number]) {
  const nameOf = ({ claim }: { claim: Claim }) => [
    claim.pattern,
    claim.fn.key,
    claim.origin,
    claim.methods,
    claim.hosts,
  ]
  return [
    [pattern, segmentsOf(entries[0]!.claim.pattern), methods, entries.map(nameOf)],
    losses.map(({ entry, winner, methods }) => [nameOf(entry), nameOf(winner), methods]),
    conflicts.map(({ entries, methods }) => [entries.map(nameOf), methods]),
  ]
}

t.test('[router/route-table.21, router/radix-tree.8] the table answers what a plain evaluation answers', async t => {
  const start = seed()
  t.comment(`seed ${start}`)
  const random = new Random(start)
  const count = pairCount(200_000)
  const hosts = [[], [], [], ['a.test'], ['b.test'], ['*.test'], ['a.test', 'c.org']]
  let done = 0
  while (done < count) {
    const patterns = Array.from({ length: 1 + random.below(8) }, () => randomPattern(random))
    const claims = Array.from({ length: 1 + random.below(14) }, () =>
      makeClaim(`${METHODS.filter(() => random.below(2) === 0).join() || 'GET'} ${random.pick(patterns)}`, {
        fn: random.pick(['f', 'g', 'h', 'k']),
        version: random.below(8) === 0 ? 'v1' : null,
        source: random.pick(['file', 'manifest', 'config', 'config'] as const),
        hosts: random.pick(hosts),
        forced: random.below(6) === 0,
      }),
    )
    const forceUrl = random.below(4) === 0
    const table = build(claims, { forceUrl })
    // A request of its own, and paths made from the patterns, so that most of them match something.
    for (let round = 0; round < 200; round++, done++) {
      const path = random.below(3) === 0 ? randomPath(random) : fill(random, random.pick(patterns))
      const method = random.pick([...METHODS, 'HEAD', 'OPTIONS'])
      const host = random.pick(['a.test', 'b.test', 'c.org', ''])
      const isPath = typeof normalizePath(path) === 'string'
      if (isPath !== (naiveSegments(path) !== null)) t.fail(`${path} is ${isPath ? '' : 'not '}taken for a path`)
      if (!isPath) continue
      const found = find(table, method, path, host)
      const answer =
        found.kind === 'match' ? found.fn.key : `${STATUS[found.code]}${found.allow === null ? '' : ` ${found.allow}`}`
      const expected = naiveAnswer(claims, forceUrl, method, path, host)
      const params = found.kind === 'match' ? JSON.stringify(Object.entries(found.params)) : ''
      const expectedParams =
        found.kind === 'match' ? JSON.stringify(naiveMatch(naivePattern(found.pattern), naiveSegments(path)!)) : ''
      if (answer !== expected || params !== expectedParams) {
        const shown = claims.map(({ pattern, methods, hosts, source, forced, fn }) => [
          pattern,
          methods.join(),
          hosts,
          source,
          forced,
          fn.key,
        ])
        t.fail('differs', { request: [method, path, host], forceUrl, answer, expected, params, expectedParams, shown })
        return
      }
      if (round % 50 === 0) {
        const { winner, refusal } = explain(table, method, path, host)
        t.equal(winner === null ? `${refusal?.status}` : 'match', found.kind === 'match' ? 'match' : answer.slice(0, 3))
      }
    }
  }
  t.ok(done >= count, `${done} pairs`)
})

const STATUS = { NOT_FOUND: 404, METHOD_NOT_ALLOWED: 405, ROUTE_CONFLICT: 409, HOST_NOT_ALLOWED: 421 }

/** A path that a pattern matches. */
function fill(random: Random, pattern: string): string {
  return pattern
    .split('/')
    .map(part => {
      if (part === '*' || part.endsWith('*')) return random.pick(['a', 'a/b', 'ab/%20/c'])
      if (part.endsWith('*?')) return random.pick(['', 'a', 'b/c'])
      return part.startsWith(':') ? random.pick(['a', 'b', 'ab', 'other', '%61', 'x%2Fy']) : part
    })
    .join('/')
}
