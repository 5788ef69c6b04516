import { utimesSync } from 'node:fs'
import t from 'tap'
import { findChange } from '../../lib/discovery/loaded-files.ts'
import { snapshotOf } from '../helpers/discovery.ts'
import { makeTree } from '../helpers/tree.ts'

const FILES = {
  'util.js': '1',
  'util.py': '1',
  '_lib/deep/x.js': '1',
  'other/b.js': '1',
  'a/handler.js': '1',
  'a/helpers/y.js': '1',
  'a/data.json': '1',
}

function setUp(t: { teardown: (fn: () => void) => void }) {
  const tree = makeTree(FILES)
  t.teardown(tree.cleanup)
  const snapshot = snapshotOf(tree.root)
  const changeOf = (entryFile = 'a/handler.js', runtime: 'node' | 'python' = 'node') =>
    findChange(snapshot, { entryFile, runtime })
  return { tree, changeOf }
}

t.test('[discovery/layouts.48] a change of what is in reach of a function is seen, of anything else not', async t => {
  for (const [file, isSeen] of [
    ['a/handler.js', true],
    ['a/helpers/y.js', true],
    ['util.js', true],
    ['_lib/deep/x.js', true],
    ['util.py', false],
    ['other/b.js', false],
    ['a/data.json', false],
  ] as const) {
    const { tree, changeOf } = setUp(t)
    t.equal(changeOf(), null)
    tree.write({ [file]: 'longer' })
    t.equal(changeOf() !== null, isSeen, file)
  }
})

t.test('[discovery/layouts.48] another state is another text, a file that is gone too', async t => {
  const { tree, changeOf } = setUp(t)
  const seen = new Set<string | null>([changeOf()])
  tree.write({ 'a/handler.js': '' })
  seen.add(changeOf())
  tree.write({ 'a/handler.js': 'whole' })
  const whole = changeOf()
  seen.add(whole)
  t.equal(changeOf(), whole, 'and the same text while nothing changes')
  utimesSync(tree.path('a/handler.js'), 1, 1)
  seen.add(changeOf())
  tree.remove('a')
  seen.add(changeOf())
  t.equal(seen.size, 5)
})

t.test(
  '[discovery/layouts.48] a function right in the root has the root in reach, and no folder of others',
  async t => {
    const { tree, changeOf } = setUp(t)
    tree.write({ 'other/b.js': 'longer' })
    t.equal(changeOf('util.js'), null)
    t.equal(changeOf('gone/nowhere.js'), null)
    tree.write({ 'util.py': 'longer' })
    t.match(changeOf('util.py', 'python'), 'util.py|6|')
  },
)
