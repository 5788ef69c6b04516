import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { MAX_CONFIG_FILE_BYTES } from '../../lib/core/limits.ts'
import { type Disk, NODE_DISK } from '../../lib/discovery/disk.ts'
import { findFolder, readSnapshot } from '../../lib/discovery/snapshot.ts'
import { discover, codesOf, OPTIONS, routesOf, snapshotOf } from '../helpers/discovery.ts'
import { makeTree } from '../helpers/tree.ts'

/** A disk that refuses some paths. */
function refusing(refused: Record<string, string>, base: Disk = NODE_DISK): Disk {
  const check = (path: string): void => {
    const code = Object.entries(refused).find(([end]) => path.endsWith(end))?.[1]
    if (code !== undefined) throw Object.assign(new Error(code), { code })
  }
  return {
    ...base,
    readdir: path => {
      check(path)
      return base.readdir(path)
    },
    readFile: path => {
      check(path)
      return base.readFile(path)
    },
    stat: path => {
      if (path.endsWith('.js')) check(path)
      return base.stat(path)
    },
  }
}

t.test('[discovery/layouts.35] each trouble is a warning and the rest is served', async t => {
  const tree = makeTree({
    'ok.js': '',
    'linked.js': { symlink: 'ok.js' },
    'gone.js': { symlink: 'nowhere.js' },
    'self.js': { symlink: 'self.js' },
    'a/x.js': '',
    'a/up': { symlink: '..' },
    'b/y.js': '',
    'a/b': { symlink: '../b' },
    'b/a': { symlink: '../a' },
    'wide/whole': { symlink: '/' },
    'big/fn.config.json': `{"group": "${'x'.repeat(MAX_CONFIG_FILE_BYTES)}"}`,
    'big/z.js': '',
    'latin/fn.config.json': Buffer.from([0x7b, 0xff, 0x7d]),
    'latin/z.js': '',
  })
  t.teardown(tree.cleanup)
  execFileSync('mkfifo', [tree.path('pipe.js'), tree.path('pipe'), tree.path('a/fn.config.json')])
  const discovery = discover(snapshotOf(tree.root), OPTIONS)
  t.same(codesOf(discovery), [
    'CONFIG_CLOSED a/fn.config.json',
    'CONFIG_CLOSED b/a/fn.config.json',
    'CONFIG_CLOSED big/fn.config.json',
    'CONFIG_CLOSED latin/fn.config.json',
    'CONFIG_NOT_JSON big/fn.config.json',
    'CONFIG_NOT_JSON latin/fn.config.json',
    'DANGLING_SYMLINK gone.js',
    'SPECIAL_FILE a/fn.config.json',
    'SPECIAL_FILE b/a/fn.config.json',
    'SPECIAL_FILE pipe',
    'SPECIAL_FILE pipe.js',
    'SYMLINK_LOOP a/b/a',
    'SYMLINK_LOOP a/up',
    'SYMLINK_LOOP b/a/b',
    'SYMLINK_LOOP b/a/up',
    'SYMLINK_LOOP self.js',
    'SYMLINK_LOOP wide/whole',
  ])
  const messageOf = (code: string) => discovery.warnings.find(one => one.code === code)?.message
  t.match(messageOf('SPECIAL_FILE'), /pipe is neither a file nor a folder|fn\.config\.json is neither/)
  t.match(
    discovery.warnings
      .filter(({ code }) => code === 'CONFIG_NOT_JSON')
      .map(({ message, hint }) => `${message} ${hint}`),
    [
      /^big\/fn\.config\.json is not read: it has \d{7} bytes, at most 1048576/,
      /^latin.* is not UTF-8 text Save .* UTF-8/,
    ],
  )
  t.same(discovery.claims.map(({ pattern }) => pattern.text).sort(), [
    '/a/b/y',
    '/a/x',
    '/b/a/x',
    '/b/y',
    '/big/z',
    '/latin/z',
    '/linked',
    '/ok',
  ])
})

t.test('[discovery/layouts.35] what the system refuses to read', async t => {
  const tree = makeTree({
    'a/x.js': '',
    'b/y.js': '',
    'b/z.js': '',
    'c/fn.config.json': '{}',
    'c/w.js': '',
    'd/v.js': '',
  })
  t.teardown(tree.cleanup)
  const refused = { '/a': 'EACCES', '/b/y.js': 'EACCES', '/c/fn.config.json': 'EIO', '/d': 'ENOTDIR' }
  const snapshot = snapshotOf(tree.root, { disk: refusing(refused) })
  const discovery = discover(snapshot, OPTIONS)
  t.same(routesOf(discovery), ['GET /b/z b/z.js', 'GET,POST,PUT,PATCH,DELETE /c/w c/w.js'])
  t.same(codesOf(discovery), [
    'CONFIG_CLOSED c/fn.config.json',
    'UNREADABLE_FILE b/y.js',
    'UNREADABLE_FILE c/fn.config.json',
    'UNREADABLE_FOLDER a',
    'UNREADABLE_FOLDER d',
  ])
  t.match(discovery.warnings.find(({ path }) => path === 'a')?.message, /permission denied/)
  const mended = discover(snapshotOf(tree.root, { previous: snapshot }), OPTIONS)
  t.same(mended.warnings, [])
})

t.test('[discovery/layouts.41] a machine that has nothing left loses no route', async t => {
  const tree = makeTree({ 'a/get.js': 'x', 'a/fn.config.json': { json: { timeout_ms: 9 } }, 'b/get.js': 'x' })
  t.teardown(tree.cleanup)
  const first = snapshotOf(tree.root)
  t.equal(first.shortage, null)
  for (const code of ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']) {
    for (const end of ['/a', 'get.js', 'fn.config.json']) {
      tree.write({ 'c/get.js': code, 'a/fn.config.json': { json: { timeout_ms: 10 } } })
      const short = snapshotOf(tree.root, { previous: first, changed: ['c'], disk: refusing({ [end]: code }) })
      // A file that no change touched is not looked at.
      if (short.shortage === null) continue
      t.equal(short.root, first.root, `${code} at ${end}`)
      t.match(short.shortage, { code: 'TREE_NOT_READ', message: /^\. cannot be read now: .*stays in force/ })
      const after = snapshotOf(tree.root, { previous: short, changed: [] })
      t.equal(after.shortage, null)
      t.same(
        after.root.dirs.map(dir => dir.name),
        ['a', 'b', 'c'],
        'what changed meanwhile is found, told or not',
      )
      t.match(after.root.dirs[0]!.texts.config, { text: /10/ })
    }
  }
  const none = snapshotOf(tree.root, { disk: refusing({ '/a': 'EMFILE' }) })
  t.match(none.shortage?.message, /too many open files/)
  t.match(none, {
    shortage: { code: 'TREE_NOT_READ' },
    root: { dirs: [{ name: 'a', files: [] }, { name: 'b' }, { name: 'c' }] },
  })
  const gone = snapshotOf(tree.root, { previous: first, changed: ['a'], disk: refusing({ '/a': 'EACCES' }) })
  t.match(
    gone,
    { shortage: null, root: { dirs: [{ name: 'a', files: [] }, { name: 'b' }, { name: 'c' }] } },
    'its own fault',
  )
})

t.test('[discovery/layouts.35] a folder of 10,000 entries is served with a warning', async t => {
  const tree = makeTree({ 'data/a.js': '' })
  t.teardown(tree.cleanup)
  const base = NODE_DISK.readdir(tree.path('data'))[0]!
  const entries = Array.from({ length: 10_000 }, (_, index) =>
    Object.assign(Object.create(base), { name: `f${index}.txt` }),
  )
  const disk: Disk = {
    ...NODE_DISK,
    readdir: path => (path.endsWith('/data') ? [base, ...entries] : NODE_DISK.readdir(path)),
  }
  const discovery = discover(snapshotOf(tree.root, { disk }), OPTIONS)
  t.same(codesOf(discovery), ['LARGE_FOLDER data'])
  t.match(discovery.warnings[0]?.message, /^data has 10001 entries; reloads are slow from 10000/)
  t.same(routesOf(discovery), ['GET /data/a data/a.js'])
})

t.test('[discovery/layouts.36] a root that is missing, a file, or comes back', async t => {
  const tree = makeTree({ file: '' })
  t.teardown(tree.cleanup)
  const rootPath = tree.path('functions')
  const missing = snapshotOf(rootPath)
  t.same(codesOf(discover(missing, OPTIONS)), ['UNREADABLE_FOLDER .'])
  t.match(discover(missing, OPTIONS).warnings[0], { message: /does not exist/, hint: /FN_FUNCTIONS_ROOT/ })
  t.match(discover(snapshotOf(tree.path('file')), OPTIONS).warnings[0]?.message, /not a folder/)
  mkdirSync(rootPath)
  writeFileSync(`${rootPath}/x.js`, '')
  const there = snapshotOf(rootPath, { previous: missing, changed: [''] })
  t.same(routesOf(discover(there, OPTIONS)), ['GET /x x.js'])
  rmSync(rootPath, { recursive: true })
  t.same(routesOf(discover(snapshotOf(rootPath, { previous: there, changed: [''] }), OPTIONS)), [])
})

t.test('[discovery/layouts.2] a folder is found by its path, among many and below others', async t => {
  const names = ['-', '10', '2', 'A', 'a', 'a-b', 'a.b', 'ab', 'b', 'é', '\u{1F600}', '\uFF21']
  const tree = makeTree(Object.fromEntries(names.flatMap(name => [[`${name}/in/x.js`, ''] as const])))
  t.teardown(tree.cleanup)
  const { root } = snapshotOf(tree.root)
  t.equal(root.dirs.length, names.length)
  for (const name of names) {
    t.equal(findFolder(root, name)?.path, name)
    t.equal(findFolder(root, `${name}/in`)?.path, `${name}/in`)
    t.equal(findFolder(root, `${name}/i`), null)
    t.equal(findFolder(root, `${name}/in/x.js`), null, 'a file is none')
  }
  t.equal(findFolder(root, 'in'), null)
  t.equal(findFolder(root, ''), root)
  t.equal(findFolder(null, ''), null)
})

t.test('[discovery/layouts.2] only what changed is read again', async t => {
  const tree = makeTree({ 'a/b/x.js': '', 'a/y.js': '', 'c/z.js': '', 'site/s.js': '' })
  t.teardown(tree.cleanup)
  const read: string[] = []
  const disk: Disk = {
    ...NODE_DISK,
    readdir: path => {
      read.push(path.slice(tree.root.length + 1))
      return NODE_DISK.readdir(path)
    },
  }
  let snapshot = snapshotOf(tree.root, { disk })
  const step = (changed: string[]) => {
    read.length = 0
    const before = snapshot
    snapshot = snapshotOf(tree.root, { previous: before, changed, disk })
    t.same(snapshot.root, snapshotOf(tree.root).root, `as a first look after ${changed}`)
    return { before, reads: [...read].sort() }
  }
  tree.write({ 'a/b/x.js': 'changed' })
  const { before, reads } = step(['a/b/x.js'])
  t.same(reads, ['a/b'])
  t.equal(findFolder(snapshot.root, 'c'), findFolder(before.root, 'c'))
  tree.write({ 'c/new/deep/n.js': '' })
  t.same(step(['c/new/deep/n.js']).reads, ['c', 'c/new', 'c/new/deep'])
  tree.remove('a/b')
  t.same(step(['a/b']).reads, ['a'])
  tree.write({ 'a/b': 'a file now' })
  t.same(step(['a/b']).reads, ['a'])
  renameSync(tree.path('c/new'), tree.path('c/old'))
  t.same(step(['c/new', 'c/old']).reads, ['c', 'c/old', 'c/old/deep'])
  tree.write({ 'fn.config.json': '{"assets": {"directory": "site"}}' })
  t.same(step(['fn.config.json']).reads, [''])
  tree.remove('fn.config.json')
  t.same(step(['fn.config.json']).reads, ['', '', 'site'], 'once more: the file may be a broken link now')
  rmSync(tree.path('c'), { recursive: true })
  symlinkSync('a', tree.path('c'))
  t.same(step(['c']).reads, ['', 'c'])
})

t.test('[discovery/layouts.1, discovery/layouts.2] the slow way gives the same, and lets other work go on', async t => {
  const names = Array.from({ length: 160 }, (_, index) => [`d${index}/x.js`, ''])
  const tree = makeTree(Object.fromEntries(names))
  t.teardown(tree.cleanup)
  let turns = 0
  const count = (): void => {
    turns++
    timer = setImmediate(count)
  }
  let timer = setImmediate(count)
  const slow = await readSnapshot({ rootPath: tree.root })
  clearImmediate(timer)
  t.same(slow, snapshotOf(tree.root))
  t.ok(turns >= 2, `${turns} turns`)
})

t.test(
  '[discovery/layouts.35] a tree of more than 100,000 folders is read up to that number, with one warning',
  async t => {
    const tree = makeTree({ 'one/': '' })
    t.teardown(tree.cleanup)
    const base = NODE_DISK.readdir(tree.root)[0]!
    const entries = Array.from({ length: 100_002 }, (_, index) =>
      Object.assign(Object.create(base), { name: `d${String(index).padStart(6, '0')}` }),
    )
    const disk: Disk = { ...NODE_DISK, readdir: path => (path === tree.root ? entries : []) }
    const { root } = snapshotOf(tree.root, { disk })
    const skipped = root.dirs.filter(dir => dir.skipped !== null)
    t.same(
      skipped.map(({ name }) => name),
      ['d099999', 'd100000', 'd100001'],
    )
    t.match(
      skipped.flatMap(({ problems }) => problems),
      [
        {
          code: 'TREE_TOO_LARGE',
          path: 'd099999',
          message: /the folders after it are not read: .* more than 100000 folders/,
        },
      ],
    )
  },
)
