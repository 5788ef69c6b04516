import { relative } from 'node:path'
import t from 'tap'
import { filesOfGoReplacements } from '../../lib/dependencies/go.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[dependencies/resolve.15] folders that a go.mod puts in the place of modules', async t => {
  const tree = makeTree({
    'left/left.go': '',
    'left/go.mod': '',
    'left/data/words.txt': '',
    'left/.git/config': '',
    'deep/a/a.go': '',
    'fn/inner/inner.go': '',
  })
  t.teardown(tree.cleanup)
  const found = (mod: string) => filesOfGoReplacements(tree.path('fn'), mod).map(path => relative(tree.root, path))
  const left = ['left/data/words.txt', 'left/go.mod', 'left/left.go']
  for (const [mod, files] of [
    ['', []],
    ['replace example.com/left => ../left', left],
    ['replace example.com/left v1.0.0 => "../left"\n', left],
    [
      `replace (\n\texample.com/a => ${tree.path('deep/a')} // near\n\texample.com/i => ./inner\n)\n`,
      ['deep/a/a.go', 'fn/inner/inner.go'],
    ],
    ['replace example.com/left => example.com/other v1.2.0', []],
    ['// replace example.com/left => ../left', []],
    ['replace example.com/left => ../gone', []],
    ['replace example.com/left => ../left/left.go', []],
    ['replace x => ../left\nreplace y => ../left', left],
  ] as const)
    t.same(found(mod), files, mod)
})
