import { existsSync, statSync } from 'node:fs'
import t from 'tap'
import { makePythonBed, uv } from '../helpers/python-bed.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test('[dependencies/python.1] a manifest is installed as it is, and what is there is listed', async t => {
  const manifest = '# mine\r\nbeta\r\n'
  const bed = makePythonBed(t, { 'a/handler.py': 'import beta\n', 'a/requirements.txt': manifest })
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
  t.same(JSON.parse(bed.read('a/.deps/.svc-deps-state.json')!), bed.record('a'))
})

t.test('[dependencies/python.7] a failure names what asked for the package, and what to do', async t => {
  const bed = makePythonBed(t, {
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

t.test('[dependencies/python.7] a path that is no package is told by its line, not by the import', async t => {
  const files = { 'a/handler.py': 'import odd_one\n', 'a/requirements.txt': '# odd_one\nalpha\n./odd-one-1.0.tar.gz\n' }
  const bed = makePythonBed(t, files, { settings: { pyRequirementsOptions: true } })
  t.match(await bed.failure('a'), {
    message: /^install failed: a\/requirements\.txt:3: /,
    detail: { file: 'a/requirements.txt', line: 3, hint: 'change it in a/requirements.txt, or take it out' },
  })
})

t.test('[dependencies/install.9] a failure that is kept names the files of each folder that asked', async t => {
  const bed = makePythonBed(t, {
    'a/handler.py': '',
    'a/requirements.txt': 'not-there==9\n',
    'b/handler.py': '# one\n#@requirements not-there==9\n',
  })
  await bed.failure('a')
  const error = await bed.failure('b')
  t.match(error, {
    message: /^install failed: b\/handler\.py:2: .*not-there==9/,
    detail: { file: 'b/handler.py', line: 2 },
  })
  t.match(bed.record('b'), { last_error: /b\/handler\.py:2/ })
})

t.test('[dependencies/python.8] nothing beside the handler runs while packages are installed', async t => {
  const trap = `open(${JSON.stringify('trap')}, 'w').write('x')\nraise SystemExit(7)\n`
  const bed = makePythonBed(t, {
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

t.test(
  '[dependencies/python.12] two versions of one package live side by side, and equal wishes share their files',
  async t => {
    const names = ['a', 'b', 'c']
    const entries = Object.fromEntries(
      names.map((name, i) => [`${name}/handler.py`, `#@requirements alpha==${i === 2 ? 2 : 1}.0\n`]),
    )
    const bed = makePythonBed(t, entries)
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
  const bed = makePythonBed(t, entries, { settings: { binaries: { uv } } })
  await bed.builds.prepare(bed.fn('a'))
  t.equal(bed.version('a'), "VERSION = '1.0'")
  t.match(bed.record('a'), { resolved_packages: ['beta==1.0'], last_install_status: 'ok' })
  const error = await bed.failure('b')
  t.match(error, { message: /^install failed: b\/handler\.py:1: .*not-there/, detail: { line: 1 } })
})
