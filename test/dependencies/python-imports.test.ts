import { chmodSync, readFileSync } from 'node:fs'
import t from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { PythonImports } from '../../lib/dependencies/python-imports.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

function makeImports(): PythonImports {
  const env = { PATH: process.env.PATH ?? '' }
  return new PythonImports({ clock: systemClock, script: runtimeFile('python/infer.py'), env })
}

const CASES: [what: string, files: Record<string, TreeEntry>, found: string[]][] = [
  ['plain, dotted and named', { 'handler.py': 'import a, b.c as d\nfrom e.f import g\n' }, ['a 1', 'b 1', 'e 2']],
  [
    'the standard library',
    { 'handler.py': 'import os, json.decoder, _thread\nfrom __future__ import annotations\n' },
    [],
  ],
  ['in functions, and in text only', { 'handler.py': 'def f():\n    import a\n"""import b"""\n# import c\n' }, ['a 2']],
  [
    'modules beside it, and what they import',
    {
      'handler.py': 'import local\nfrom pack import x\n',
      'local.py': 'import a\n',
      'pack/__init__.py': '',
      'pack/x.py': 'from . import y\nimport b\n',
      'pack/y.py': 'import c\n',
    },
    ['a 1', 'b 2', 'c 1'],
  ],
  [
    'tried ones are optional',
    {
      'handler.py':
        'try:\n    import a\nexcept ImportError:\n    a = None\ntry:\n    import b\nexcept ValueError:\n    pass\n',
    },
    ['a 2?', 'b 6'],
  ],
  ['needed once is needed', { 'handler.py': 'try:\n    import a\nexcept ImportError:\n    pass\nimport a\n' }, ['a 5']],
  [
    'for types only',
    { 'handler.py': 'import typing\nif typing.TYPE_CHECKING:\n    import a\nelse:\n    import b\n' },
    ['b 5'],
  ],
  ['a file that cannot be parsed', { 'handler.py': 'import a\ndef (:\n' }, []],
  [
    'a loop of modules',
    { 'handler.py': 'import one\n', 'one.py': 'import two\n', 'two.py': 'import one, a\n' },
    ['a 1'],
  ],
]

t.test('[dependencies/python.4] imports are found by the parser of the interpreter', async t => {
  const imports = makeImports()
  // All at once: one start of the interpreter answers them.
  await Promise.all(
    CASES.map(async ([what, files, expected]) => {
      const tree = makeTree(files)
      t.teardown(tree.cleanup)
      const found = await imports.read('python3', { entry: tree.path('handler.py'), folder: tree.root })
      t.same(found.map(({ name, line, optional }) => `${name} ${line}${optional ? '?' : ''}`).sort(), expected, what)
    }),
  )
})

t.test('[dependencies/python.4] deep, long and wide files are read without harm', async t => {
  const tree = makeTree({
    'deep.py': `x = ${'['.repeat(5000)}${']'.repeat(5000)}\nimport a\n`,
    'long.py': `${'import a\n'.repeat(50_000)}`,
    'huge.py': `import a\n#${'x'.repeat(3 * 1024 * 1024)}`,
  })
  t.teardown(tree.cleanup)
  const imports = makeImports()
  const read = async (name: string) =>
    (await imports.read('python3', { entry: tree.path(name), folder: tree.root })).map(({ name }) => name)
  t.same(await Promise.all(['deep.py', 'long.py', 'huge.py', 'gone.py'].map(read)), [[], ['a'], [], []])
})

t.test('[dependencies/python.6] what the interpreter has by itself is told', async t => {
  t.same(await makeImports().find('python3', ['json', 'fngw_no_such_module', '../x', '']), ['json'])
})

t.test('[dependencies/python.4] an interpreter that gives no answer is an error', async t => {
  const tree = makeTree({ python: '#!/bin/sh\necho broken >&2\nexit 3\n', 'handler.py': 'import a\n' })
  t.teardown(tree.cleanup)
  chmodSync(tree.path('python'), 0o755)
  const entry = { entry: tree.path('handler.py'), folder: tree.root }
  await t.rejects(makeImports().read(tree.path('python'), entry), { message: /cannot read imports: broken/ })
  await t.rejects(makeImports().read(tree.path('none'), entry), { code: 'ENOENT' })
})

t.test('[dependencies/python.4] an interpreter that somebody ends is asked again, three times at most', async t => {
  const tree = makeTree({
    once: '#!/bin/sh\nif [ ! -e "$0.ran" ]; then touch "$0.ran"; kill -9 $$; fi\nexec python3 "$@"\n',
    always: '#!/bin/sh\necho x >> "$0.ran"\nkill -9 $$\n',
    'handler.py': 'import a\n',
  })
  t.teardown(tree.cleanup)
  for (const name of ['once', 'always']) chmodSync(tree.path(name), 0o755)
  const entry = { entry: tree.path('handler.py'), folder: tree.root }
  t.match(await makeImports().read(tree.path('once'), entry), [{ name: 'a' }])
  await t.rejects(makeImports().read(tree.path('always'), entry), { message: /was ended while it read imports/ })
  t.equal(readFileSync(tree.path('always.ran'), 'utf8'), 'x\n'.repeat(3))
})
