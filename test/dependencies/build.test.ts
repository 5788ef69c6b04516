import { join } from 'node:path'
import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import * as build from '../../lib/dependencies/build.ts'
import type { ToolResult } from '../../lib/dependencies/run-tool.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

const result = (more: Partial<ToolResult>): ToolResult => ({
  code: 1,
  output: '',
  timedOut: false,
  problem: null,
  ...more,
})

t.test('[dependencies/resolve.8] a tool that ended badly is told by its last lines, or by how it ended', async t => {
  const error = (more: Partial<ToolResult>, hint?: string) => build.toolError('go build', result(more), 5000, hint)
  const lines = Array.from({ length: 20 }, (_, i) => `line ${i}`).join('\n\n  \n')
  t.equal(
    error({ output: lines }).message,
    `build failed: ${[12, 13, 14, 15, 16, 17, 18, 19].map(i => `line ${i}`).join('\n')}`,
  )
  t.equal(error({ output: 'x'.repeat(5000) }).message.length, 'build failed: '.length + 2003)
  t.equal(error({ output: ' \n', code: 2 }).message, 'build failed: go build exited with code 2')
  t.equal(error({ code: null, problem: 'cannot run /go: ENOENT' }).message, 'build failed: cannot run /go: ENOENT')
  t.match(error({ timedOut: true, output: 'x' }, 'wait'), {
    message: 'build failed: go build took longer than 5 s and was stopped',
    status: 500,
    detail: { hint: 'wait' },
  })
  t.ok(build.isPassing(error({})), 'another try may help')
})

t.test('[dependencies/resolve.8] a compiler error has its first lines and its place', async t => {
  const place = { file: 'a/handler.go', line: 3 }
  const first = { ...place, column: 4 }
  const many = { lines: Array.from({ length: 10 }, (_, i) => `a/handler.go:${i}: no`), first, source: 'a\nb\n\tc d\ne' }
  const error = build.compilerError('go build', result({ output: 'raw' }), 1, many, 'mend it')
  t.match(error, { code: 'LOAD_FAILED', detail: { ...place, hint: 'mend it' } })
  t.equal(error.detail?.stack, '    2 | b\n    3 |  c d\n      |    ^')
  const outside = build.compilerError('go build', result({}), 1, { ...many, source: null }, undefined)
  t.same(outside.detail, place, 'a file that was not built is not quoted')
  t.match(error.message, /^build failed: a\/handler\.go:0: no\n(.*\n){7}and 2 more$/)
  t.notOk(build.isPassing(error), 'it fails again until the sources change')
  const other = build.compilerError(
    'go build',
    result({ output: 'disk full' }),
    1,
    { lines: [], first: null, source: null },
    undefined,
  )
  t.match(other, { message: 'build failed: disk full', detail: {} })
  t.ok(build.isPassing(new GatewayError('RUNTIME_DOWN', 'runtime down')))
})

t.test('[dependencies/resolve.11] a toolchain that is too old', async t => {
  t.match(build.toOldError('go 1.18', '1.19'), {
    status: 503,
    message: 'runtime down',
    headers: { 'Retry-After': '1' },
    detail: { hint: 'go 1.18 is too old: 1.19 or newer is needed' },
  })
})

t.test('[dependencies/resolve.5] which files below a folder are sources', async t => {
  const deep = Array.from({ length: 14 }, (_, i) => `d${i}`)
  const tree = makeTree({
    'b.go': 'b',
    'a.go': 'a',
    'a.txt': '',
    'sub/c.go': 'c',
    '.git/d.go': '',
    'vendor/e.go': '',
    'target/f.go': '',
    'link.go': { symlink: 'a.go' },
    [`${deep.join('/')}/deep.go`]: '',
    [`${deep.slice(0, 12).join('/')}/seen.go`]: '',
  })
  t.teardown(tree.cleanup)
  const isGo = (name: string): boolean => name.endsWith('.go')
  const found = build.filesBelow(tree.root, isGo).map(path => build.below(tree.root, path))
  t.same(found, ['a.go', 'b.go', `${deep.slice(0, 12).join('/')}/seen.go`, 'sub/c.go'])
  t.equal(build.readOptional(tree.path('a.go')), 'a')
  t.equal(build.readOptional(tree.path('none')), null)
  t.throws(() => build.readOptional(tree.root), { code: 'EISDIR' })
  const sources = build.workerSources(join(tree.root, 'sub'), isGo)
  t.same([...sources()], [['c.go', 'c']])
  t.equal(sources(), sources(), 'read once')
  t.equal(build.toFolderName(tree.root, tree.root), '.')
  t.equal(build.toFolderName(tree.root, tree.path('sub')), 'sub')
})

t.test('[dependencies/resolve.5] which files beside a handler belong to it', async t => {
  const fn = makeFn({ kind: 'function' })
  const file = makeFn({ kind: 'file' })
  for (const name of ['_x.go', '_get.go']) t.ok(build.isMember(fn, name) && build.isMember(file, name), name)
  for (const name of ['x.go', 'getter.go', 'a.get.go']) {
    t.ok(build.isMember(fn, name), name)
    t.notOk(build.isMember(file, name), `${name} of a folder of file routes`)
  }
  for (const name of ['.x.go', 'get.go', 'POST.items.go', '[id].go', 'a.[id].go'])
    t.notOk(build.isMember(fn, name), name)
})
