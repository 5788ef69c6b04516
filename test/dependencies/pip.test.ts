import t from 'tap'
import type { BuildTools } from '../../lib/dependencies/run-tool.ts'
import { listDistributions, listModules, runPip } from '../../lib/dependencies/pip.ts'
import type { ToolFailure } from '../../lib/dependencies/tool-failure.ts'
import { makeTree } from '../helpers/tree.ts'

async function fail(output: string, uv: string | null = null): Promise<ToolFailure> {
  const tools: BuildTools = {
    signal: new AbortController().signal,
    run: async () => ({ code: 1, output, timedOut: false, problem: null }),
  }
  const failure = await runPip({ python: '/p', uv, target: '/t', files: ['/r'], cwd: '/' }, tools)
  return failure!
}

const CASES: [what: string, output: string, expected: Partial<Record<keyof ToolFailure, unknown>>][] = [
  [
    'no such package',
    'Looking in links: /x\nERROR: Could not find a version that satisfies the requirement foo_bar==9 (from versions: none)\nERROR: No matching distribution found for foo_bar==9\n',
    { packageName: 'foo-bar', kind: 'lasting', message: /^pip: Could not find .* \| No matching/ },
  ],
  [
    'no such version',
    'ERROR: Could not find a version that satisfies the requirement foo==9 (from versions: 0.1, 0.2, 1.0, 1.1, 1.2, 2.0, 2.1)\nERROR: No matching distribution found for foo==9\n',
    {
      packageName: 'foo',
      message:
        'pip: Could not find a version that satisfies the requirement foo==9 (from versions: ..., 1.0, 1.1, 1.2, 2.0, 2.1) | No matching distribution found for foo==9',
    },
  ],
  [
    'uv: no such package',
    'error: No solution found when resolving dependencies\n  Caused by: Because foo was not found in the package registry\n',
    { packageName: 'foo', kind: 'lasting', message: /^pip: .*Because foo/ },
  ],
  [
    'no network',
    "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found for foo\n",
    { packageName: '', kind: 'passing', hint: /tried again/ },
  ],
  [
    'a full disk',
    'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n',
    { packageName: '', kind: 'passing', hint: /^make room on the disk/ },
  ],
  ['no pip', '/usr/bin/python3: No module named pip\n', { kind: 'passing', hint: /python3-pip/ }],
  [
    'something else',
    'one\ntwo\nthree\nfour\nfive\n',
    { message: 'pip: two | three | four | five', packageName: '', kind: 'lasting' },
  ],
]

t.test('[dependencies/python.7] what the tool says is cut to the lines that matter', async t => {
  for (const [what, output, expected] of CASES) t.match(await fail(output), expected, what)
})

t.test('[dependencies/python.3] names go into a file and never onto the command line', async t => {
  const asked: { command: string; args: readonly string[] }[] = []
  const tools: BuildTools = {
    signal: new AbortController().signal,
    run: async run => {
      asked.push(run)
      return { code: 0, output: '', timedOut: false, problem: null }
    },
  }
  for (const uv of [null, '/uv'])
    t.equal(await runPip({ python: '/p', uv, target: '/t', files: ['/r'], cwd: '/' }, tools), null)
  t.same(
    asked.map(({ command }) => command),
    ['/p', '/uv'],
  )
  for (const { args } of asked) t.same(args.slice(-2), ['--requirement', '/r'])
})

t.test('[dependencies/python.1] what is installed is read from its own metadata', async t => {
  const tree = makeTree({
    'b_c-1.dist-info/METADATA': 'Name: B.c\nVersion: 1\n\nName: not\n',
    'a-2.dist-info/METADATA': 'Name: a\nVersion: 2\n',
    'broken.dist-info/METADATA': '',
    'empty.dist-info/RECORD': '',
    'a/__init__.py': '',
    'six.py': '',
    'fast.cpython-311-x86_64-linux-gnu.so': '',
    'slow.abi3.so': '',
    'a.libs/x.so': '',
    'bin/tool': '',
    '__pycache__/six.pyc': '',
  })
  t.teardown(tree.cleanup)
  t.same(listDistributions(tree.root), [
    { name: 'a', version: '2', needs: [] },
    { name: 'B.c', version: '1', needs: [] },
  ])
  t.same([...listModules(tree.root)].sort(), ['a', 'fast', 'six', 'slow'])
  t.same(listDistributions(tree.path('none')), [])
})
