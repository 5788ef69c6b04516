import t from 'tap'
import { ASSET_LISTING_MS, ASSET_SETTLE_MS, AssetNames } from '../../lib/assets/store.ts'
import { makeTree } from '../helpers/tree.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'

/** A clock whose times a test sets; `wall` is far ahead of the disk unless it says otherwise. */
function makeClock() {
  const clock = {
    now: 0,
    wallAt: Date.now() + 60_000,
    wall: () => clock.wallAt,
    monotonic: () => clock.now,
    setTimeout: () => 0 as never,
    clearTimeout: () => {},
  }
  return clock
}

t.test('[assets/static-assets.26] a list of names says what is absent, for a moment', async t => {
  const tree = makeTree({ 'public/a.txt': 'a', 'public/sub/b.txt': 'b' })
  t.teardown(tree.cleanup)
  const clock = makeClock()
  const names = new AssetNames(tree.path('public'), clock)
  const listed = () => waitUntil(() => names.isAbsent('nothing'), 'the list is made')
  t.equal(names.isAbsent('nothing'), false, 'before there is a list')
  await listed()
  for (const [name, isAbsent] of [
    ['a.txt', false],
    ['sub', false],
    ['sub/c.txt', false],
    ['sub/', false],
    ['a', true],
    ['A.TXT', true],
    ['nothing/deep', true],
    ['constructor', true],
  ] as const)
    t.equal(names.isAbsent(name), isAbsent, name)
  tree.write({ 'public/new.txt': 'new' })
  clock.now += ASSET_LISTING_MS / 2
  t.equal(names.isAbsent('new.txt'), true, 'the list of this moment')
  clock.now += ASSET_LISTING_MS
  t.equal(names.isAbsent('nothing'), false, 'too old, and a new one is made')
  await listed()
  t.equal(names.isAbsent('new.txt'), false)
  tree.remove('public')
  clock.now += ASSET_LISTING_MS + 1
  t.equal(names.isAbsent('nothing'), false)
  tree.write({ 'public/back.txt': 'x' })
  await waitUntil(() => {
    clock.now += ASSET_LISTING_MS
    return names.isAbsent('a.txt')
  }, 'a directory that comes back is listed')
  t.equal(names.isAbsent('back.txt'), false)
})

t.test('[assets/static-assets.26] a directory that just changed is read again, one that did not is not', async t => {
  const tree = makeTree({ 'public/a.txt': 'a' })
  t.teardown(tree.cleanup)
  const clock = makeClock()
  // As if the directory had changed this instant: its next change may bear the same time.
  clock.wallAt = Date.now() + ASSET_SETTLE_MS / 2 - 1000
  const names = new AssetNames(tree.path('public'), clock)
  await waitUntil(() => names.isAbsent('nothing'), 'listed')
  tree.write({ 'public/b.txt': 'b' })
  clock.wallAt = Date.now() + 60_000
  await waitUntil(() => {
    clock.now += ASSET_LISTING_MS / 2 + 1
    return !names.isAbsent('b.txt') && names.isAbsent('nothing')
  }, 'read again')
  t.pass()
})
