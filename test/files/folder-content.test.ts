import { utimesSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { findDifference, FolderReader, parseFolderContent } from '../../lib/files/folder-content.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

async function contentOf(entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  try {
    return (await new FolderReader(tree.root).read())!
  } finally {
    tree.cleanup()
  }
}

t.test(
  '[remote/daemon-server.6] equal folders have equal hashes; what machines and tools own does not count',
  async t => {
    const files = { 'b.js': '2', 'a/x.py': '1', 'B.js': '3', 'fn.config.json': '{}' }
    const one = await contentOf(files)
    const other = await contentOf({
      ...Object.fromEntries(Object.entries(files).reverse()),
      '.svc/state.json': '{}',
      '.env': 'A=1',
      'fn.env.json': '{}',
      'a/fn.env.json': '{}',
      'node_modules/x/index.js': '',
      'a/__pycache__/x.pyc': '',
      'empty/': '',
      gone: { symlink: 'nowhere' },
    })
    t.same(other, one)
    t.match(one, { hash: /^[0-9a-f]{64}$/, count: 4, files: [['B.js'], ['a/x.py'], ['b.js'], ['fn.config.json']] })
    t.equal(findDifference(one, other, 'there'), null)
    t.same(parseFolderContent(JSON.parse(JSON.stringify(one))), one)
    t.same(
      (await contentOf({ 'real/x.txt': '1', 'a.txt': { symlink: 'real/x.txt' } })).files.length,
      2,
      'links to files count',
    )
  },
)

t.test('[remote/daemon-server.6] the first file that differs is named, with the side that has it', async t => {
  const here = await contentOf({ 'a.js': '1', 'b.js': '1', 'c.js': '1' })
  const cases: [Record<string, string>, string][] = [
    [{ 'a.js': '1', 'b.js': '2', 'c.js': '2' }, 'b.js is another one there'],
    [{ 'a.js': '1', 'c.js': '1' }, 'b.js is missing there'],
    [{ 'a.js': '1', 'b.js': '1' }, 'c.js is missing there'],
    [{ 'a.js': '1', 'ab.js': '1', 'b.js': '1', 'c.js': '1' }, 'ab.js is there only'],
    [{ 'a.js': '1', 'b.js': '1', 'c.js': '1', 'd.js': '1' }, 'd.js is there only'],
    [{}, 'a.js is missing there'],
  ]
  for (const [files, text] of cases) t.equal(findDifference(here, await contentOf(files), 'there'), text)
  const cutOff = { hash: 'x', count: 9000, files: here.files.slice(0, 2) }
  t.equal(
    findDifference(here, cutOff, 'there'),
    'it holds 3 files here and 9000 there; the first 2 in order are the same',
  )
  t.equal(
    findDifference(cutOff, { ...here, hash: 'y' }, 'there'),
    'it holds 9000 files here and 3 there; the first 2 in order are the same',
  )
})

t.test(
  '[remote/daemon-server.6] a changed file is seen again, whatever its size; many files fit into one message',
  async t => {
    const tree = makeTree({ 'a.js': '1', 'big.bin': Buffer.alloc(5 * 1024 * 1024) })
    t.teardown(() => tree.cleanup())
    const reader = new FolderReader(tree.root)
    const first = await reader.read()
    writeFileSync(tree.path('a.js'), '2')
    utimesSync(tree.path('a.js'), 1, 1)
    const second = await reader.read()
    t.equal(findDifference(first!, second!, 'there'), 'a.js is another one there')
    t.match(second!.files[1], ['big.bin', 'size 5242880'], 'a large file counts by its size')
    const name = 'ü"\\'.repeat(60)
    tree.write(Object.fromEntries(Array.from({ length: 800 }, (_, n) => [`${n}${name}.js`, ''])))
    const many = await reader.read()
    t.ok(JSON.stringify(many).length < 200 * 1024, `${JSON.stringify(many).length}`)
    t.ok(many!.files.length < many!.count && many!.count === 802)
    t.equal(await new FolderReader(tree.path('nowhere')).read(), null)
  },
)

t.test('[remote/daemon-server.6] what another machine sends is checked', async t => {
  for (const value of [
    undefined,
    null,
    5,
    'x',
    [],
    {},
    { hash: 'a', count: 1 },
    { hash: 'a', count: 1, files: [['a']] },
  ])
    t.equal(parseFolderContent(value), null, JSON.stringify(value))
})
