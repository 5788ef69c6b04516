import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { LooksAhead } from '../../lib/dependencies/looks-ahead.ts'
import { makeFn } from '../helpers/fn.ts'

function makeBed(isNeeded: (fn: FunctionVersion) => boolean) {
  const looked: string[] = []
  const told: string[] = []
  let now = 5
  const ahead = new LooksAhead({
    clock: { monotonic: () => now },
    isNeeded: fn => {
      looked.push(fn.name)
      return isNeeded(fn)
    },
    onReady: fn => told.push(`${fn.name} ready`),
    onNeeded: fn => told.push(`${fn.name} needed`),
  })
  return { ahead, looked, told, at: (ms: number) => (now = ms) }
}

const named = (name: string) => makeFn({ name })
const mapOf = (...functions: FunctionVersion[]) => new Map(functions.map(fn => [fn.key, fn]))

t.test('[dependencies/resolve.18] only of functions that need something a build is asked for', async t => {
  const bed = makeBed(fn => {
    if (fn.name === 'broken') throw new Error('missing pack')
    return fn.name === 'packed'
  })
  const all = ['plain', 'packed', 'broken', 'last'].map(named)
  for (const fn of all) bed.ahead.add(fn)
  t.same(bed.looked, [], 'none within the turn of the caller')
  while (bed.told.length < 4) await setImmediate()
  t.same(
    bed.told,
    ['plain ready', 'packed needed', 'broken needed', 'last ready'],
    'whoever builds tells what is wrong',
  )
  t.same(bed.looked.length, 4, 'each once')
})

t.test('[dependencies/resolve.18] of thousands that wait nothing is kept but their places in the line', async t => {
  const bed = makeBed(() => false)
  const all = Array.from({ length: 100 }, (_, i) => named(`f${i}`))
  for (const fn of all) bed.ahead.add(fn)
  t.equal(bed.ahead.waitsSince(all[99]!), 5)
  await setImmediate()
  t.ok(bed.looked.length <= 16, 'as many as a turn has time for')
  t.equal(bed.ahead.waitsSince(all[0]!), null)
  t.equal(bed.ahead.waitsSince(all[99]!), 5)
  while (bed.told.length < 100) await setImmediate()
  t.same(
    bed.looked,
    all.map(fn => fn.name),
    'in order',
  )
  t.equal(bed.ahead.waitsSince(all[99]!), null)
})

t.test(
  '[dependencies/resolve.18] what is gone, another version or asked for after the end is not looked at',
  async t => {
    const bed = makeBed(() => false)
    const [kept, gone, old] = [named('kept'), named('gone'), makeFn({ name: 'moved', signature: '1' })]
    for (const fn of [gone, old, kept]) bed.ahead.add(fn)
    bed.ahead.retain(mapOf(kept, makeFn({ name: 'moved', signature: '2' })))
    while (bed.told.length < 1) await setImmediate()
    t.same([bed.told, bed.looked], [['kept ready'], ['kept']])
    bed.ahead.add(kept)
    bed.ahead.close()
    while (bed.ahead.waitsSince(kept) !== null) await setImmediate()
    t.same(bed.looked, ['kept'])
  },
)
