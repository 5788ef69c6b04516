import { chmodSync } from 'node:fs'
import { delimiter } from 'node:path'
import t from 'tap'
import {
  findOnPath,
  findProgram,
  findToolchain,
  findVersionProblem,
  toInstallAdvice,
} from '../../lib/runtime/binaries.ts'
import { makeTree } from '../helpers/tree.ts'

const tree = makeTree({ 'a/python': '', 'b/python3': '', 'b/plain': '', 'b/php/': '', 'c/python3': '' })
t.teardown(tree.cleanup)
for (const file of ['a/python', 'b/python3', 'c/python3']) chmodSync(tree.path(file), 0o755)
chmodSync(tree.path('b/plain'), 0o644)
const PATH = ['a', 'b', 'c'].map(tree.path).join(delimiter)

t.test('[runtime/daemon.1] a program is the one that is named, else one on the PATH', async t => {
  const path = (binaries: Record<string, string>, text = PATH) => findProgram('python', binaries, text)
  t.same(path({}), { path: tree.path('b/python3'), problem: null }, 'the first name of all folders before the second')
  t.same(path({}, tree.path('a')), { path: tree.path('a/python'), problem: null })
  t.same(path({ python: 'python' }), { path: tree.path('a/python'), problem: null }, 'a name is looked up')
  t.same(path({ python: tree.path('c/python3') }), { path: tree.path('c/python3'), problem: null })
  for (const wrong of [tree.path('b/plain'), tree.path('b/php'), tree.path('none'), 'none'])
    t.same(path({ python: wrong }), {
      path: null,
      problem: `FN_PYTHON_BIN is ${wrong}, which is not an executable program`,
    })
  t.match(path({}, ''), { path: null, problem: /^python3 not found: install it .* or set FN_PYTHON_BIN$/ })
  t.same(path({ python: '' }).path, tree.path('b/python3'), 'an empty name counts as none')
  t.same(findProgram('lua', {}, ''), { path: process.execPath, problem: null })
  t.same(findProgram('node', {}, ''), { path: process.execPath, problem: null }, 'the program that runs the gateway')
  t.equal(findOnPath('php', PATH), null, 'a folder is no program')
  t.equal(findOnPath('python3', `${delimiter}${tree.path('c')}`), tree.path('c/python3'), 'an empty part is not here')
})

t.test('[runtime/daemon.1] versions that are too old', async t => {
  for (const [runtime, version, isOld] of [
    ['python', '3.8.19', true],
    ['python', '3.9.0', false],
    ['python', '3.10.1', false],
    ['python', '4.0.0', false],
    ['node', '20.18.0', true],
    ['node', '20.19.0', false],
    ['php', '7.4.33', true],
    ['lua', '1.0', false],
    ['python', 'unreadable', false],
  ] as const)
    t.equal(findVersionProblem(runtime, version) !== null, isOld, `${runtime} ${version}`)
  t.match(
    findVersionProblem('php', '7.4.33'),
    /^php 7\.4\.33 is too old: 8\.0 or newer is needed; install it .* or set FN_PHP_BIN$/,
  )
})

t.test('[runtime/daemon.1] a build tool that does not start counts as missing', async t => {
  const shims = makeTree({
    'shim/cargo':
      '#!/bin/sh\necho "error: no default is configured" >&2\necho "help: run rustup default" >&2\nexit 1\n',
    'silent/cargo': '#!/bin/sh\nexit 3\n',
    'real/cargo': '#!/bin/sh\n[ "$1 $TOOL" = "-V x" ] && echo "cargo 1.85.0 (d73d2caf9 2024-12-31)"\n',
    'mute/cargo': '#!/bin/sh\nexit 0\n',
  })
  t.teardown(shims.cleanup)
  const find = (folder: string) => {
    chmodSync(shims.path(`${folder}/cargo`), 0o755)
    return findToolchain('rust', {}, { PATH: shims.path(folder), TOOL: 'x' })
  }
  t.same(find('real'), { path: shims.path('real/cargo'), problem: null, version: '1.85.0' })
  t.same(find('mute'), { path: shims.path('mute/cargo'), problem: null })
  const { problem } = find('shim')
  t.match(
    problem,
    /^\/.*\/cargo does not run: error: no default is configured help: run rustup default; install it from/,
  )
  t.match(find('silent').problem, /does not run: it ended with code 3; install it .* or set FN_CARGO_BIN$/)
  t.equal(findToolchain('python', {}, { PATH }).path, tree.path('b/python3'), 'the daemon says whether it starts')
})

t.test('[runtime/daemon.1] how to get a program', async t => {
  t.match(toInstallAdvice('python'), /^install it .*, or set FN_PYTHON_BIN to its full path$/)
  t.equal(toInstallAdvice('lua'), '')
})
