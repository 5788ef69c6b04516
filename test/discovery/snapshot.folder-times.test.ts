import {
  chmodSync,
  mkdirSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import t, { type Test } from 'tap'
import { NODE_DISK } from '../../lib/discovery/disk.ts'
import { FolderTimes, readSnapshot, type Snapshot } from '../../lib/discovery/snapshot.ts'
import { asNobody } from '../helpers/as-nobody.ts'
import { snapshotOf } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

const ENTRIES: Record<string, TreeEntry> = {
  'a/x.js': 'x',
  'a/data.txt': '',
  'a/sub/y.js': 'y',
  'b/z.js': 'z',
  'c/fn.config.json': '{"timeout_ms": 100}',
  'c/handler.js': 'c',
  'd/e/f/g.js': 'g',
}

/** A tree in which nothing has changed for as long as the test wants, and what is asked of the disk. */
function makeBed(t: Test, agoMs: number, entries = ENTRIES) {
  const tree = makeTree(entries)
  t.teardown(() => tree.cleanup())
  const asked: string[] = []
  const listed: string[] = []
  const clock = { now: Date.now() + agoMs }
  const nameOf = (path: string) => path.slice(tree.root.length + 1)
  const stat = (path: string): Stats => {
    asked.push(nameOf(path))
    return statSync(path)
  }
  const disk = { ...NODE_DISK, stat }
  const times = new FolderTimes(() => clock.now, disk)
  const readdir: typeof NODE_DISK.readdir = path => {
    listed.push(nameOf(path))
    return NODE_DISK.readdir(path)
  }
  const options = { rootPath: tree.root, times, disk: { ...NODE_DISK, readdir } }
  let snapshot: Snapshot = snapshotOf(tree.root, options)
  listed.length = 0
  asked.length = 0
  return {
    tree,
    asked,
    clock,
    disk,
    times,
    /** Reads all of it again: which folders were listed, and what came of it. */
    read: async () => {
      listed.length = 0
      const previous = snapshot
      snapshot = await readSnapshot({ ...options, previous, changed: await times.findChanged(previous) })
      return { listed: [...listed].sort(), isSame: snapshot === previous, snapshot }
    },
    find: () => times.findChanged(snapshot),
  }
}

/** Returns when the clock of the file system has moved on since a folder changed. */
function tick(probe: string, folder: string): void {
  const { ctimeMs } = statSync(folder)
  do writeFileSync(probe, '')
  while (statSync(probe).ctimeMs <= ctimeMs)
  rmSync(probe)
}

t.test('[discovery/layouts.49] of a tree in which nothing changed no folder is listed', async t => {
  const { asked, read } = makeBed(t, 60_000)
  const { listed, isSame } = await read()
  t.same([listed, isSame], [[], true])
  // Each folder and each file that matters is looked at once.
  t.same(asked.sort(), [
    '',
    'a',
    'a/sub',
    'a/sub/y.js',
    'a/x.js',
    'b',
    'b/z.js',
    'c',
    'c/fn.config.json',
    'c/handler.js',
    'd',
    'd/e',
    'd/e/f',
    'd/e/f/g.js',
  ])
})

t.test('[discovery/layouts.49] every kind of change is found by times that are right', async t => {
  const cases: [string, string, (path: (name: string) => string) => void][] = [
    ['a new file', 'a', path => writeFileSync(path('a/new.js'), '')],
    ['a file of data', 'a', path => writeFileSync(path('a/more.txt'), '')],
    ['a file that is gone', 'a', path => rmSync(path('a/x.js'))],
    ['a file of another name', 'a', path => renameSync(path('a/x.js'), path('a/w.js'))],
    ['a longer file', 'a', path => writeFileSync(path('a/x.js'), 'longer')],
    [
      'a longer file of the same time',
      'a',
      path => {
        writeFileSync(path('a/x.js'), 'longer')
        utimesSync(path('a/x.js'), 1, 1)
      },
    ],
    ['a file of the same size, later', 'a', path => utimesSync(path('a/x.js'), 5, 5)],
    ['a file in the depth', 'd/e/f', path => writeFileSync(path('d/e/f/g.js'), 'longer')],
    ['a new folder', 'a', path => mkdirSync(path('a/more'))],
    ['a folder that is gone', 'a', path => rmSync(path('a/sub'), { recursive: true })],
    [
      'a file in the place of a folder',
      'a',
      path => {
        rmSync(path('a/sub'), { recursive: true })
        writeFileSync(path('a/sub'), '')
      },
    ],
    [
      'a folder in the place of a file',
      'a',
      path => {
        rmSync(path('a/x.js'))
        mkdirSync(path('a/x.js'))
      },
    ],
    [
      'a link in the place of a file',
      'a',
      path => {
        rmSync(path('a/x.js'))
        symlinkSync('sub/y.js', path('a/x.js'))
      },
    ],
    [
      'another folder of that name',
      'a',
      path => {
        renameSync(path('a'), path('n'))
        renameSync(path('b'), path('a'))
      },
    ],
  ]
  for (const [what, folder, change] of cases) {
    const { tree, read } = makeBed(t, 60_000)
    for (const path of [folder, 'a/x.js']) utimesSync(tree.path(path), 1, 1)
    tick(tree.path('b/tick'), tree.path(folder))
    // The times of the probe's folder are another ones now.
    await read()
    await read()
    change(name => tree.path(name))
    // Who sets the one time of a folder back cannot set back the other.
    if (statSync(tree.path(folder)).mtimeMs !== 1000) utimesSync(tree.path(folder), 1, 1)
    const { listed, isSame, snapshot } = await read()
    t.ok(listed.includes(folder), what)
    t.equal(isSame, false, what)
    const whole = snapshotOf(tree.root)
    t.same(snapshot.root, whole.root, `${what}: as if all had been read`)
  }
})

t.test('[discovery/layouts.49] a config is compared by its text, whatever its times say', async t => {
  const { tree, read } = makeBed(t, 60_000)
  utimesSync(tree.path('c/fn.config.json'), 1, 1)
  await read()
  writeFileSync(tree.path('c/fn.config.json'), '{"timeout_ms": 200}')
  utimesSync(tree.path('c/fn.config.json'), 1, 1)
  const { snapshot } = await read()
  const folder = snapshot.root.dirs.find(({ name }) => name === 'c')
  t.equal(folder?.texts.config?.text, '{"timeout_ms": 200}')
  t.equal((await read()).isSame, true)
})

t.test('[discovery/layouts.49] what leads elsewhere or could not be read is asked again each time', async t => {
  const bed = makeBed(t, 60_000, {
    'plain/x.js': '',
    'plain/sub/y.js': '',
    'plain/sub/more/z.js': '',
    'links/far.js': { symlink: '../outside' },
    linked: { symlink: 'plain' },
    'broken/fn.config.json': Buffer.from([0xff]),
    'node_modules/p/index.js': '',
  })
  t.same((await bed.find())?.sort(), ['', 'broken', 'links'])
  const { listed, isSame } = await bed.read()
  t.same([listed, isSame], [['', 'broken', 'links'], true])
  writeFileSync(bed.tree.path('outside'), '')
  const { isSame: isStillSame, snapshot } = await bed.read()
  t.equal(isStillSame, false)
  t.same(snapshot.root.dirs.find(({ name }) => name === 'links')?.files.length, 1, 'the target is there now')
})

t.test('[discovery/layouts.49] a folder that was closed is opened by the next reload', async t => {
  const bed = makeBed(t, 60_000, { 'ok/x.js': '', 'shut/y.js': '', 'more/z.js': '' })
  chmodSync(bed.tree.root, 0o755)
  chmodSync(bed.tree.path('shut'), 0)
  t.teardown(() => chmodSync(bed.tree.path('shut'), 0o755))
  t.equal((await asNobody(() => bed.read())).isSame, false)
  chmodSync(bed.tree.path('shut'), 0o755)
  const { snapshot } = await asNobody(() => bed.read())
  t.equal(snapshot.root.dirs.find(({ name }) => name === 'shut')?.files.length, 1)
})

t.test('[discovery/layouts.49] a disk that refuses a look makes the folder be read again', async t => {
  const bed = makeBed(t, 60_000)
  const { stat } = bed.disk
  const refuse = (end: string) => {
    bed.disk.stat = path => {
      if (path.endsWith(end)) throw Object.assign(new Error('EIO'), { code: 'EIO' })
      return stat(path)
    }
  }
  refuse('/b')
  t.same(await bed.find(), ['b'])
  for (const field of ['ino', 'dev'] as const) {
    bed.disk.stat = path => {
      const stats = stat(path)!
      if (path.endsWith('/a')) stats[field] += 1
      return stats
    }
    t.same(await bed.find(), ['a'], `another folder: ${field}`)
  }
  refuse('/x.js')
  t.same(await bed.find(), ['a/x.js'])
  bed.disk.stat = stat
  bed.disk.readFile = () => {
    throw Object.assign(new Error('EIO'), { code: 'EIO' })
  }
  t.same(await bed.find(), ['c/fn.config.json'])
})

t.test('[discovery/layouts.49] times that may be too coarse are not trusted', async t => {
  const { clock, find, read } = makeBed(t, 1000)
  t.equal(await find(), null, 'all changed a second before they were listed')
  clock.now -= 3_600_000
  await read()
  t.equal(await find(), null, 'changed in the future')
  clock.now += 3_600_000 + 1500
  await read()
  t.same(await find(), [], 'changed long before they were listed')
})

t.test('[discovery/layouts.49] the whole tree is read again when it cannot be told from the one before', async t => {
  const { tree, read, times, find } = makeBed(t, 60_000)
  const { snapshot } = await read()
  t.equal(await times.findChanged({ ...snapshot, shortage: { code: 'x', path: '.', message: 'm', hint: 'h' } }), null)
  t.equal(await times.findChanged({ ...snapshot, root: { ...snapshot.root, skipped: 'cannot be read' } }), null)
  renameSync(tree.root, `${tree.root}-moved`)
  t.equal(await find(), null, 'the root is gone')
  symlinkSync(`${tree.root}-moved`, tree.root)
  t.equal(await find(), null, 'the root is a link now')
  rmSync(tree.root)
  renameSync(`${tree.root}-moved`, tree.root)
  for (const name of ['a/x.js', 'a/sub/y.js', 'b/z.js', 'c/handler.js', 'd/e/f/g.js'])
    writeFileSync(tree.path(name), 'longer')
  t.equal(await find(), null, 'most of it changed')
})

t.test('[discovery/layouts.49] a folder keeps its times while others change', async t => {
  const { tree, find, read } = makeBed(t, 60_000)
  writeFileSync(tree.path('d/e/f/g.js'), 'longer')
  const { listed } = await read()
  t.same(listed, ['d/e/f'], 'the folder of the file')
  t.same(await find(), [], 'all folders on the way are known')
})
