import { truncateSync, unlinkSync, utimesSync } from 'node:fs'
import t from 'tap'
import { WriteSettler } from '../../lib/discovery/watch.ts'
import { makeTree } from '../helpers/tree.ts'

const TEXT = 'export const handler = () => ({ status: 200 })\n'

function setUp(t: { teardown: (fn: () => void) => void }, sizes: Record<string, number> = { 'a.js': TEXT.length }) {
  const tree = makeTree({ 'a.js': TEXT, 'folder/': '' })
  t.teardown(tree.cleanup)
  const halfSaved = new WriteSettler(tree.root, path => sizes[path] ?? null)
  let time = 1000
  /** Writes a file, later than any before, and looks at it. */
  const save = (path: string, text: string): boolean => {
    tree.write({ [path]: text })
    utimesSync(tree.path(path), time, time++)
    return halfSaved.mustWait([path])
  }
  return { tree, halfSaved, save }
}

t.test('[discovery/layouts.44] which saves wait for a second look', async t => {
  const cases: [string, string, boolean][] = [
    ['the same text', TEXT, false],
    ['another whole text', `${TEXT}export const other = 1\n`, false],
    ['a little shorter', TEXT.replace('200', '2'), false],
    ['empty', '', true],
    ['much shorter', 'let a\n', true],
    ['cut', TEXT.slice(0, -5), true],
  ]
  for (const [title, text, isHalf] of cases) t.equal(setUp(t).save('a.js', text), isHalf, title)
  t.equal(setUp(t, {}).save('new.py', ''), true, 'a new file that is still empty')
  t.equal(setUp(t, {}).save('new.py', 'x = 1\n'), false, 'a new file')
  t.equal(setUp(t, { 'a.js': 0 }).save('a.js', ''), false, 'empty before')
  t.equal(setUp(t).save('fn.config.json', '{"timeout'), true, 'JSON that is none')
})

t.test('[discovery/layouts.44] unchanged at the second look, it was meant so', async t => {
  const { halfSaved, save } = setUp(t)
  t.ok(save('a.js', ''))
  t.notOk(halfSaved.mustWait(['a.js']))
  t.ok(save('a.js', 'let a\n'), 'the next save is judged anew')
  t.ok(save('a.js', 'let a = (\n'), 'while it changes it waits')
  t.notOk(save('a.js', TEXT), 'complete now')
})

t.test('[discovery/layouts.44] a text that is odd by itself waits once', async t => {
  const { halfSaved, save } = setUp(t)
  const odd = `${TEXT}export const pattern = /[(]/\n`
  t.ok(save('a.js', odd))
  t.notOk(halfSaved.mustWait(['a.js']))
  t.notOk(save('a.js', `${odd}// more\n`), 'not again')
  t.notOk(save('a.js', TEXT))
  t.ok(save('a.js', odd), 'whole in between, so the cut is news')
})

t.test('[discovery/layouts.44] files that are gone, folders and large files do not wait', async t => {
  const { tree, halfSaved } = setUp(t)
  t.notOk(halfSaved.mustWait(['gone.js', 'folder', '']))
  tree.write({ 'large.js': `${'('.repeat(300 * 1024)}` })
  t.notOk(halfSaved.mustWait(['large.js']), 'not read to see how it ends')
  truncateSync(tree.path('a.js'))
  t.ok(halfSaved.mustWait(['gone.js', 'a.js', 'folder']), 'one of many is enough')
  unlinkSync(tree.path('a.js'))
  t.notOk(halfSaved.mustWait(['a.js']))
})

t.test('[discovery/layouts.44] full paths are taken as they are', async t => {
  const { tree } = setUp(t)
  const full = tree.path('a.js')
  const halfSaved = new WriteSettler('/nowhere', path => (path === full ? 1000 : null))
  t.ok(halfSaved.mustWait([full]))
})
