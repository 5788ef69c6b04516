import t from 'tap'
import type { Claim } from '../../lib/core/catalog.ts'
import { METHODS } from '../../lib/core/identity.ts'
import { parseHost, type RouteEntry, settle } from '../../lib/router/settle.ts'
import { makeClaim } from '../helpers/claims.ts'

function entryOf(claim: Claim): RouteEntry {
  return { claim, hosts: claim.hosts.map(parseHost), forceUrl: false, isAddress: false }
}

const nameOf = ({ claim }: RouteEntry): string => claim.fn.name

t.test('[router/route-table.2] one owner per method, the rest on record', async t => {
  const file = entryOf(makeClaim('GET,PUT /x', { fn: 'file' }))
  const config = entryOf(makeClaim('GET,POST /x', { fn: 'config', source: 'config' }))
  const settlement = settle([config, file])
  t.same(
    METHODS.map((_, index) => settlement.owners[index] ?? null).map(owner => owner && nameOf(owner.entry)),
    ['file', 'config', 'file', null, null],
  )
  t.same(
    settlement.losses.map(({ entry, winner, methods }) => [nameOf(entry), nameOf(winner), methods]),
    [['config', 'file', ['GET']]],
  )
  t.same(settlement.ownedMethods(config), ['POST'])
  t.same(settlement.ownedMethods(file), ['GET', 'PUT'])
  t.equal(settlement.owners[0], settlement.owners[2], 'methods with one owner share a owner')
})

t.test('[router/route-table.6, router/route-table.18] rivals are those who want the same hosts', async t => {
  const a = entryOf(makeClaim('GET /x', { fn: 'a', hosts: ['a.test', 'ab.test'] }))
  const b = entryOf(makeClaim('GET /x', { fn: 'b', hosts: ['b.test', 'ab.test'] }))
  const c = entryOf(makeClaim('GET /x', { fn: 'c', hosts: ['c.test'] }))
  const settlement = settle([c, b, a])
  const owners = []
  for (let owner = settlement.owners[0] ?? null; owner !== null; owner = owner.next) owners.push(owner)
  t.same(
    owners.map(({ entry, rivals }) => [nameOf(entry), rivals.map(nameOf)]),
    [
      ['a', ['b']],
      ['b', ['a']],
      ['c', []],
    ],
  )
  t.same(
    settlement.conflicts.map(({ entries, methods }) => [entries.map(nameOf), methods]),
    [[['a', 'b'], ['GET']]],
  )
  t.same(settlement.ownedMethods(a), ['GET'], 'a.test is its own')
  const whole = settle([entryOf(makeClaim('GET /x', { fn: 'a' })), entryOf(makeClaim('GET /x', { fn: 'b' }))])
  t.same(whole.ownedMethods(whole.entries[0]!), [])
})

t.test('[router/route-table.6] a thousand equal claims do not take the square of the memory', async t => {
  const entries = Array.from({ length: 1000 }, (_, index) => entryOf(makeClaim('GET /x', { fn: `f${index}` })))
  const settlement = settle(entries)
  t.equal(settlement.conflicts[0]?.entries.length, 1000)
  for (let owner = settlement.owners[0] ?? null; owner !== null; owner = owner.next)
    if (owner.rivals.length !== 1) t.fail()
})

t.test(
  '[router/route-table.3, router/route-table.4, router/route-table.5, router/route-table.7] the stronger claim has the route',
  async t => {
    const claims = {
      file: entryOf(makeClaim('GET /x', { fn: 'file' })),
      manifest: entryOf(makeClaim('GET /x', { fn: 'manifest', source: 'manifest' })),
      config: entryOf(makeClaim('GET /x', { fn: 'config', source: 'config' })),
      forced: entryOf(makeClaim('GET /x', { fn: 'forced', source: 'config', forced: true })),
      rival: entryOf(makeClaim('GET /x', { fn: 'rival' })),
    }
    const ownerOf = (...names: (keyof typeof claims)[]) => {
      const settlement = settle(names.map(name => claims[name]))
      const { losses, conflicts } = settlement
      const owner = settlement.owners[0] ?? null
      const lost = losses.map(({ entry, winner }) => `${nameOf(entry)} to ${nameOf(winner)}`)
      return [owner && nameOf(owner.entry), lost, conflicts.length]
    }
    t.same(ownerOf('config', 'file'), ['file', ['config to file'], 0])
    t.same(ownerOf('file', 'manifest'), ['manifest', ['file to manifest'], 0])
    t.same(ownerOf('forced', 'manifest', 'file'), ['forced', ['manifest to forced', 'file to forced'], 0])
    t.same(
      ownerOf('file', 'rival', 'manifest'),
      ['manifest', ['file to manifest', 'rival to manifest'], 0],
      'no dispute is left',
    )
    t.equal(ownerOf('file', 'rival')[2], 1)
  },
)

t.test('[router/route-table.8] claims of one function are one', async t => {
  const two = [
    entryOf(makeClaim('GET,PUT /x', { fn: 'a' })),
    entryOf(makeClaim('GET /x', { fn: 'a', source: 'config' })),
  ]
  const settlement = settle(two)
  const { losses, conflicts } = settlement
  t.same([losses, conflicts], [[], []])
  t.equal(settlement.owners[0]?.entry, two[0])
  t.equal(settlement.owners[0]?.next, null)
})

t.test('[router/route-table.11] a listed route of a version is barred from a URL that is there', async t => {
  const version = entryOf(makeClaim('POST /x', { fn: 'v', version: 'v1', source: 'config' }))
  const get = entryOf(makeClaim('GET /x', { fn: 'get' }))
  const barred = settle([version, get])
  t.equal(barred.barred.get(version), get, 'whatever the methods')
  t.equal(barred.owners[1], null)
  t.match(
    barred.losses.map(({ entry, winner, methods }) => [nameOf(entry), nameOf(winner), methods]),
    [['v', 'get', ['POST']]],
  )
  const elsewhere = entryOf(makeClaim('GET /x', { fn: 'other', hosts: ['a.test'] }))
  const own = entryOf(makeClaim('POST /x', { fn: 'v', version: 'v1', source: 'config', hosts: ['b.test'] }))
  const free = settle([own, elsewhere])
  t.equal(free.barred.size, 0, 'for other hosts it is free')
  t.equal(free.owners[1]?.entry, own)
  t.equal(settle([version]).owners[1]?.entry, version)
  const address = { ...version, isAddress: true }
  t.equal(settle([address, get]).barred.size, 0, 'an address is its own')
})

t.test(
  '[router/route-table.2, router/route-table.17] hosts share a method, and what is covered is not asked',
  async t => {
    const everywhere = entryOf(makeClaim('GET /x', { fn: 'all', source: 'config' }))
    const some = entryOf(makeClaim('GET /x', { fn: 'some', hosts: ['a.test'] }))
    const settlement = settle([everywhere, some])
    const { losses } = settlement
    const chain = []
    for (let owner = settlement.owners[0] ?? null; owner !== null; owner = owner.next)
      chain.push([nameOf(owner.entry), owner.hosts?.length ?? 0])
    t.same(chain, [
      ['some', 1],
      ['all', 0],
    ])
    t.equal(losses.length, 1, 'for a.test')
    const covered = settle([entryOf(makeClaim('GET /x', { fn: 'c', source: 'config', hosts: ['a.test'] })), some])
    t.equal(covered.owners[0]?.next, null)
    const params = settle([entryOf(makeClaim('GET /x/:id', { fn: 'p' }))])
    t.same([params.owners[0]?.names, settlement.owners[0]?.names], [['id'], null])
  },
)

t.test('[router/route-table.2] a claim that nobody else wants owns its methods, and no others', async t => {
  const entry = entryOf(makeClaim('GET,PUT /x', { fn: 'a' }))
  const lone = settle([entry])
  t.same(lone.ownedMethods(entry), ['GET', 'PUT'])
  t.same(lone.ownedMethods(entryOf(makeClaim('GET /x', { fn: 'b' }))), [], 'another entry has nothing of it')
  t.equal(lone.owners[METHODS.indexOf('POST')], null)
  const owner = lone.owners[METHODS.indexOf('GET')]
  t.equal(owner?.entry, entry)
  t.equal(lone.owners[METHODS.indexOf('PUT')], owner)
  t.equal(lone.owners[METHODS.indexOf('GET')], owner, 'the same at each request')
})
