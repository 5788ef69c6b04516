import t from 'tap'
import { Contribution } from '../../lib/discovery/functions.ts'
import { makeFn } from '../helpers/fn.ts'

const FN = makeFn({ policy: { allowHosts: ['a.test'] } })
const request = (route: string): Parameters<Contribution['claim']>[0] => ({
  fn: FN,
  route,
  methods: ['GET'],
  source: 'config',
  forced: true,
  origin: 'a/fn.config.json',
  implied: false,
})

t.test('[discovery/layouts.23, discovery/layouts.25] a request becomes a claim', async t => {
  const part = new Contribution()
  t.equal(part.claim(request('/users/{id}/')), true)
  t.match(part.claims, [
    {
      pattern: { text: '/users/:id' },
      methods: ['GET'],
      hosts: ['a.test'],
      source: 'config',
      forced: true,
      implied: false,
    },
  ])
  t.equal(part.claims[0]?.fn, FN)
  t.equal(part.claims[0]?.origin, 'a/fn.config.json')
})

t.test(
  '[discovery/layouts.13, discovery/layouts.19] a request that cannot become a claim becomes a warning',
  async t => {
    const part = new Contribution()
    const rows: [string, string, RegExp][] = [
      ['users', 'INVALID_ROUTE', /route "users": it must start with "\/"/],
      ['/a/*/b', 'INVALID_ROUTE', /last segment/],
      ['/_fn/x', 'RESERVED_PREFIX', /route \/_fn\/x: \/_fn and \/console are reserved/],
      ['/%63onsole', 'RESERVED_PREFIX', /reserved/],
    ]
    for (const [route, code, message] of rows) {
      t.equal(part.claim(request(route)), false)
      t.match(part.warnings.pop(), { code, path: 'a/fn.config.json', message })
    }
    t.same(part.claims, [])
  },
)

t.test('[discovery/layouts.2] a folder adds the outcomes of folders below it, in order', async t => {
  const below = new Contribution()
  below.functions.push(FN)
  below.targets.push(FN)
  below.claim(request('/x'))
  below.homes.push({ folder: '/', route: '/x', redirect: null, origin: 'fn.config.json' })
  below.warn([{ code: 'A', path: 'a', message: 'a', hint: 'a' }])
  below.ignore('b.js', 'why')
  below.manifests.push({ runtime: 'node', folder: 'a' })
  const part = new Contribution()
  part.ignore('first.js', 'why')
  part.add(below)
  const { functions, targets, claims, homes, warnings, ignored, manifests } = part
  t.same(
    [functions.length, targets.length, claims.length, homes.length, warnings.length, manifests.length],
    Array(6).fill(1),
  )
  t.same(
    ignored.map(({ path }) => path),
    ['first.js', 'b.js'],
  )
  t.equal(claims[0], below.claims[0])
})

t.test('[discovery/layouts.2] the outcome of a folder becomes that of the folder above, in full', async t => {
  const other = makeFn({ name: 'other' })
  const rows: [string, (part: Contribution) => void][] = [
    ['one claim of one function', () => {}],
    ['another function', part => part.functions.push(other)],
    ['functions in another order', part => part.functions.unshift(other)],
    ['a claim of one that is none', part => part.claim({ ...request('/y'), fn: other })],
    ['a target', part => part.targets.push(other)],
    ['a home', part => part.homes.push({ folder: '/', route: '/x', redirect: null, origin: 'fn.config.json' })],
    ['a warning', part => part.warn([{ code: 'A', path: 'a', message: 'a', hint: 'a' }])],
    ['something ignored', part => part.ignore('b.js', 'why')],
    ['a manifest', part => part.manifests.push({ runtime: 'node', folder: 'a' })],
    ['a claim of another function', part => part.functions.splice(0, 1, other)],
  ]
  for (const [name, add] of rows) {
    const part = new Contribution()
    part.functions.push(FN)
    part.claim(request('/x'))
    add(part)
    const above = new Contribution()
    above.add(part)
    t.same(above, part, name)
  }
})
