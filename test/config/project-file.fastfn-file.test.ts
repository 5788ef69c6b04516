import t from 'tap'
import { findProjectFile, fromFastFn, loadSettings } from '../../lib/config/project-file.ts'
import type { Finding } from '../../lib/config/fields.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

function convert(value: unknown) {
  const findings: Finding[] = []
  const converted = fromFastFn(value, 'fastfn.json', findings)
  return { value: converted, notes: findings.map(({ code, message }) => `${code} ${message}`) }
}

function treeOf(t: { teardown: (fn: () => void) => void }, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  return tree
}

const NOTICE = 'CONFIG_FOREIGN_FILE fastfn.json is read as the project file'

t.test('[config/settings.22] spellings of keys, and what has no counterpart', async t => {
  for (const key of ['functions-dir', 'functions_dir', 'functionsDir'])
    t.same(convert({ [key]: 'x' }), { value: { 'functions-dir': 'x' }, notes: [NOTICE] }, key)
  const { value, notes } = convert({
    domains: ['a.example'],
    runtime_binaries: { openresty: '/o', python: 'python3' },
    hotReload: true,
  })
  t.same({ ...(value as object) }, { 'runtime-binaries': { python: 'python3' }, 'hot-reload': true })
  t.same(notes, [
    NOTICE,
    'CONFIG_NO_EFFECT fastfn.json: domains has no effect: names and certificates are the business of the proxy in front',
    'CONFIG_NO_EFFECT fastfn.json: runtime_binaries.openresty has no effect: the gateway serves HTTP itself',
  ])
  t.match(convert({ 'runtime-binaries': 'openresty=/o, python=py' }).value, { 'runtime-binaries': ' python=py' })
  for (const odd of [null, 5, [], 'x']) t.same(convert(odd).value, odd, 'what is wrong is told by the settings')
  t.same(Object.keys(convert(JSON.parse('{"__proto__":1}')).value as object), ['__proto__'])
})

t.test('[config/settings.22] where it is looked for', async t => {
  const tree = treeOf(t, {
    '.git/': '',
    'fastfn.json': { json: { functionsDir: 'fns', 'runtime-daemons': 'node=3', 'force-url': true } },
    'fns/': '',
    'sub/deeper/': '',
    'own/.git/': '',
    'own/fngw.json': { json: {} },
    'own/sub/fastfn.json': { json: { port: 1 } },
    'package/.git/': '',
    'package/package.json': { json: { fngw: { port: 7 } } },
    'package/fastfn.json': { json: { port: 1 } },
    'broken/.git/': '',
    'broken/fastfn.json': '{',
  })
  const loaded = loadSettings({ cwd: tree.path('sub/deeper') })
  t.same(loaded.problems, [])
  t.match(loaded, {
    configFile: tree.path('fastfn.json'),
    envDir: tree.root,
    settings: { functionsRoot: tree.path('fns'), runtimeDaemons: { node: 3 }, forceUrl: true },
    warnings: [{ code: 'CONFIG_FOREIGN_FILE', hint: 'Rename it to fngw.json.' }],
  })
  t.equal(findProjectFile({ cwd: tree.path('own/sub') }).file?.path, tree.path('own/fngw.json'))
  t.equal(findProjectFile({ cwd: tree.path('package') }).file?.label, 'package.json#fngw')
  t.match(findProjectFile({ cwd: tree.path('broken') }), { file: null, findings: [{ code: 'CONFIG_NOT_JSON' }] })
  const named = findProjectFile({ cwd: tree.path('own'), explicit: '../fastfn.json' })
  t.match(named.file?.value, { 'functions-dir': 'fns' }, 'also when it is named')
})
