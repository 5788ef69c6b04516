import { chmodSync, readFileSync } from 'node:fs'
import t from 'tap'
import { PythonImports } from '../../lib/dependencies/python-imports.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

function makeImports(): PythonImports {
  const env = { PATH: process.env.PATH ?? '' }
  return new PythonImports({ script: runtimeFile('python/infer.py'), env })
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
      const found = await imports.read('python3', {
        entry: tree.path('handler.py'),
        folder: tree.root,
        root: tree.root,
      })
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
    (await imports.read('python3', { entry: tree.path(name), folder: tree.root, root: tree.root })).map(
      ({ name }) => name,
    )
  t.same(await Promise.all(['deep.py', 'long.py', 'huge.py', 'gone.py'].map(read)), [[], ['a'], [], []])
})

t.test('[dependencies/python.6] modules of the interpreter are found', async t => {
  t.same(await makeImports().find('python3', ['json', 'fngw_no_such_module', '../x', '']), ['json'])
})

t.test('[dependencies/python.4] an interpreter that gives no answer is an error', async t => {
  const tree = makeTree({ python: '#!/bin/sh\necho broken >&2\nexit 3\n', 'handler.py': 'import a\n' })
  t.teardown(tree.cleanup)
  chmodSync(tree.path('python'), 0o755)
  const entry = { entry: tree.path('handler.py'), folder: tree.root, root: tree.root }
  await t.rejects(makeImports().read(tree.path('python'), entry), { message: /cannot read imports: broken/ })
  await t.rejects(makeImports().read(tree.path('none'), entry), { code: 'ENOENT' })
})

t.test('[dependencies/python.4] an interpreter that is killed is asked again, three times at most', async t => {
  const tree = makeTree({
    once: '#!/bin/sh\nif [ ! -e "$0.ran" ]; then touch "$0.ran"; kill -9 $$; fi\nexec python3 "$@"\n',
    always: '#!/bin/sh\necho x >> "$0.ran"\nkill -9 $$\n',
    'handler.py': 'import a\n',
  })
  t.teardown(tree.cleanup)
  for (const name of ['once', 'always']) chmodSync(tree.path(name), 0o755)
  const entry = { entry: tree.path('handler.py'), folder: tree.root, root: tree.root }
  t.match(await makeImports().read(tree.path('once'), entry), [{ name: 'a' }])
  await t.rejects(makeImports().read(tree.path('always'), entry), { message: /was ended while it read imports/ })
  t.equal(readFileSync(tree.path('always.ran'), 'utf8'), 'x\n'.repeat(3))
})

/** Of a function in `a/b`: its handler, and what is found of `helper` and `known`. */
const PATH_CASES: [what: string, files: Record<string, TreeEntry>, found: string[]][] = [
  [
    'folders that the text names are looked into',
    {
      'a/b/handler.py':
        'import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))\nimport helper, known\n',
      'a/lib/helper.py': 'import deep\n',
    },
    ['deep', 'known'],
  ],
  [
    'in each usual spelling',
    {
      'a/b/handler.py': [
        'import sys as s, os, pathlib',
        'from pathlib import Path',
        'from os.path import dirname, abspath, join',
        'HERE = Path(__file__).resolve().parent',
        'ROOT = HERE.parents[1]',
        's.path.append(str(HERE.parent / "one"))',
        's.path += [os.path.abspath("../two"), f"{ROOT}/three"]',
        's.path.extend((join(dirname(dirname(abspath(__file__))), "four"),))',
        's.path[:0] = [str(pathlib.Path(__file__).parent.joinpath("..", "five"))]',
        's.path = [os.path.dirname(__file__) + "/../six"] + s.path',
        'if str(ROOT) not in s.path: s.path.append(os.getcwd())',
        'import m1, m2, m3, m4, m5, m6, known',
      ].join('\n'),
      'a/one/m1.py': '',
      'a/two/m2.py': '',
      'three/m3/__init__.py': '',
      'a/four/m4.py': '',
      'a/five/m5.py': '',
      'a/six/m6.py': '',
    },
    ['known'],
  ],
  [
    'a folder that a module beside it adds counts for the handler too',
    {
      'a/b/handler.py': 'import helper\nimport setup_path\n',
      'a/b/setup_path.py': 'import sys\nsys.path.insert(0, "../lib")\n',
      'a/lib/helper.py': '',
    },
    [],
  ],
  [
    'a path that only a run would show puts all in doubt',
    { 'a/b/handler.py': 'import os, sys\n\nsys.path.append(os.environ["LIB"])\nimport helper, known\n' },
    ['helper: a/b/handler.py:3', 'known: a/b/handler.py:3'],
  ],
  [
    'a site folder too',
    { 'a/b/handler.py': 'import site\nsite.addsitedir("x")\nimport helper\n' },
    ['helper: a/b/handler.py:2'],
  ],
  [
    'and hooks',
    { 'a/b/handler.py': 'import sys\nsys.meta_path.append(X())\nimport helper\n' },
    ['helper: a/b/handler.py:2'],
  ],
  [
    'and a list that goes elsewhere',
    { 'a/b/handler.py': 'from sys import path as p\nadd(p)\nimport helper\n' },
    ['helper: a/b/handler.py:2'],
  ],
  [
    'and a name with two values',
    { 'a/b/handler.py': 'import sys\nx = "a"\ndef f(x):\n    sys.path.append(x)\nimport helper\n' },
    ['helper: a/b/handler.py:4'],
  ],
  [
    'reading it changes nothing',
    { 'a/b/handler.py': 'import sys\nprint(sys.path, sys.path[0], len(sys.path))\nimport known\n' },
    ['known'],
  ],
  [
    'a file of the name in a folder above, or in a private one there, puts it in doubt',
    {
      'a/b/handler.py': 'import helper, other, third, known\n',
      'a/helper.py': '',
      '_shared/other/__init__.py': '',
      'a/b/_own/third.py': '',
      'a/c/known.py': '',
    },
    ['helper: a/helper.py', 'known', 'other: _shared/other/__init__.py', 'third: a/b/_own/third.py'],
  ],
  [
    'a function that is called like its package is not in doubt',
    { 'a/b/handler.py': 'import b, a\n', 'a/b/__init__.py': '' },
    ['a', 'b'],
  ],
]

t.test('[dependencies/python.15] names that may be files elsewhere are distinguished from packages', async t => {
  const imports = makeImports()
  await Promise.all(
    PATH_CASES.map(async ([what, files, expected]) => {
      const tree = makeTree(files)
      t.teardown(tree.cleanup)
      const question = { entry: tree.path('a/b/handler.py'), folder: tree.path('a/b'), root: tree.root }
      const found = await imports.read('python3', question)
      const shown = found.map(({ name, doubt }) => {
        if (doubt === null) return name
        const file = doubt.file.slice(tree.root.length + 1)
        return doubt.line === null ? `${name}: ${file}` : `${name}: ${file}:${doubt.line}`
      })
      t.same(shown.sort(), expected, what)
    }),
  )
})

t.test('[dependencies/python.15] hostile changes of the path are read without harm', async t => {
  const doubled = Array.from({ length: 60 }, (_, i) => `a${i + 1} = a${i} + a${i}`).join('\n')
  const tree = makeTree({
    'doubled.py': `import sys\na0 = "x" * 9\nb0 = "xxxx"\n${doubled.replaceAll('a', 'b')}\nsys.path.append(b60)\nimport helper\n`,
    'loop.py': 'import sys\nx = y\ny = x\nsys.path.append(x)\nimport helper\n',
    'wide.py': `import sys\nx = "a"\nsys.path += ${Array.from({ length: 970 }, () => '[x]').join(' + ')}\nimport helper\n`,
    'root.py': 'import sys\nsys.path.append("/")\nimport usr, helper\n',
    'odd.py': 'import sys\nsys.path.append("a\\0b")\nsys.path.append()\nsys.path.insert(0)\nimport helper\n',
  })
  t.teardown(tree.cleanup)
  const imports = makeImports()
  const names = ['doubled', 'loop', 'wide', 'root', 'odd']
  const found = await Promise.all(
    names.map(async name => {
      const entry = tree.path(`${name}.py`)
      return (await imports.read('python3', { entry, folder: tree.root, root: tree.root })).map(({ name }) => name)
    }),
  )
  t.same(
    // How deep a text may be nested is the interpreter's to say.
    found.map((list, index) => (names[index] === 'wide' ? ['helper'] : list)),
    names.map(() => ['helper']),
  )
})
