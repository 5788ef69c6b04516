import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import {
  checkRoot,
  createOuterEnvReader,
  findProjectFile,
  loadSettings,
  readEnvFiles,
} from '../../lib/config/project-file.ts'
import { MAX_CONFIG_FILE_BYTES } from '../../lib/core/limits.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

function treeOf(t: Test, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  return tree
}

t.test('[config/settings.16] where the project file is looked for', async t => {
  const json = (mark: string) => ({ json: { mark } })
  const cases: [name: string, entries: Record<string, TreeEntry>, mark: string | null, label: string | null][] = [
    ['working directory', { 'a/b/fngw.json': json('here'), 'a/fngw.json': json('above') }, 'here', 'fngw.json'],
    ['parent', { 'a/fngw.json': json('above'), 'a/b/': '' }, 'above', '../fngw.json'],
    ['repository root', { 'a/.git/': '', 'a/fngw.json': json('root'), 'a/b/': '' }, 'root', '../fngw.json'],
    ['not above the repository root', { 'fngw.json': json('above'), 'a/.git/': '', 'a/b/': '' }, null, null],
    ['.git may be a file', { 'fngw.json': json('above'), 'a/b/.git': 'gitdir: x' }, null, null],
    [
      'package.json of the working directory',
      { 'fngw.json': json('above'), 'a/.git/': '', 'a/b/package.json': { json: { fngw: { mark: 'package' } } } },
      'package',
      'package.json#fngw',
    ],
    [
      'fngw.json before package.json',
      { 'a/fngw.json': json('above'), 'a/b/package.json': { json: { fngw: {} } } },
      'above',
      '../fngw.json',
    ],
    ['not the package.json above', { 'a/.git/': '', 'a/package.json': { json: { fngw: {} } }, 'a/b/': '' }, null, null],
  ]
  for (const [name, entries, mark, label] of cases) {
    const tree = treeOf(t, { ...entries, '.git/': '' })
    const { file, findings } = findProjectFile({ cwd: tree.path('a/b') })
    t.same(findings, [], name)
    t.same((file?.value as { mark?: string } | undefined)?.mark ?? null, mark, name)
    t.equal(file?.label ?? null, label, name)
  }
  const tree = treeOf(t, { 'fngw.json': json('cwd'), 'conf/other.json': json('other') })
  const { file } = findProjectFile({ cwd: tree.root, explicit: 'conf/other.json' })
  t.match(file, { path: tree.path('conf/other.json'), label: 'conf/other.json', value: { mark: 'other' } })
})

t.test(
  '[config/settings.24] the project file of a folder that the command line names is not read silently',
  async t => {
    const tree = treeOf(t, {
      '.git/': '',
      'fngw.json': { json: {} },
      'app/fngw.json': { json: { 'functions-dir': 'f' } },
      'plain/': '',
    })
    const codes = (cwd: string, folder: string, explicit: string | null = null) =>
      loadSettings({ cwd, explicit, flags: { functionsRoot: folder } }).warnings
    t.match(codes(tree.root, 'app'), [
      {
        code: 'CONFIG_NO_EFFECT',
        message: /^app\/fngw\.json has no effect: fngw reads the project file of the working directory/,
        hint: 'Start fngw in app and name no folder, or write --config app/fngw.json instead of the folder.',
      },
    ])
    t.same(codes(tree.root, 'plain'), [], 'no project file there')
    t.same(codes(tree.path('app'), '.'), [], 'the one that is read')
    t.same(codes(tree.root, 'app', 'app/fngw.json'), [], 'read by --config')
    t.same(loadSettings({ cwd: tree.root, options: { functionsRoot: tree.path('app') } }).warnings, [], 'embedded')
  },
)

t.test('[config/settings.17] a file that cannot be used is a problem, never skipped', async t => {
  const tree = treeOf(t, {
    '.git/': '',
    'fngw.json': { json: { port: 1 } },
    'broken/fngw.json': '{\n  "port": 1,\n}',
    'folder/fngw.json/': '',
    'big/fngw.json': ' '.repeat(MAX_CONFIG_FILE_BYTES + 1),
    'pipe/': '',
    'binary/fngw.json': Uint8Array.of(0xff, 0xfe, 0x7b),
    'package/package.json': { json: { fngw: 'x' } },
    'quiet/.git/': '',
    'quiet/package.json': '{ no',
  })
  execFileSync('mkfifo', [tree.path('pipe/fngw.json')])
  const cases: [folder: string, message: RegExp][] = [
    ['broken', /^fngw\.json is not JSON: line 2, column 12: a comma before }$/],
    ['folder', /^fngw\.json cannot be read: it is not a regular file$/],
    ['pipe', /^fngw\.json cannot be read: it is not a regular file$/],
    ['big', /^fngw\.json has 1048577 bytes, at most 1048576 are read$/],
    ['binary', /^fngw\.json is not JSON: the file is not UTF-8 text$/],
  ]
  for (const [folder, message] of cases) {
    const { file, findings } = findProjectFile({ cwd: tree.path(folder) })
    t.equal(file, null, folder)
    t.match(findings, [{ message, hint: /./ }], folder)
  }
  const explicit: [path: string, message: RegExp][] = [
    ['missing.json', /^--config missing\.json cannot be read: there is no such file$/],
    ['fngw.json/x', /^--config fngw\.json\/x cannot be read: a part of its path is not a folder$/],
    ['folder', /^--config folder cannot be read: it is not a regular file$/],
    ['broken/fngw.json', /^broken\/fngw\.json is not JSON/],
  ]
  for (const [path, message] of explicit) {
    const { file, findings } = findProjectFile({ cwd: tree.root, explicit: path })
    t.equal(file, null, 'not the fngw.json of the folder')
    t.match(findings, [{ message }], path)
  }
  const wrong = treeOf(t, { '.git/': '', 'package.json': { json: { fngw: 'x' } } })
  t.match(findProjectFile({ cwd: wrong.root }), {
    file: null,
    findings: [{ message: /^package\.json: fngw must be an object, got "x"/ }],
  })
  t.same(
    findProjectFile({ cwd: tree.path('quiet') }),
    { file: null, findings: [] },
    'a broken package.json is not ours to judge',
  )
})

const isRoot = process.getuid?.() === 0

t.test('[config/settings.18] a project file that another user could have planted is not used', async t => {
  const tree = treeOf(t, { '.git/': '', 'fngw.json': { json: { port: 1 } }, 'sub/': '' })
  const path = tree.path('fngw.json')
  const cwd = tree.path('sub')
  chmodSync(path, 0o644)
  t.equal(findProjectFile({ cwd }).file?.path, path)
  chmodSync(path, 0o646)
  const { file, findings } = findProjectFile({ cwd })
  t.equal(file, null)
  t.match(findings, [
    {
      code: 'CONFIG_NO_EFFECT',
      message: /^\.\.\/fngw\.json is not used: .* another user can change it$/,
      hint: /--config/,
    },
  ])
  t.equal(findProjectFile({ cwd: tree.root }).file?.path, path, 'in the working directory it was chosen')
  t.equal(findProjectFile({ cwd, explicit: '../fngw.json' }).file?.path, path)
  t.equal(findProjectFile({ cwd, uid: null }).file?.path, path, 'no users on this system')
})

t.test(
  '[config/settings.18] the owner of the project file counts',
  { skip: !isRoot && 'only root can give files away' },
  async t => {
    const tree = treeOf(t, { '.git/': '', 'fngw.json': { json: { port: 1 } }, 'sub/': '' })
    chmodSync(tree.path('fngw.json'), 0o644)
    const search = { cwd: tree.path('sub'), uid: 12_345 }
    t.ok(findProjectFile(search).file, 'owned by root')
    chownSync(tree.path('fngw.json'), 12_345, 12_345)
    t.ok(findProjectFile(search).file, 'owned by oneself')
    chownSync(tree.path('fngw.json'), 12_346, 12_346)
    t.notOk(findProjectFile(search).file, 'owned by another user')
  },
)

t.test('[config/settings.19] env files set what the process does not', async t => {
  const tree = treeOf(t, {
    '.env': '# comment\nexport FN_PORT=1\nFN_HOST="0.0.0.0"\nA=1\n__proto__=x\nFN_LOG_LEVEL=warn',
    '.env.local': "FN_PORT='2'\nB=2\n",
  })
  const { env, envFiles, findings } = readEnvFiles(tree.root, { FN_HOST: '127.0.0.1', C: '3', A: '' }, tree.root)
  t.same(findings, [])
  t.match(env, { FN_PORT: '2', FN_HOST: '127.0.0.1', A: '', B: '2', C: '3', FN_LOG_LEVEL: 'warn' })
  t.equal(envFiles.FN_PORT, join(tree.root, '.env.local'))
  t.equal(envFiles.FN_LOG_LEVEL, join(tree.root, '.env'))
  t.equal(envFiles.FN_HOST, undefined)
  t.equal(({} as { x?: unknown }).x, undefined)
  t.same({ ...readEnvFiles(tree.path('missing'), { A: '1' }, tree.root).env }, { A: '1' })
  tree.write({ 'bad/.env/': '' })
  t.match(readEnvFiles(tree.path('bad'), {}, tree.root).findings, [{ message: /^bad\/\.env cannot be read/ }])
})

t.test('[config/settings.11, config/settings.19, config/settings.20] everything together', async t => {
  const tree = treeOf(t, {
    '.git/': '',
    'fngw.json': { json: { 'functions-dir': 'fns', port: 1, 'log-level': 'warn' } },
    '.env': 'FN_PORT=2\nFN_HOST=a b\nFN_SCHEDULER_STATE_PATH=state.json\n',
    'sub/.env': 'FN_PORT=3',
  })
  const loaded = loadSettings({ cwd: tree.path('sub'), env: { FN_LOG_LEVEL: 'loud' }, flags: { forceUrl: true } })
  t.match(loaded.settings, {
    functionsRoot: tree.path('fns'),
    port: 2,
    forceUrl: true,
    schedulerStatePath: tree.path('state.json'),
  })
  t.equal(loaded.configFile, tree.path('fngw.json'))
  t.match(loaded.problems, [{ message: /^\.\.\/\.env: FN_HOST must be/ }, { message: /^FN_LOG_LEVEL must be/ }])
  t.same(loaded.sources.port, { source: 'env', name: '../.env: FN_PORT' })
  const missing = loadSettings({ cwd: tree.path('sub'), explicit: 'nope.json', env: { FN_PORT: 'x' } })
  t.match(missing.problems, [
    { source: 'file', message: /^--config nope\.json cannot be read/ },
    { source: 'env', message: /^FN_PORT/ },
  ])
  t.equal(missing.configFile, null)
  const gone = loadSettings({ cwd: join(tree.root, 'never', 'was'), env: {} })
  t.equal(gone.settings.port, 2, 'a missing working directory throws nothing')
})

t.test(
  '[config/function-env.13] what functions get of the project is read anew, and is the same object while nothing changed',
  async t => {
    const tree = treeOf(t, { '.env': 'A=1\nB=1\nFN_PORT=5\n', '.env.local': 'B=2\n' })
    const process = { A: 'host' }
    const read = createOuterEnvReader(tree.root, process)
    const first = read()
    t.same(first, { defaults: { A: '1', B: '2' }, process })
    t.equal(read(), first)
    tree.write({ '.env.local': 'B=3\n' })
    t.same(read().defaults, { A: '1', B: '3' })
    tree.remove('.env')
    tree.remove('.env.local')
    t.same(read().defaults, {})
    t.same(createOuterEnvReader(null, process)(), { defaults: {}, process }, 'no project, no files')
  },
)

t.test('[config/function-env.12] a line of another form in an env file keeps nobody from starting', async t => {
  const tree = treeOf(t, { '.git/': '', '.env': 'GOOD=1\nnot hunter2 a line\nSPOILT=hunter2\nFN_PORT=7\n' })
  const { problems, warnings, settings } = loadSettings({ cwd: tree.root, env: {} })
  t.same(problems, [])
  t.equal(settings.port, 7)
  t.match(warnings, [{ code: 'CONFIG_IGNORED_LINE', path: '.env', message: /^\.env: line 2 is ignored: / }])
  t.notMatch(JSON.stringify(warnings), 'hunter2')
})

t.test('[config/settings.2] a functions root that does not exist is a problem that names its source', async t => {
  const tree = treeOf(t, { '.git/': '', 'fngw.json': { json: { 'functions-dir': 'nowhere' } }, file: '' })
  t.match(checkRoot(loadSettings({ cwd: tree.root })), [
    {
      code: 'CONFIG_VALUE',
      source: 'file',
      message: /^fngw\.json: functions-dir must be a folder that exists, got ".*nowhere" \(string\)$/,
    },
  ])
  t.match(checkRoot(loadSettings({ cwd: tree.root, flags: { functionsRoot: 'file' } })), [{ source: 'flag' }])
  t.same(checkRoot(loadSettings({ cwd: tree.root, options: { functionsRoot: tree.root } })), [])
})
