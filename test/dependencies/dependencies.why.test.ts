import t from 'tap'
import { findWay, listInstalled } from '../../lib/dependencies/dependencies.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[bin/deps.3] packages of each language are read with what they need', async t => {
  const tree = makeTree({
    '.deps/a-1.dist-info/METADATA':
      'Name: a\nVersion: 1\nRequires-Dist: B.c (>=1) ; python_version > "3"\nRequires-Dist: no; extra == "x"\n\nName: z\n',
    '.deps/b_c-2.dist-info/METADATA': 'Name: b-c\nVersion: 2\n',
    '.deps/bad.dist-info/METADATA': 'Version: 2\n',
    'node_modules/x/package.json': '{"name":"x","version":"1.0.0","dependencies":{"@s/y":"*"}}',
    'node_modules/@s/y/package.json': '{"name":"@s/y","version":"2.0.0"}',
    'node_modules/broken/package.json': '{',
    'vendor/composer/installed.json':
      '{"packages":[{"name":"v/p","version":"3.0","require":{"v/q":"*"}},{"name":"v/q","version":"1"}]}',
  })
  t.teardown(tree.cleanup)
  const way = (runtime: string, name: string) => findWay(listInstalled(runtime, tree.root), name)
  t.same(way('python', 'B_C'), ['a 1', 'b-c 2'])
  t.same(way('python', 'a'), ['a 1'])
  t.equal(way('python', 'no'), null)
  t.same(way('node', '@s/y'), ['x 1.0.0', '@s/y 2.0.0'])
  t.same(way('php', 'v/q'), ['v/p 3.0', 'v/q 1'])
  t.same(listInstalled('lua', tree.root), [])
  t.same(listInstalled('python', tree.path('none')), [])
})

t.test('[bin/deps.3] packages that need each other have a way all the same', async t => {
  const ring = [
    { name: 'a', version: '1', needs: ['b'] },
    { name: 'b', version: '1', needs: ['a'] },
  ]
  t.same(findWay(ring, 'a'), ['a 1'])
})
