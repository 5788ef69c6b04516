import t from 'tap'
import { listInstalled } from '../../lib/dependencies/package-set.ts'
import { makeTree } from '../helpers/tree.ts'

t.test(
  '[bin/deps.3] installed packages of each language are listed by name, with the packages that they need',
  async t => {
    const tree = makeTree({
      '.deps/b-2.dist-info/METADATA': 'Name: b\nVersion: 2\n',
      '.deps/a-1.dist-info/METADATA': 'Name: a\nVersion: 1\nRequires-Dist: b (>=1)\n',
      'node_modules/x/package.json': '{"name":"x","version":"1.0.0","dependencies":{"@s/y":"*"}}',
      'node_modules/@s/y/package.json': '{"name":"@s/y","version":"2.0.0"}',
      'node_modules/broken/package.json': '{',
      'node_modules/nameless/package.json': '{"version":"1.0.0"}',
      'vendor/composer/installed.json':
        '{"packages":[{"name":"v/p","version":"3.0","require":{"v/q":"*"}},{"name":"v/q","version":"1"},7]}',
    })
    t.teardown(tree.cleanup)
    t.same(listInstalled('python', tree.root), [
      { name: 'a', version: '1', needs: ['b'] },
      { name: 'b', version: '2', needs: [] },
    ])
    t.same(listInstalled('node', tree.root), [
      { name: '@s/y', version: '2.0.0', needs: [] },
      { name: 'x', version: '1.0.0', needs: ['@s/y'] },
    ])
    t.same(listInstalled('php', tree.root), [
      { name: 'v/p', version: '3.0', needs: ['v/q'] },
      { name: 'v/q', version: '1', needs: [] },
    ])
    t.same(listInstalled('lua', tree.root), [])
    for (const runtime of ['python', 'node', 'php']) t.same(listInstalled(runtime, tree.path('none')), [])
  },
)
