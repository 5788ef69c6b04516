import { mkdirSync, renameSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { type Disk, NODE_DISK } from '../../lib/discovery/disk.ts'
import { Listings } from '../../lib/discovery/listings.ts'
import { makeTree } from '../helpers/tree.ts'

/** Listings of a tree in which nothing has changed for as long as the test wants. */
function makeBed(t: Test, agoMs: number) {
  const tree = makeTree({ 'a/x.js': '', 'a/sub/y.js': '', 'a/link.js': { symlink: 'x.js' }, 'b/z.js': '' })
  t.teardown(() => tree.cleanup())
  const listed: string[] = []
  const disk: Disk = {
    ...NODE_DISK,
    readdir: path => {
      listed.push(path.slice(tree.root.length + 1))
      return NODE_DISK.readdir(path)
    },
  }
  const clock = { now: Date.now() + agoMs }
  const listings = new Listings(() => clock.now, disk)
  const list = (path: string) => {
    const { readdir } = listings.disk
    return readdir(tree.path(path)).map(
      entry => `${entry.name} ${entry.isFile()} ${entry.isDirectory()} ${entry.isSymbolicLink()}`,
    )
  }
  return { tree, listings, listed, list, clock }
}

/** Returns when the clock of the file system has moved on since a folder changed. */
function tick(probe: string, folder: string): void {
  const { ctimeMs } = statSync(folder)
  do writeFileSync(probe, '')
  while (statSync(probe).ctimeMs <= ctimeMs)
}

t.test('[discovery/layouts.49] a folder that did not change is not listed again', async t => {
  const { tree, listings, listed, list } = makeBed(t, 60_000)
  const first = list('a').sort()
  t.same(first, ['link.js false false true', 'sub false true false', 'x.js true false false'])
  listings.beginPass()
  t.same(list('a').sort(), first)
  t.same(list('a').sort(), first)
  t.same(listed, ['a'])
  list('b')
  const changes: [string, () => void][] = [
    ['a new file', () => writeFileSync(tree.path('a/new.js'), '')],
    ['one that is gone', () => rmSync(tree.path('a/new.js'))],
    ['one of another name', () => renameSync(tree.path('a/x.js'), tree.path('a/y.js'))],
    ['a new folder', () => mkdirSync(tree.path('a/more'))],
    [
      'a link in the place of a folder',
      () => (rmSync(tree.path('a/more'), { recursive: true }), symlinkSync('sub', tree.path('a/more'))),
    ],
    [
      'another folder of that name',
      () => (renameSync(tree.path('a'), tree.path('c')), renameSync(tree.path('b'), tree.path('a'))),
    ],
  ]
  for (const [what, change] of changes) {
    listings.beginPass()
    list('a')
    tick(tree.path('tick'), tree.path('a'))
    change()
    // Who sets the one time back cannot set back the other.
    utimesSync(tree.path('a'), 1, 1)
    const before = listed.length
    const seen = list('a').sort()
    t.equal(listed.length, before + 1, what)
    const known = NODE_DISK.readdir(tree.path('a')).map(({ name }) => name)
    t.same(
      seen.map(line => line.split(' ')[0]),
      known.sort(),
      what,
    )
  }
  t.throws(() => list('nothing'), { code: 'ENOENT' })
})

t.test('[discovery/layouts.49] times that may be too coarse are not trusted', async t => {
  const { listings, listed, list, clock } = makeBed(t, 1000)
  list('a')
  list('a')
  t.equal(listed.length, 2, 'changed a second ago')
  clock.now -= 3_600_000
  list('a')
  t.equal(listed.length, 3, 'changed in the future')
  clock.now += 3_600_000 + 1500
  list('a')
  list('a')
  t.equal(listed.length, 4, 'changed long ago')
  listings.beginPass()
  listings.beginPass()
  list('a')
  t.equal(listed.length, 5, 'what was not listed in a whole pass is forgotten')
})
