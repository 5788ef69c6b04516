import t from 'tap'
import { ConfigReader } from '../../lib/discovery/folder.ts'
import { isGood, toExcluded } from '../../lib/discovery/snapshot.ts'
import { snapshotOf } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

function setUp(t: { teardown: (fn: () => void) => void }, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const reader = new ConfigReader()
  let snapshot = snapshotOf(tree.root)
  const read = (more: Record<string, TreeEntry> = {}) => {
    tree.write(more)
    snapshot = snapshotOf(tree.root, { previous: snapshot })
    return reader.read(snapshot.root)
  }
  return { tree, read }
}

const codes = ({ warnings }: { warnings: readonly { code: string }[] }) => warnings.map(({ code }) => code)

t.test('[discovery/layouts.27] a folder without config files has none of anything', async t => {
  const configs = setUp(t, { 'a.js': '' }).read()
  t.equal(configs.config, null)
  t.same(configs.routes, [])
  t.same(configs.warnings, [])
})

t.test('[discovery/layouts.30, discovery/layouts.2] each file is parsed once per text', async t => {
  const { read } = setUp(t, {
    'fn.config.json': { json: { timeout_ms: 5 } },
    'fn.routes.json': { json: { routes: { '/x': 'a.js' } } },
    'fn.env.json': { json: { KEY: 'v' } },
  })
  const first = read()
  t.equal(first.config?.timeoutMs, 5)
  t.match(first.routes, [{ path: '/x', target: 'a.js' }])
  const again = read()
  t.equal(again.config, first.config)
  t.equal(again.routes, first.routes)
  t.equal(again.env, first.env)
  const changed = read({ 'fn.config.json': { json: { timeout_ms: 6 } } })
  t.equal(changed.config?.timeoutMs, 6)
  t.equal(changed.routes, first.routes, 'the other files keep their objects')
})

t.test('[discovery/layouts.30] a wrong text leaves the last good one in force, until it is mended', async t => {
  const { read } = setUp(t, { 'fn.config.json': { json: { timeout_ms: 5 } } })
  t.equal(read().config?.timeoutMs, 5)
  const broken = read({ 'fn.config.json': '{ "timeout_ms": ' })
  t.equal(broken.config?.timeoutMs, 5)
  t.same(codes(broken), ['CONFIG_NOT_JSON', 'CONFIG_KEPT'])
  const wrong = read({ 'fn.config.json': { json: { timeout_ms: 'x', group: 'g' } } })
  t.equal(wrong.config?.timeoutMs, 5)
  t.equal(wrong.config?.group, undefined, 'no half of it')
  t.same(codes(wrong), ['CONFIG_VALUE', 'CONFIG_KEPT'])
  const mended = read({ 'fn.config.json': { json: { timeout_ms: 7 } } })
  t.equal(mended.config?.timeoutMs, 7)
  t.same(codes(mended), [])
})

t.test('[discovery/layouts.30] the first text that is wrong counts as far as it is right', async t => {
  const partly = setUp(t, { 'fn.config.json': { json: { timeout_ms: 'x', group: 'g' } } }).read()
  t.equal(partly.config?.group, 'g')
  t.same(codes(partly), ['CONFIG_VALUE'])
  const none = setUp(t, { 'fn.config.json': Buffer.from([0xff, 0xfe]) }).read()
  t.not(none.config, null, 'the file is there, and says nothing')
  t.same(codes(none), [], 'the snapshot has the warning')
  const note = setUp(t, { 'fn.config.json': { json: { timeout_ms: 5, unknown: 1 } } })
  t.equal(note.read().config?.timeoutMs, 5)
  const noted = note.read({ 'fn.config.json': { json: { timeout_ms: 6, unknown: 1 } } })
  t.equal(noted.config?.timeoutMs, 6, 'a note is no reason to keep the old one')
})

t.test('[discovery/layouts.30, discovery/layouts.32] what a snapshot asks of config texts', async t => {
  t.ok(isGood('config', '{"timeout_ms": 5}'))
  t.ok(isGood('config', '{"unknown": 5}'), 'a note only')
  t.notOk(isGood('config', '{"timeout_ms": -5}'))
  t.notOk(isGood('config', '{'))
  t.ok(isGood('env', '{"KEY": "v"}'))
  t.notOk(isGood('env', '[]'))
  t.ok(isGood('routes', '{"routes": {"/x": "a.js"}}'))
  t.notOk(isGood('routes', '[]'))
  t.same([...toExcluded('{"assets": {"directory": "./site"}}')], ['site'])
  t.same([...toExcluded('{}')], [])
  t.same([...toExcluded('{')], [])
})
