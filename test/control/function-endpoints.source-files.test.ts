import { chmodSync, readdirSync, readFileSync, renameSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkMatch, SourceFiles, toEtag, toGatewayRefusal } from '../../lib/control/function-endpoints.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

function setup(t: import('tap').Test, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const files = new SourceFiles(tree.path('root'), async () => {})
  return { tree, files }
}

t.test(
  '[control/function.7] a file is written whole, keeps its mode, and is never behind a link or outside',
  async t => {
    const { tree, files } = setup(t, {
      'root/a/x.js': 'old',
      'far/x.js': 'far',
      'root/b': { symlink: '../far' },
      'root/a/dir/': '',
    })
    const path = tree.path('root/a/x.js')
    chmodSync(path, 0o751)
    files.write(path, 'new')
    t.equal(readFileSync(path, 'utf8'), 'new')
    t.equal(statSync(path).mode & 0o777, 0o751)
    files.write(tree.path('root/a/y.json'), '{}', 0o600)
    t.equal(statSync(tree.path('root/a/y.json')).mode & 0o777, 0o600)
    t.same(readdirSync(tree.path('root/a')).sort(), ['dir', 'x.js', 'y.json'])
    const refused: [path: string, error: never][] = [
      ['root/b/x.js', { code: 'UNSAFE_PATH' } as never],
      ['far/x.js', { status: 403, message: 'the file is outside the functions root' } as never],
      ['root/a/dir', { code: 'UNSAFE_PATH', message: /is a folder, not a regular file/ } as never],
      ['root/gone/x.js', { status: 409, message: 'the folder of gone/x.js is gone' } as never],
    ]
    for (const [to, error] of refused) {
      t.throws(() => files.write(tree.path(to), 'bad'), error, to)
      await t.rejects(
        files.inTurn(async () => files.write(tree.path(to), 'bad')),
        { name: 'GatewayError' },
      )
    }
    t.equal(readFileSync(tree.path('far/x.js'), 'utf8'), 'far')
    t.notOk(readdirSync(tree.path('root')).includes('gone'))
    // The folder becomes a link between two writes.
    renameSync(tree.path('root/a'), tree.path('kept'))
    symlinkSync('../far', tree.path('root/a'))
    t.throws(() => files.write(path, 'bad'), { code: 'UNSAFE_PATH' })
    t.equal(readFileSync(tree.path('far/x.js'), 'utf8'), 'far')
  },
)

t.test('[control/function.8, control/function-config.6] changes take turns; a tag tells contents apart', async t => {
  const { tree, files } = setup(t, { 'root/x.json': 'a' })
  const path = tree.path('root/x.json')
  const steps: string[] = []
  let release = () => {}
  const first = files.inTurn(async () => {
    steps.push('first begins')
    await new Promise<void>(resolve => {
      release = resolve
    })
    steps.push('first ends')
    throw new Error('first fails')
  })
  const second = files.inTurn(async () => steps.push('second'))
  await new Promise(setImmediate)
  t.same(steps, ['first begins'])
  release()
  await t.rejects(first, { message: 'first fails' })
  await second
  t.same(steps, ['first begins', 'first ends', 'second'])
  const file = files.read(path, 10)
  t.match(file, { label: 'x.json', etag: toEtag(Buffer.from('a')) })
  t.doesNotThrow(() => checkMatch(file, null))
  t.doesNotThrow(() => checkMatch(file, `"other", ${file.etag}`))
  for (const tag of ['"other"', `W/${file.etag}`, '', 'a'])
    t.throws(() => checkMatch(file, tag), { status: 409, headers: { ETag: file.etag } } as never, tag)
  t.equal(files.read(join(tree.path('root'), 'none.json'), 10).etag, '"none"')
  t.throws(() => files.read(path, 0), { status: 409, message: /x.json has 1 bytes, at most 0/ })
  files.write(path, 'b')
  files.restore(path, file)
  t.equal(readFileSync(path, 'utf8'), 'a')
  files.restore(tree.path('root/x.json'), files.read(tree.path('root/none.json'), 1))
  t.same(readdirSync(tree.path('root')), [])
})

t.test('[control/function.12] a disk that is full or read-only is 507, a missing permission 403', t => {
  const refusalOf = (code: string) => toGatewayRefusal(Object.assign(new Error(code), { code }))
  for (const [code, status, reason] of [
    ['ENOSPC', 507, /no space is left on the disk; free space/],
    ['EDQUOT', 507, /quota/],
    ['EROFS', 507, /read-only; make it writable/],
    ['EACCES', 403, /permission denied/],
  ] as const)
    t.match(refusalOf(code), { status, message: reason })
  t.end()
})
