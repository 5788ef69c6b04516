import t from 'tap'
import * as disk from '../../lib/discovery/disk.ts'
import { makeTree } from '../helpers/tree.ts'

const failure = (code: string) => Object.assign(new Error(`${code}: refused`), { code })

t.test('[discovery/layouts.35] why the disk refused, in words', async t => {
  const rows: [unknown, string][] = [
    [failure('EACCES'), 'permission denied'],
    [failure('EPERM'), 'permission denied'],
    [failure('ENOENT'), 'it does not exist'],
    [failure('ENOTDIR'), 'it is not a folder'],
    [failure('EMFILE'), 'too many open files'],
    [failure('ENOMEM'), 'no memory left'],
    [failure('EIO'), 'EIO'],
    [new Error('odd'), 'Error: odd'],
    ['text', 'text'],
  ]
  for (const [error, reason] of rows) t.equal(disk.reasonOf(error), reason, String(error))
})

t.test('[discovery/layouts.35] warnings of files and folders', async t => {
  t.equal(disk.fileWarning('a.js', false, failure('ENOENT')), null, 'gone since the folder was listed')
  t.match(disk.fileWarning('a.js', true, failure('ENOENT')), { code: 'DANGLING_SYMLINK', path: 'a.js' })
  t.match(disk.fileWarning('a.js', true, failure('ELOOP')), { code: 'SYMLINK_LOOP', path: 'a.js' })
  t.match(disk.fileWarning('a.js', false, failure('EACCES')), {
    code: 'UNREADABLE_FILE',
    message: 'a.js cannot be read: permission denied',
  })
  t.match(disk.folderWarning('a', failure('EACCES')), { code: 'UNREADABLE_FOLDER', message: /^a cannot be read/ })
  t.match(disk.folderWarning('', failure('ENOENT')), {
    path: '.',
    message: '. cannot be read: it does not exist',
    hint: /FN_FUNCTIONS_ROOT/,
  })
})

t.test('[discovery/layouts.41] a shortage is told, any other refusal is not', async t => {
  const told: unknown[] = []
  const watched = (code: string) => {
    const refuse = () => {
      throw failure(code)
    }
    return disk.watchShortage({ readdir: refuse, stat: refuse, readFile: refuse, realpath: refuse }, error =>
      told.push((error as { code: string }).code),
    )
  }
  for (const code of ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']) {
    const { readdir, stat, readFile, realpath } = watched(code)
    for (const ask of [readdir, stat, readFile, realpath]) t.throws(() => ask('/x'), { code })
    t.same(told.splice(0), Array(4).fill(code))
  }
  for (const code of ['ENOENT', 'EACCES', 'ELOOP']) t.throws(() => watched(code).stat('/x'), { code })
  t.same(told, [])
})

t.test('[discovery/layouts.35] the disk of the machine answers its four questions', async t => {
  const tree = makeTree({ 'a.js': 'text', 'folder/': '', link: { symlink: 'a.js' } })
  t.teardown(tree.cleanup)
  const names = disk.NODE_DISK.readdir(tree.root).map(entry => entry.name)
  t.same([...names].sort(), ['a.js', 'folder', 'link'])
  t.ok(disk.NODE_DISK.stat(tree.path('link')).isFile(), 'links are followed')
  t.equal(disk.NODE_DISK.stat(tree.path('a.js')).size, 4)
  t.equal(Buffer.from(disk.NODE_DISK.readFile(tree.path('a.js'))).toString(), 'text')
  t.equal(disk.NODE_DISK.realpath(tree.path('link')), tree.path('a.js'))
  const watched = disk.watchShortage(disk.NODE_DISK, () => t.fail('no shortage'))
  t.equal(watched.stat(tree.path('a.js')).size, 4)
})

t.test('[discovery/layouts.46, discovery/layouts.38] a folder is the same one by its device and number', async t => {
  const tree = makeTree({ 'a/x.js': '', link: { symlink: 'a' } })
  t.teardown(tree.cleanup)
  t.match(disk.folderId(tree.path('a')), /^\d+:\d+$/)
  t.equal(disk.folderId(tree.path('link')), disk.folderId(tree.path('a')))
  t.not(disk.folderId(tree.root), disk.folderId(tree.path('a')))
  t.equal(disk.folderId(tree.path('a/x.js')), '')
  t.equal(disk.folderId(tree.path('gone')), '')
})

t.test('[discovery/layouts.35, discovery/layouts.46] a path is within a folder', async t => {
  for (const path of ['/a', '/a/b', '/a/b/c']) t.ok(disk.isWithin(path, '/a'), path)
  for (const path of ['/', '/ab', '/b/a']) t.notOk(disk.isWithin(path, '/a'), path)
  t.ok(disk.isWithin('/a', '/'))
})
