import t from 'tap'
import { buildRouteTable, RouteTableBuilder } from '../../lib/router/route-table.ts'
import { strengthOf } from '../../lib/router/settle.ts'
import { makeClaim } from '../helpers/claims.ts'
import { makeFn } from '../helpers/fn.ts'

const leavesOf = (table: ReturnType<typeof buildRouteTable>) =>
  table.leaves.map(({ pattern, methods }) => `${pattern} ${methods.toString(2)}`)

t.test('[router/route-table.1, router/radix-tree.5] one leaf for each shape, in the order of patterns', async t => {
  const claims = [
    makeClaim('GET /b', { fn: 'b' }),
    makeClaim('POST /a/:id', { fn: 'post' }),
    makeClaim('GET,DELETE /a/:name', { fn: 'get' }),
    makeClaim('GET /a', { fn: 'a' }),
  ]
  const table = buildRouteTable(claims, { functions: [], forceUrl: false })
  t.same(leavesOf(table), ['/a 1', '/a/:id 10011', '/b 1'])
  t.same(leavesOf(buildRouteTable([...claims].reverse(), { functions: [], forceUrl: false })), leavesOf(table))
})

t.test('[router/route-table.10, router/route-table.9, router/route-table.11] addresses of versions', async t => {
  const functions = [
    makeFn({ name: 'a' }),
    makeFn({ name: 'a', version: 'v1', policy: { methods: ['POST'] } }),
    makeFn({ name: 'users/[id]', version: 'v1' }),
    makeFn({ name: 'a', version: 'v 2' }),
    makeFn({ name: `${'n/'.repeat(70)}x`, version: 'v1' }),
  ]
  for (const forceUrl of [false, true]) {
    const table = buildRouteTable([], { functions, forceUrl })
    t.same(leavesOf(table), ['/a@v1 10'])
    t.equal(table.leaves[0]?.entries[0]?.isAddress, true)
    t.equal(strengthOf(table.leaves[0]!.entries[0]!), 0, 'an address is never forced')
    t.match(table.warnings, [{ code: 'INVALID_ROUTE', message: /cannot have the address/, hint: /shorter/ }])
  }
})

t.test('[router/route-table.5] FN_FORCE_URL forces config routes and those of versions', async t => {
  const claims = [
    makeClaim('/x', { fn: 'file' }),
    makeClaim('/x', { fn: 'config', source: 'config' }),
    makeClaim('/y', { fn: 'file' }),
    makeClaim('/y', { fn: 'v', version: 'v1', source: 'config' }),
  ]
  const owner = (forceUrl: boolean, index: number) =>
    buildRouteTable(claims, { functions: [], forceUrl }).leaves[index]?.owners[0]?.entry.claim.fn.name
  t.same([owner(false, 0), owner(false, 1)], ['file', 'file'])
  t.same([owner(true, 0), owner(true, 1)], ['config', 'v'])
})

t.test('[router/route-table.22] a reload settles what changed and keeps the rest', async t => {
  const builder = new RouteTableBuilder(false)
  const a = makeClaim('GET /a', { fn: 'a' })
  const b = makeClaim('GET /b', { fn: 'b' })
  const versions = [makeFn({ name: 'a', version: 'v1' })]
  const first = builder.build([a, b], versions)
  const [leafA, address, leafB] = first.leaves
  const second = builder.build([b, a], versions)
  t.same(
    second.leaves.map((leaf, index) => leaf === first.leaves[index]),
    [true, true, true],
  )
  const rival = makeClaim('GET /b', { fn: 'rival' })
  const third = builder.build([a, b, rival, makeClaim('GET /aa', { fn: 'aa' })], versions)
  t.same(
    third.leaves.map(({ pattern }) => pattern),
    ['/a', '/a@v1', '/aa', '/b'],
  )
  t.equal(third.leaves[0], leafA)
  t.equal(third.leaves[1], address)
  t.not(third.leaves[3], leafB)
  t.match(third.warnings, [{ code: 'ROUTE_CONFLICT' }])
  t.same(builder.build([a, b, rival], versions).warnings, third.warnings, 'warnings of kept routes stay')
  const last = builder.build([b], [])
  t.same(
    last.leaves.map(({ pattern }) => pattern),
    ['/b'],
  )
  t.same(last.warnings, [])
  t.same(leavesOf(last), leavesOf(buildRouteTable([b], { functions: [], forceUrl: false })))
})

/** The same numbers in each run. */
function makeRandom(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((state / 2_147_483_648) * below)
  }
}

const PARTS = ['a', 'ab', 'abc', 'b', ':id', ':name', 'a%2Fb', '%C3%A9']
const TAILS = ['', '', '', '/*', '/:rest*', '/:rest*?']

t.test(
  '[router/route-table.22, router/route-table.16] tables made of the ones before answer as those made anew, and those before as they did',
  async t => {
    const random = makeRandom(17)
    const pick = <T>(list: readonly T[]): T => list[random(list.length)]!
    const makeOne = (count: number) => {
      const path = Array.from({ length: 1 + random(3) }, () => pick(PARTS)).join('/')
      const route = `${pick(['GET ', 'POST ', 'GET,PUT ', ''])}/${path}${pick(TAILS)}`
      try {
        return makeClaim(route, { fn: `f${count}`, source: pick(['file', 'manifest', 'config'] as const) })
      } catch {
        // One name twice in a route.
        return makeClaim('GET /a', { fn: `f${count}` })
      }
    }
    const paths = [
      '/',
      '/a',
      '/ab',
      '/abc',
      '/a/b',
      '/a/ab/x',
      '/b/é/abc',
      '/%C3%A9',
      '/a%2Fb',
      '//a//ab',
      '/a/../b',
      '/x/y/z/w',
    ]
    const answersOf = (table: ReturnType<typeof buildRouteTable>) =>
      paths.flatMap(path =>
        ['GET', 'POST', 'PUT'].map(method => {
          const found = table.find(method, path, '')
          return found.kind === 'match'
            ? `${found.fn.key} ${found.pattern} ${JSON.stringify(found.params)}`
            : found.code
        }),
      )
    const builder = new RouteTableBuilder(false)
    let claims = Array.from({ length: 12 }, (_, index) => makeOne(index))
    const older: { table: ReturnType<typeof buildRouteTable>; answers: string[] }[] = []
    for (let round = 0; round < 150; round++) {
      if (random(3) > 0) claims = claims.toSpliced(random(claims.length), 0, makeOne(100 + round))
      if (random(3) > 0) claims = claims.toSpliced(random(claims.length), 1 + random(2))
      if (random(3) > 0) claims = claims.toSpliced(random(claims.length), 1, makeOne(1000 + round))
      if (random(20) === 0) claims = [...claims].reverse()
      const functions = claims.filter((_, index) => index % 3 === 0).map(({ fn }) => ({ ...fn, version: 'v1' }))
      const table = builder.build(claims, functions)
      const anew = buildRouteTable(claims, { functions, forceUrl: false })
      const answers = answersOf(table)
      t.same(answers, answersOf(anew), `answers of round ${round}`)
      t.same(leavesOf(table), leavesOf(anew), `leaves of round ${round}`)
      t.same(table.warnings, anew.warnings, `warnings of round ${round}`)
      older.push({ table, answers })
    }
    for (const { table, answers } of older)
      if (String(answersOf(table)) !== String(answers)) t.fail('an older table answers otherwise')
  },
)

t.test('[router/route-table.22] functions that lose their version or their address are forgotten', async t => {
  const builder = new RouteTableBuilder(false)
  const long = makeFn({ name: `${'n/'.repeat(70)}x`, version: 'v1' })
  const short = makeFn({ name: 'x', version: 'v1' })
  t.equal(builder.build([], [long, short]).warnings.length, 1)
  const table = builder.build([], [short])
  t.same(
    [table.warnings, leavesOf(table)],
    [[], leavesOf(buildRouteTable([], { functions: [short], forceUrl: false }))],
  )
  t.same(leavesOf(builder.build([], [])), [])
  t.equal(table.find('GET', '/x@v1', '').kind, 'match', 'the table before still has it')
})
