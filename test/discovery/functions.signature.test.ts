import t from 'tap'
import {
  addHelpers,
  lacksPackages,
  manifestsOf,
  NO_HELPERS,
  sourcesBelow,
  stampOf,
  toSignature,
} from '../../lib/discovery/functions.ts'
import type { FileEntry } from '../../lib/discovery/snapshot.ts'
import { snapshotOf } from '../helpers/discovery.ts'
import { TEST_POLICY } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

const file = (name: string, size = 1, mtimeMs = 1000): FileEntry => ({ name, size, mtimeMs })

t.test('[discovery/layouts.33] helpers count for their own runtime, and for all below', async t => {
  t.equal(addHelpers(NO_HELPERS, []), NO_HELPERS)
  const js = addHelpers(NO_HELPERS, [{ folder: 'a', file: file('x.js') }])
  t.not(js.node, '')
  t.same({ ...js, node: '' }, NO_HELPERS)
  const more = addHelpers(js, [{ folder: 'a/b', file: file('y.py') }])
  t.equal(more.node, js.node, 'what is in reach from above stays')
  t.not(more.python, '')
  const others = [file('x.js', 2), file('x.js', 1, 2000), file('y.js')]
  for (const other of others) t.not(addHelpers(NO_HELPERS, [{ folder: 'a', file: other }]).node, js.node)
  t.not(addHelpers(NO_HELPERS, [{ folder: 'b', file: file('x.js') }]).node, js.node, 'another folder')
  t.not(addHelpers(js, [{ folder: 'a/b', file: file('z.js') }]).node, js.node)
  t.same(addHelpers(NO_HELPERS, [{ folder: 'a', file: file('notes.txt') }]), NO_HELPERS)
  t.equal(stampOf('', file('x.js')), 'x.js|1|1000')
})

t.test('[discovery/layouts.33, discovery/layouts.34] what a signature holds, and what it does not', async t => {
  const sign = (
    entry = file('handler.js'),
    helpers = '',
    manifests = '',
    policy = TEST_POLICY,
    env: Record<string, { value: string; isSecret: boolean }> = {},
    path = 'a/handler.js',
  ) => toSignature(path, entry, helpers, manifests, policy, env)
  const base = sign()
  t.match(base, /^[\w-]{24}$/)
  t.equal(sign(), base)
  const different = [
    sign(file('handler.js', 2)),
    sign(file('handler.js', 1, 2000)),
    sign(undefined, 'helper'),
    sign(undefined, '', 'manifest'),
    sign(undefined, '', '', { ...TEST_POLICY, handler: 'run' }),
    sign(undefined, '', '', { ...TEST_POLICY, adapterName: 'edge-worker' }),
    sign(undefined, '', '', { ...TEST_POLICY, sharedDeps: ['pack'] }),
    sign(undefined, '', '', { ...TEST_POLICY, allowScripts: ['esbuild'] }),
    sign(undefined, '', '', TEST_POLICY, { KEY: { value: 'v', isSecret: false } }),
    sign(undefined, '', '', TEST_POLICY, { KEY: { value: 'w', isSecret: true } }),
    sign(undefined, '', '', TEST_POLICY, {}, 'b/handler.js'),
  ]
  t.equal(new Set([base, ...different]).size, different.length + 1)
  t.equal(sign(undefined, '', '', { ...TEST_POLICY, timeoutMs: 1, maxConcurrency: 1, methods: ['PUT'] }), base)
  t.notMatch(sign(undefined, '', '', TEST_POLICY, { KEY: { value: 'secret', isSecret: true } }), /secret/)
})

t.test('[discovery/layouts.33, dependencies/shared-packs.4] what lies beside a handler', async t => {
  const tree = makeTree({
    'a/go.mod': 'x',
    'a/Cargo.toml': 'x',
    'a/deep/er/x.js': '',
    'a/deep/y.py': '',
    'a/z.lua': '',
    'a/notes.txt': '',
    'p/requirements.txt': '',
    'p/package.json': '',
    'p/composer.json': '',
    'p/go.mod': '',
    'q/requirements.txt': '',
    'q/.deps/x.py': '',
    'q/package.json': '',
    'q/node_modules/x/i.js': '',
    'q/composer.json': '',
    'q/vendor/x.php': '',
  })
  t.teardown(tree.cleanup)
  const { dirs } = snapshotOf(tree.root).root
  const [a, p, q] = dirs
  t.match(manifestsOf(a!, 'go'), /^a\/go\.mod\|1\|/)
  t.match(manifestsOf(a!, 'rust'), /^a\/Cargo\.toml\|1\|/)
  t.equal(manifestsOf(a!, 'node'), '')
  t.same(
    sourcesBelow(a!).map(({ folder, file }) => `${folder}/${file.name}`),
    ['a/z.lua', 'a/deep/y.py', 'a/deep/er/x.js'],
  )
  t.same(
    (['python', 'node', 'php', 'lua', 'go', 'rust'] as const).filter(runtime => lacksPackages(p!, runtime)),
    ['python', 'node', 'php'],
  )
  for (const runtime of ['python', 'node', 'php'] as const) {
    t.notOk(lacksPackages(q!, runtime), runtime)
    t.notOk(lacksPackages(a!, runtime), runtime)
  }
})
