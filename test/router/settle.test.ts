import t from 'tap'
import type { Claim } from '../../lib/core/catalog.ts'
import { claimStrength, type ClaimStanding } from '../../lib/core/transitions.ts'
import { parseHost } from '../../lib/router/hosts.ts'
import { ownedMethods, type RouteEntry, settle } from '../../lib/router/settle.ts'
import { makeClaim } from '../helpers/claims.ts'

function entryOf(claim: Claim): RouteEntry {
  const { source, forced, fn } = claim
  const standing: ClaimStanding = { fnKey: fn.key, source, forced, versioned: fn.version !== null, forceUrl: false }
  return {
    claim,
    hosts: claim.hosts.map(parseHost),
    standing,
    strength: claimStrength(standing),
    isAddress: false,
  }
}

const nameOf = ({ claim }: RouteEntry): string => claim.fn.name

t.test('[router/route-table.2] one owner per method, the rest on record', async t => {
  const file = entryOf(makeClaim('GET,PUT /x', { fn: 'file' }))
  const config = entryOf(makeClaim('GET,POST /x', { fn: 'config', source: 'config' }))
  const settlement = settle([config, file])
  t.same(
    settlement.owners.map(owner => owner && nameOf(owner.entry)),
    ['file', 'config', 'file', null, null],
  )
  t.same(
    settlement.losses.map(({ entry, winner, methods }) => [nameOf(entry), nameOf(winner), methods]),
    [['config', 'file', ['GET']]],
  )
  t.same(ownedMethods(settlement, config), ['POST'])
  t.same(ownedMethods(settlement, file), ['GET', 'PUT'])
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
  t.same(ownedMethods(settlement, a), ['GET'], 'a.test is its own')
  const whole = settle([entryOf(makeClaim('GET /x', { fn: 'a' })), entryOf(makeClaim('GET /x', { fn: 'b' }))])
  t.same(ownedMethods(whole, whole.entries[0]!), [])
})

t.test('[router/route-table.6] a thousand equal claims do not take the square of the memory', async t => {
  const entries = Array.from({ length: 1000 }, (_, index) => entryOf(makeClaim('GET /x', { fn: `f${index}` })))
  const settlement = settle(entries)
  t.equal(settlement.conflicts[0]?.entries.length, 1000)
  for (let owner = settlement.owners[0] ?? null; owner !== null; owner = owner.next)
    if (owner.rivals.length !== 1) t.fail()
})
