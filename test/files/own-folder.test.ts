import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { inHeldFolder, openToAppend, openToRead, OwnFolder } from '../../lib/files/own-folder.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

const TOOLONG = 'x'.repeat(300)

t.test('[files/own-folder.1] a folder is made part by part, and what is there stays', async t => {
  const tree = makeTree({ 'base/.svc/kept': '1' })
  t.teardown(() => tree.cleanup())
  const folder = new OwnFolder(tree.path('base'), '.svc', 'build', 'tmp')
  t.notOk(folder.isThere())
  t.same(readdirSync(tree.path('base/.svc')), ['kept'], 'nothing is made before it is asked for')
  t.equal(folder.make(), tree.path('base/.svc/build/tmp'))
  t.equal(folder.make(), folder.path, 'again')
  t.equal(await folder.ensure(), folder.path)
  t.ok(folder.isThere())
  t.equal(await folder.below('a').ensure(), tree.path('base/.svc/build/tmp/a'))
  t.equal(readFileSync(tree.path('base/.svc/kept'), 'utf8'), '1')
  const missing = new OwnFolder(tree.path('none'), '.svc')
  t.throws(() => missing.make(), { code: 'ENOENT' }, 'the base is somebody else’s to make')
  await t.rejects(missing.ensure(), { code: 'ENOENT' })
})

t.test('[files/own-folder.2] the way to the base may lead through links: they are the choice of its owner', async t => {
  const tree = makeTree({ 'real/': '', link: { symlink: 'real' } })
  t.teardown(() => tree.cleanup())
  const folder = new OwnFolder(tree.path('link'), '.svc')
  folder.write('a', '1')
  t.equal(realpathSync(folder.path), tree.path('real/.svc'))
})

t.test('[files/own-folder.3] only plain names: nothing leads out of the folder', async t => {
  const folder = new OwnFolder('/base', 'a')
  for (const name of ['', '.', '..', 'a/b', '../a', 'a\\b', 'a\0b', '/']) {
    const calls: [string, () => unknown][] = [
      ['constructor', () => new OwnFolder('/base', name)],
      ['below', () => folder.below('a', name)],
      ['pathOf', () => folder.pathOf(name)],
      ['write', () => folder.write(name, '')],
      ['rename', () => folder.rename('a', name)],
    ]
    for (const [what, call] of calls) t.throws(call, /^not the name of a file: /, `${what} ${JSON.stringify(name)}`)
  }
})

t.test(
  '[files/own-folder.4] a file is replaced as a whole; a failed write leaves the old one and no draft',
  async t => {
    const tree = makeTree({ 'outside/file': 'precious' })
    t.teardown(() => tree.cleanup())
    const folder = new OwnFolder(tree.root, '.svc')
    t.equal(folder.read('a'), null)
    const path = folder.write('a', 'one')
    t.equal(String(folder.read('a')), 'one')
    t.equal(statSync(path).mode & 0o777, 0o644)
    const inode = statSync(path).ino
    folder.write('a', Buffer.from('two'), 0o600)
    t.not(statSync(path).ino, inode, 'a reader of the old one reads on')
    t.equal(statSync(path).mode & 0o777, 0o600)
    rmSync(path)
    symlinkSync(tree.path('outside/file'), path)
    t.equal(folder.read('a'), null, 'a link is not read')
    folder.write('a', 'three')
    t.ok(lstatSync(path).isFile(), 'the link is gone, not its target')
    t.equal(readFileSync(tree.path('outside/file'), 'utf8'), 'precious')
    mkdirSync(folder.pathOf('taken'))
    writeFileSync(join(folder.pathOf('taken'), 'x'), '')
    t.throws(() => folder.write('taken', 'x'), { code: /EISDIR|ENOTEMPTY|EEXIST/ })
    t.throws(() => folder.write(TOOLONG, 'x'), { code: 'ENAMETOOLONG' })
    t.same(readdirSync(folder.path).sort(), ['.gitignore', 'a', 'taken'])
  },
)

t.test('[files/own-folder.12] git ignores a folder of the gateway, shared packs excepted', async t => {
  const tree = makeTree({
    '.svc/packs/python/base/requirements.txt': 'requests\n',
    'api/': '',
    '.go-build/.gitignore': 'x',
  })
  t.teardown(() => tree.cleanup())
  await new OwnFolder(tree.root, '.svc', 'jobs').ensure()
  new OwnFolder(tree.root, '.svc', 'jobs').write('one', 'body')
  new OwnFolder(tree.root, 'api').write('handler.js', '')
  new OwnFolder(tree.path('api'), '.rust-build', 'target').make()
  new OwnFolder(tree.root, '.go-build').make()
  new OwnFolder(tree.root, '.draft').write('handler.js', '')
  const git = (...words: string[]) => spawnSync('git', words, { cwd: tree.root, encoding: 'utf8' }).stdout
  git('init', '--quiet')
  git('add', '--all')
  const added = git('ls-files').trim().split('\n')
  t.same(added, [
    '.draft/handler.js',
    '.go-build/.gitignore',
    '.svc/packs/python/base/requirements.txt',
    'api/handler.js',
  ])
  t.equal(readFileSync(tree.path('.go-build/.gitignore'), 'utf8'), 'x', 'a file of the user stays')
  t.notOk(existsSync(tree.path('.svc/jobs/.gitignore')), 'one for each folder of the gateway')
})

t.test('[files/own-folder.5] entries are listed by name, links as links', async t => {
  const tree = makeTree({
    '.svc/b-1': '1',
    '.svc/b-2/x': '2',
    '.svc/other': '3',
    '.svc/b-3': { symlink: '/etc' },
    '.svc/b-4': { symlink: 'gone' },
  })
  t.teardown(() => tree.cleanup())
  const found = new OwnFolder(tree.root, '.svc').list(/^b-\d$/)
  const kindOf = (name: string) => {
    const { stats } = found.find(entry => entry.name === name)!
    return stats.isSymbolicLink() ? 'link' : stats.isDirectory() ? 'folder' : 'file'
  }
  t.same(found.map(({ name }) => name).sort(), ['b-1', 'b-2', 'b-3', 'b-4'])
  t.same(['b-1', 'b-2', 'b-3', 'b-4'].map(kindOf), ['file', 'folder', 'link', 'link'])
  t.same(new OwnFolder(tree.root, 'none').list(/^/), [])
})

t.test('[files/own-folder.6] what is deleted is deleted without following', async t => {
  const tree = makeTree({
    'outside/file': 'precious',
    '.svc/a/link': { symlink: '../../outside' },
    '.svc/a/b/link': { symlink: '../../../outside/file' },
    '.svc/link': { symlink: '../outside' },
  })
  t.teardown(() => tree.cleanup())
  const folder = new OwnFolder(tree.root, '.svc')
  folder.remove('link')
  folder.remove('link')
  t.same(readdirSync(folder.path), ['a'])
  const temporary = folder.makeTemporary('t-')
  t.match(temporary.path, /\.svc\/t-\w{6}$/)
  t.equal(statSync(temporary.path).mode & 0o777, 0o700)
  temporary.write('x', '1')
  temporary.removeAll()
  t.notOk(existsSync(temporary.path))
  folder.removeAll()
  folder.removeAll()
  t.same(readdirSync(tree.root), ['outside'])
  t.equal(readFileSync(tree.path('outside/file'), 'utf8'), 'precious')
})

t.test('[files/own-folder.7] a folder for a tool must lead nowhere else', async t => {
  const tree = makeTree({ 'outside/': '', '.svc/a/b': '', '.svc/a/good': { symlink: 'b' } })
  t.teardown(() => tree.cleanup())
  const folder = new OwnFolder(tree.root, '.svc', 'a')
  folder.check()
  folder.checkEntries(['good'])
  t.throws(() => folder.checkEntries(), {
    code: 'UNSAFE_PATH',
    path: tree.path('.svc/a/good'),
    message: '.svc/a/good is a symbolic link, not a file: the gateway writes nothing there; remove it',
  })
  folder.below('new', 'more').checkEntries()
  t.same(readdirSync(folder.path).sort(), ['b', 'good'], 'looking makes nothing')
  t.throws(() => folder.below('b').check(), { message: '.svc/a/b is a file, not a folder' })
})

/** What can stand in the place of a folder or file of ours. */
const TRICKS: Readonly<Record<string, (path: string, tree: Tree) => void>> = {
  'link to a folder': (path, tree) => symlinkSync(tree.path('outside'), path),
  'link to a file': (path, tree) => symlinkSync(tree.path('outside/file'), path),
  'relative link': path => symlinkSync('../'.repeat(20), path),
  'dangling link': (path, tree) => symlinkSync(tree.path('outside/new'), path),
  'link to itself': path => symlinkSync(path, path),
  'link to a link': (path, tree) => symlinkSync(tree.path('hop'), path),
  pipe: path => spawnSync('mkfifo', [path]),
  file: path => writeFileSync(path, ''),
  'unreadable folder': path => mkdirSync(path, { mode: 0 }),
}

/** Everything of a folder: names, kinds, contents. */
function snapshot(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .map(entry => {
      const path = join(entry.parentPath, entry.name)
      return `${path} ${entry.isFile() ? readFileSync(path, 'utf8') : entry.isDirectory() ? 'folder' : 'other'}`
    })
    .sort()
}

const WORK: Readonly<Record<string, (folder: OwnFolder) => unknown>> = {
  make: folder => folder.make(),
  ensure: folder => folder.ensure(),
  write: folder => folder.write('file', 'new'),
  read: folder => {
    if (folder.read('file') !== null) throw new Error('read through a link')
  },
  rename: folder => folder.rename('file', 'other'),
  remove: folder => folder.remove('file'),
  removeAll: folder => folder.removeAll(),
  list: folder => {
    for (const { name } of folder.list(/^/)) folder.remove(name)
  },
  makeTemporary: folder => folder.makeTemporary('t-').removeAll(),
  append: async folder => {
    await folder.ensure()
    const file = await openToAppend(folder.pathOf('file'))
    await file.appendFile('new')
    await file.close()
  },
}

t.test(
  '[files/own-folder.8] whatever stands in any part of the way, nothing outside is read, changed or deleted',
  async t => {
    for (const [trick, place] of Object.entries(TRICKS)) {
      for (const depth of [1, 2, 3]) {
        for (const [work, act] of Object.entries(WORK)) {
          const tree = makeTree({
            'outside/file': 'precious',
            'outside/sub/file': 'precious',
            'outside/build/file': 'precious',
            'outside/build/tmp/file': 'precious',
            'outside/tmp/file': 'precious',
            hop: { symlink: 'outside' },
            'base/': '',
          })
          const before = snapshot(tree.path('outside'))
          const at = tree.path(join('base', ...['.svc', 'build', 'tmp'].slice(0, depth)))
          mkdirSync(dirname(at), { recursive: true })
          place(at, tree)
          const folder = new OwnFolder(tree.path('base'), '.svc', 'build', 'tmp')
          let failure: Error | null = null
          try {
            await act(folder)
          } catch (error) {
            failure = error as Error
          }
          const name = `${trick}, part ${depth}, ${work}`
          t.same(snapshot(tree.path('outside')), before, name)
          const mayPass = ['read', 'remove', 'removeAll', 'list'].includes(work) || trick === 'unreadable folder'
          if (!mayPass)
            t.match(
              failure,
              { code: /UNSAFE_PATH/, message: /^\.svc\S* is .*: the gateway writes nothing there; remove it$/ },
              name,
            )
          if (trick === 'unreadable folder' && existsSync(at)) chmodSync(at, 0o700)
          tree.cleanup()
        }
      }
    }
  },
)

t.test('[files/own-folder.9] a file that grows is a regular one; a pipe is not waited for', async t => {
  const tree = makeTree({ 'outside/file': 'precious', 'a/': '' })
  t.teardown(() => tree.cleanup())
  const path = tree.path('a/x.log')
  for (const text of ['one', 'two']) {
    const file = await openToAppend(path)
    await file.appendFile(text)
    await file.close()
  }
  const file = await openToRead(path)
  t.equal(await file!.readFile('utf8'), 'onetwo')
  await file!.close()
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.equal(await openToRead(tree.path('a/none')), null)
  const refused: [string, (path: string) => void, RegExp][] = [
    ['link', at => symlinkSync(tree.path('outside/file'), at), /^x\.log is a symbolic link, not a regular file/],
    ['dangling link', at => symlinkSync(tree.path('outside/new'), at), /^x\.log is a symbolic link/],
    ['pipe', at => spawnSync('mkfifo', [at]), /^x\.log is a pipe/],
    ['folder', at => mkdirSync(at), /^x\.log is a (?:folder|pipe, device or folder)/],
    ['device', at => symlinkSync('/dev/zero', at), /^x\.log is a symbolic link/],
  ]
  for (const [name, place, message] of refused) {
    rmSync(path, { recursive: true, force: true })
    place(path)
    await t.rejects(openToAppend(path), { code: 'UNSAFE_PATH', message }, name)
    await t.rejects(openToRead(path), { code: 'UNSAFE_PATH' }, name)
  }
  await t.rejects(openToAppend(tree.path('none/x.log')), { code: 'ENOENT' })
  t.same([readdirSync(tree.path('outside')), readFileSync(tree.path('outside/file'), 'utf8')], [['file'], 'precious'])
})

t.test('[files/own-folder.11] what is put in the place of a folder meanwhile is not written to', async t => {
  const tree = makeTree({ 'base/a/b/kept': '1', 'far/b/kept': '2' })
  t.teardown(() => tree.cleanup())
  const done = inHeldFolder(tree.path('base'), ['a', 'b'], tree.path('base/a/b'), held => {
    renameSync(tree.path('base/a'), tree.path('moved'))
    symlinkSync('../far', tree.path('base/a'))
    writeFileSync(join(held, 'new'), '')
    rmSync(join(held, 'kept'))
    return process.platform === 'linux'
  })
  if (done) {
    t.same(readdirSync(tree.path('moved/b')), ['new'], 'the folder that was looked at')
    t.same(readdirSync(tree.path('far/b')), ['kept'])
    t.throws(() => inHeldFolder(tree.path('base'), ['a', 'b'], tree.path('base/a/b'), () => 1), {
      code: /^(ELOOP|ENOTDIR)$/,
    } as never)
    const message = `ENOENT: no such file or directory, rmdir '${tree.path('far/none')}'`
    t.throws(() => inHeldFolder(tree.root, ['far'], tree.path('far'), held => rmdirSync(join(held, 'none'))), {
      message,
    })
  }
  const folder = new OwnFolder(tree.path('base'), 'a', 'b')
  for (const work of [
    () => folder.write('x', ''),
    () => folder.rename('kept', 'y'),
    () => folder.moveTo('kept', folder, 'z'),
  ])
    t.throws(work, { code: 'UNSAFE_PATH' } as never)
  folder.remove('kept')
  t.same(readdirSync(tree.path('far/b')), ['kept'])
  const countOpen = () => (done ? readdirSync('/proc/self/fd').length : 0)
  const before = countOpen()
  for (let i = 0; i < 20; i++) t.throws(() => folder.write('x', ''))
  t.ok(countOpen() <= before + 2, 'nothing stays open')
  const own = new OwnFolder(tree.path('base'), 'own')
  own.write('f', '1')
  own.moveTo('f', own.below('deep'), 'g')
  t.same(readdirSync(own.path), ['deep'])
  t.equal(own.below('deep').read('g')?.toString(), '1')
})

t.test(
  "[files/own-folder.13] what root makes in somebody else's folder is theirs",
  { skip: process.geteuid?.() !== 0 && 'only root gives files away' },
  async t => {
    const root = t.testdir({ theirs: {}, own: {} })
    chownSync(join(root, 'theirs'), 10_777, 10_778)
    const folder = new OwnFolder(join(root, 'theirs'), '.svc', 'deps')
    folder.write('a.json', '{}')
    const made = [
      ...['.svc', '.svc/.gitignore', '.svc/deps', '.svc/deps/a.json'].map(name => join(root, 'theirs', name)),
      folder.makeTemporary('d-').path,
      await folder.below('async').ensure(),
    ]
    for (const path of made) {
      const { uid, gid } = lstatSync(path)
      t.same([uid, gid], [10_777, 10_778], path)
    }
    const own = new OwnFolder(join(root, 'own'), '.svc')
    own.write('a.json', '{}')
    t.equal(lstatSync(own.pathOf('a.json')).uid, 0)
  },
)

t.test('[files/own-folder.5, files/own-folder.8] only a regular file has facts', async t => {
  const tree = makeTree({ 'own/file': 'x', 'own/dir/': '' })
  t.teardown(tree.cleanup)
  symlinkSync('file', tree.path('own/link'))
  const folder = new OwnFolder(tree.root, 'own')
  t.match(folder.statFile('file'), { size: 1 })
  t.equal(folder.statFile('none'), null)
  t.throws(() => folder.statFile('link'), /link/)
  t.throws(() => folder.statFile('dir'), /a folder/)
})
