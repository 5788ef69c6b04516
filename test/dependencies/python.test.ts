import { existsSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { Builds } from '../../lib/dependencies/resolve.ts'
import { SharedPacks } from '../../lib/dependencies/shared-packs.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { createInstallers } from '../../lib/install-parts.ts'
import { findProgram, findTool } from '../../lib/runtime/binaries.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'
import { makeWheels } from '../helpers/wheels.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

const WHEELS = [
  { name: 'alpha', version: '1.0' },
  { name: 'alpha', version: '2.0' },
  { name: 'beta', version: '1.0', needs: ['alpha<2'] },
  { name: 'gamma-tools', version: '3.1', files: { 'gam/__init__.py': '' } },
]
const CACHED = fileURLToPath(new URL('../../node_modules/.cache/fngw-python/bin', import.meta.url))
const uv = findTool({ tool: 'uv', binaries: {}, path: `${CACHED}:${process.env.PATH ?? ''}` })

interface BedOptions {
  settings?: Record<string, unknown>
  env?: Record<string, string>
}

/** Folders of functions below one root, and the real installer with wheels of its own. */
function makeBed(t: Test, entries: Record<string, TreeEntry>, { settings = {}, env = {} }: BedOptions = {}) {
  const tree = makeTree(entries)
  const away = makeTree()
  // One tool in each test: what is on PATH is not the test's to say.
  const hostEnv = { ...process.env, ...makeWheels(away.root, WHEELS), ...env }
  const resolved = resolveSettings({
    options: { functionsRoot: tree.root, runtimes: ['python'], binaries: { uv: '/none/uv' }, ...settings } as never,
    cwd: '/',
  })
  t.same(resolved.problems, [])
  const packs = new SharedPacks(tree.root)
  const runs: string[] = []
  const makeBuilds = () => {
    const installers = createInstallers({
      settings: resolved.settings,
      clock: systemClock,
      hostEnv,
      packs,
      journal: { log: () => {} },
    })
    return new Builds({
      isPrivate: false,
      clock: systemClock,
      temporaryFolder: new OwnFolder(tree.root, '.svc', 'build', 'tmp'),
      hostEnv,
      builders: installers,
      waitMs: 0,
      findProgram: runtime => findProgram(runtime, {}, process.env.PATH ?? ''),
      onBegin: fn => runs.push(fn.name),
      onEnd: () => {},
      onBuilt: () => {},
      onFailure: () => {},
    })
  }
  const builds = makeBuilds()
  t.teardown(async () => {
    await builds.close()
    tree.cleanup()
    away.cleanup()
  })
  let signature = 0
  const fn = (name: string, sharedDeps: string[] = []): FunctionVersion => {
    const entryFile = `${name}/handler.py`
    const entryPath = tree.path(entryFile)
    const policy = { sharedDeps }
    return makeFn({
      runtime: 'python',
      name,
      fnDir: tree.path(name),
      entryPath,
      entryFile,
      signature: `${++signature}`,
      policy,
    })
  }
  return {
    tree,
    builds,
    runs,
    fn,
    makeBuilds,
    read: (path: string) => (existsSync(tree.path(path)) ? readFileSync(tree.path(path), 'utf8') : null),
    version: (name: string, module = 'alpha') =>
      readFileSync(tree.path(`${name}/.deps/${module}/__init__.py`), 'utf8').trim(),
    record: (name: string) =>
      JSON.parse(readFileSync(tree.path(`${name}/.svc-deps-state.json`), 'utf8')) as Record<string, unknown>,
    failure: async (name: string) =>
      (await builds.prepare(fn(name)).then(
        () => t.fail('it is refused'),
        (error: unknown) => error,
      )) as GatewayError,
  }
}

t.test('[dependencies/python.1] a manifest is installed as it is, and what is there is listed', async t => {
  const manifest = '# mine\r\nbeta\r\n'
  const bed = makeBed(t, { 'a/handler.py': 'import beta\n', 'a/requirements.txt': manifest })
  await bed.builds.prepare(bed.fn('a'))
  t.equal(bed.version('a', 'beta'), "VERSION = '1.0'")
  t.equal(bed.version('a'), "VERSION = '1.0'", 'what it needs comes with it')
  t.equal(bed.read('a/requirements.txt'), manifest)
  t.match(bed.read('a/requirements.lock.txt'), /^#.*\nalpha==1\.0\nbeta==1\.0\n$/)
  t.match(bed.record('a'), {
    mode: 'manifest',
    manifest_path: 'a/requirements.txt',
    manifest_generated: false,
    infer_backend: 'native',
    inferred_imports: ['beta'],
    resolved_packages: ['beta==1.0'],
    unresolved_imports: [],
    last_install_status: 'ok',
    lockfile_path: 'a/requirements.lock.txt',
  })
  t.match(bed.builds.recordOf(bed.fn('a')), bed.record('a'))
})

t.test('[dependencies/python.4, dependencies/python.5] imports make a manifest, and are appended to one', async t => {
  const pinned = '# keep\nalpha==1.0 # pinned'
  const bed = makeBed(t, {
    'none/handler.py': 'import alpha\nimport json\n',
    'some/handler.py': 'import alpha, beta\n',
    'some/requirements.txt': pinned,
  })
  await Promise.all(['none', 'some'].map(name => bed.builds.prepare(bed.fn(name))))
  t.match(bed.read('none/requirements.txt'), /^# Made by fngw .*\nalpha\n$/)
  t.equal(bed.read('some/requirements.txt'), `${pinned}\nbeta\n`)
  t.equal(bed.version('none'), "VERSION = '2.0'")
  t.equal(bed.version('some'), "VERSION = '1.0'")
  t.match(bed.record('none'), { mode: 'inferred', manifest_generated: true, manifest_path: 'none/requirements.txt' })
  // The manifest that was made asks for the same set.
  writeFileSync(bed.tree.path('none/handler.py'), 'import json\nimport alpha\n')
  bed.runs.length = 0
  await bed.makeBuilds().prepare(bed.fn('none'))
  t.same(bed.runs, [], 'nothing is installed again')
})

t.test('[dependencies/python.2] comments in the handler are merged with the manifest', async t => {
  const bed = makeBed(t, {
    'a/handler.py': '#@requirements alpha<2 gamma-tools\nimport alpha, gam\n',
    'a/requirements.txt': 'beta\n',
  })
  await bed.builds.prepare(bed.fn('a'))
  t.equal(bed.version('a'), "VERSION = '1.0'")
  t.equal(bed.read('a/requirements.txt'), 'beta\n')
  t.match(bed.record('a'), {
    resolved_packages: ['beta==1.0', 'alpha==1.0', 'gamma-tools==3.1'],
    unresolved_imports: [],
  })
})

t.test(
  '[dependencies/python.6] an import that no package is called like fails a strict function, and is a note otherwise',
  async t => {
    const entries = {
      'a/handler.py': 'import json\nimport gam\nimport alpha\n',
      'upper/handler.py': 'import Gam\n',
      'tried/handler.py': 'try:\n    import gam\nexcept ImportError:\n    pass\nimport alpha\n',
    }
    const strict = makeBed(t, entries)
    const error = await strict.failure('a')
    t.match(error.message, /^install failed: no package is called like what is imported: a\/handler\.py:2 imports gam$/)
    t.match(error.detail, {
      file: 'a/handler.py',
      line: 2,
      hint: /requirements\.txt.*#@requirements.*FN_AUTO_INFER_STRICT=0/,
    })
    t.notOk(existsSync(strict.tree.path('a/requirements.txt')), 'nothing is written for it')
    t.notOk(existsSync(strict.tree.path('a/.deps')))
    t.match((await strict.failure('upper')).message, /upper\/handler\.py:1 imports Gam/)
    await strict.builds.prepare(strict.fn('tried'))
    t.match(strict.record('tried'), { resolved_packages: ['alpha==2.0'], unresolved_imports: ['gam'] })
    const loose = makeBed(t, entries, { settings: { autoInferStrict: false } })
    await loose.builds.prepare(loose.fn('a'))
    t.match(loose.record('a'), {
      resolved_packages: ['alpha==2.0'],
      unresolved_imports: ['gam'],
      last_install_status: 'ok',
    })
    t.match(loose.read('a/requirements.txt'), /\nalpha\n$/)
  },
)

t.test('[dependencies/python.7] a failure names what asked for the package, and what to do', async t => {
  const bed = makeBed(t, {
    'a/handler.py': '',
    'a/requirements.txt': 'alpha\n\nnot-there==9\n',
    'b/handler.py': '# one\n#@requirements alpha==7\n',
    'c/handler.py': '#@requirements alpha==2.0 beta\n',
  })
  const [a, b, c] = await Promise.all(['a', 'b', 'c'].map(bed.failure))
  t.match(a, {
    message: /^install failed: a\/requirements\.txt:3: .*not-there==9/,
    detail: { file: 'a/requirements.txt', line: 3 },
  })
  t.match(b, { message: /^install failed: b\/handler\.py:2: .*alpha==7/, detail: { file: 'b/handler.py', line: 2 } })
  t.match(c?.message, /alpha==2\.0/)
  t.match(bed.record('a'), { last_install_status: 'error', last_error: /not-there/ })
})

t.test('[dependencies/python.3] options, URLs and paths are refused unless a setting allows them', async t => {
  const away = makeTree()
  t.teardown(away.cleanup)
  const { PIP_FIND_LINKS: wheels = '' } = makeWheels(away.root, [{ name: 'delta', version: '4' }])
  const entries = {
    'opt/handler.py': '',
    'opt/requirements.txt': `--find-links ${wheels}\ndelta\n`,
    'path/handler.py': '',
    'path/requirements.txt': `alpha\n${wheels}/delta-4-py3-none-any.whl\n`,
    'inline/handler.py': '#@requirements --index-url=http://evil.example\n',
    'shell/handler.py': '#@requirements $(touch;/tmp/fngw-never)\n',
  }
  const bed = makeBed(t, entries)
  const errors = await Promise.all(['opt', 'path', 'inline', 'shell'].map(bed.failure))
  t.match(errors[0], {
    message: /opt\/requirements\.txt:1: ".*" is an option$/,
    detail: { line: 1, hint: /FN_PY_REQUIREMENTS_OPTIONS=1/ },
  })
  t.match(errors[1], { message: /path\/requirements\.txt:2: ".*" is a URL or path$/ })
  t.match(errors[2], { message: /inline\/handler\.py:1: ".*" is an option$/ })
  t.match(errors[3], { message: /is not the name of a package$/ })
  t.same(bed.runs, [], 'no tool was started')
  const open = makeBed(t, entries, { settings: { pyRequirementsOptions: true } })
  await Promise.all(['opt', 'path'].map(name => open.builds.prepare(open.fn(name))))
  t.equal(open.version('opt', 'delta'), "VERSION = '4'")
  t.equal(open.version('path', 'delta'), "VERSION = '4'")
  t.match(await open.failure('inline'), { message: /is an option$/ })
})

t.test('[dependencies/python.8] nothing beside the handler runs while packages are installed', async t => {
  const trap = `open(${JSON.stringify('trap')}, 'w').write('x')\nraise SystemExit(7)\n`
  const bed = makeBed(t, {
    'a/handler.py': 'import alpha\n',
    'a/pip.py': trap,
    'a/ast.py': trap,
    'a/json.py': trap,
    'a/sitecustomize.py': trap,
  })
  await bed.builds.prepare(bed.fn('a'))
  t.equal(bed.version('a'), "VERSION = '2.0'")
  t.notOk(existsSync(bed.tree.path('a/trap')))
})

t.test('[dependencies/python.9] the toggles hold', async t => {
  const entries = { 'a/handler.py': 'import alpha\n', 'b/handler.py': '', 'b/requirements.txt': 'alpha==1.0\n' }
  const off = makeBed(t, entries, { settings: { autoRequirements: false } })
  for (const name of ['a', 'b']) await off.builds.prepare(off.fn(name))
  t.same(
    [...readdirSync(off.tree.path('a')), ...readdirSync(off.tree.path('b'))],
    ['handler.py', 'handler.py', 'requirements.txt'],
  )
  const blind = makeBed(t, entries, { settings: { autoInferPyDeps: false } })
  for (const name of ['a', 'b']) await blind.builds.prepare(blind.fn(name))
  t.same(readdirSync(blind.tree.path('a')), ['handler.py'])
  t.match(blind.record('b'), { infer_backend: null, inferred_imports: [], resolved_packages: ['alpha==1.0'] })
  const mute = makeBed(t, entries, { settings: { autoInferWriteManifest: false } })
  await mute.builds.prepare(mute.fn('a'))
  t.equal(mute.version('a'), "VERSION = '2.0'")
  t.notOk(existsSync(mute.tree.path('a/requirements.txt')))
  t.match(mute.record('a'), { manifest_path: null, manifest_generated: false })
  t.ok(mute.builds.isAhead(mute.fn('a')))
  const lazy = makeBed(t, entries, { settings: { preinstallPyDepsOnStart: false } })
  t.notOk(lazy.builds.isAhead(lazy.fn('a')))
})

t.test('[dependencies/python.10] a manifest that is a link is read and not written', async t => {
  const bed = makeBed(t, { 'a/handler.py': 'import alpha\n', 'shared.txt': 'beta\n' })
  symlinkSync('../shared.txt', bed.tree.path('a/requirements.txt'))
  await bed.builds.prepare(bed.fn('a'))
  t.equal(bed.version('a', 'beta'), "VERSION = '1.0'")
  t.equal(bed.read('shared.txt'), 'beta\n')
})

t.test('[dependencies/python.11] packs are installed in their folder and not inferred again', async t => {
  const bed = makeBed(t, {
    'a/handler.py': 'import alpha, gam\n',
    '.svc/packs/python/tools/requirements.txt': 'gamma-tools\n',
  })
  await bed.builds.prepare(bed.fn('a', ['tools']))
  t.ok(existsSync(bed.tree.path('.svc/packs/python/tools/.deps/gam/__init__.py')))
  t.match(bed.record('a'), { inferred_imports: ['alpha'], unresolved_imports: [] })
  t.equal(bed.read('.svc/packs/python/tools/requirements.txt'), 'gamma-tools\n')
  await t.rejects(bed.builds.prepare(bed.fn('a', ['none'])), { message: /^shared pack not found: none \(looked in: / })
})

t.test(
  '[dependencies/python.12] two versions of one package live side by side, and equal wishes share their files',
  async t => {
    const names = ['a', 'b', 'c']
    const entries = Object.fromEntries(
      names.map((name, i) => [`${name}/handler.py`, `#@requirements alpha==${i === 2 ? 2 : 1}.0\n`]),
    )
    const bed = makeBed(t, entries)
    await Promise.all(names.map(name => bed.builds.prepare(bed.fn(name))))
    t.same(
      names.map(name => bed.version(name)),
      ["VERSION = '1.0'", "VERSION = '1.0'", "VERSION = '2.0'"],
    )
    const inode = (name: string) => statSync(bed.tree.path(`${name}/.deps/alpha/__init__.py`)).ino
    t.equal(inode('a'), inode('b'))
  },
)

t.test('[dependencies/python.13] uv does the same', { skip: uv === null && 'uv is not installed' }, async t => {
  const entries = { 'a/handler.py': 'import beta\n', 'b/handler.py': '#@requirements not-there==9\n' }
  const bed = makeBed(t, entries, { settings: { binaries: { uv } } })
  await bed.builds.prepare(bed.fn('a'))
  t.equal(bed.version('a'), "VERSION = '1.0'")
  t.match(bed.record('a'), { resolved_packages: ['beta==1.0'], last_install_status: 'ok' })
  const error = await bed.failure('b')
  t.match(error, { message: /^install failed: b\/handler\.py:1: .*not-there/, detail: { line: 1 } })
})
