import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import type { ToolResult } from '../../lib/dependencies/run-tool.ts'
import {
  compilerError,
  installError,
  isPassing,
  passingError,
  readFailure,
  toOldError,
  toolError,
  toSigns,
  type ToolWords,
} from '../../lib/dependencies/tool-failure.ts'

const result = (more: Partial<ToolResult>): ToolResult => ({
  code: 1,
  output: '',
  timedOut: false,
  problem: null,
  ...more,
})

t.test('[dependencies/resolve.8] a tool that ended badly is told by its last lines, or by how it ended', async t => {
  const error = (more: Partial<ToolResult>, hint?: string) => toolError('go build', result(more), 5000, hint)
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
  t.ok(isPassing(error({})), 'another try may help')
})

t.test('[dependencies/resolve.8] a compiler error has its first lines and its place', async t => {
  const compiler = {
    action: 'go build',
    timeoutMs: 1,
    functionsRoot: '/srv',
    cwd: '/srv/a',
    pattern: /^(?<path>[^:]+):(?<line>\d+)(?::(?<column>\d+))?: (?<message>.*)$/,
    sourceOf: (path: string): string | null => (path === '/srv/a/handler.go' ? 'a\nb\n\tc d\ne' : null),
  }
  const output = ['raw', 'handler.go:3:4: no 0', ...Array.from({ length: 9 }, (_, i) => `handler.go:${i}: no`)].join(
    '\n',
  )
  const error = compilerError(result({ output }), compiler, 'mend it')
  const place = { file: 'a/handler.go', line: 3 }
  t.match(error, { code: 'LOAD_FAILED', detail: { ...place, hint: 'mend it' } })
  t.equal(error.detail?.stack, '    2 | b\n    3 |  c d\n      |    ^')
  t.match(error.message, /^build failed: a\/handler\.go:3:4: no 0\n(a\/handler\.go:\d: no\n){7}and 2 more$/)
  const shown = compilerError(result({ output }), { ...compiler, isShown: line => line === 'raw' }, 'mend it')
  t.match(shown.message, /^build failed: raw\na\/handler/)
  const outside = compilerError(result({ output: '/etc/passwd:3: no' }), compiler, undefined)
  t.same(outside.detail, { file: '/etc/passwd', line: 3 }, 'a file that was not built is not quoted')
  t.notOk(isPassing(error), 'it fails again until the sources change')
  t.match(compilerError(result({ output: 'disk full' }), compiler, undefined), {
    message: 'build failed: disk full',
    detail: {},
  })
  t.match(compilerError(result({ output, timedOut: true }), compiler, undefined).message, /took longer than 0\.001 s/)
  t.ok(isPassing(new GatewayError('RUNTIME_DOWN', 'runtime down')))
})

t.test('[dependencies/resolve.11] a toolchain that is too old', async t => {
  t.match(toOldError('go 1.18', '1.19'), {
    status: 503,
    message: 'runtime down',
    headers: { 'Retry-After': '1' },
    detail: { hint: 'go 1.18 is too old: 1.19 or newer is needed' },
  })
})

t.test('[dependencies/install.9] a failure tells its file and what mends it', async t => {
  const cause = new Error('of the tool')
  const lasting = installError('no such package', { file: 'a/package.json', line: 3 }, 'correct its name', cause)
  t.match(lasting, { code: 'LOAD_FAILED', message: 'install failed: no such package', cause })
  t.same(lasting.detail, { file: 'a/package.json', line: 3, hint: 'correct its name' })
  t.same(installError('x', { file: 'f' }).detail, { file: 'f' })
})

t.test('[dependencies/install.9] a failure that passes names no file', async t => {
  t.same(passingError('no answer', 'is the registry up?').detail, { hint: 'is the registry up?' })
  t.match(passingError('no answer'), { code: 'LOAD_FAILED', message: 'install failed: no answer' })
})

t.test('[dependencies/install.9] the output of a package tool has a kind, a package and a hint', t => {
  const words: ToolWords = {
    tool: 'npm',
    maxLines: 2,
    maxChars: 12,
    lateHint: 'wait',
    toLines: output => output.split('\n'),
    signs: [...toSigns('lasting', [[/no (\w+)/, 'correct %s']]), ...toSigns('passing', [[/network/]])],
  }
  const read = (more: Partial<ToolResult>, otherwise?: 'lasting') =>
    readFailure(result(more), { ...words, ...(otherwise && { otherwise }) })
  const missing = read({ output: 'no left\nb\nc' })
  t.match(missing, { message: 'npm: no left | b', kind: 'lasting', hint: 'correct left', packageName: 'left' })
  t.match(read({ output: 'network' }), { kind: 'passing', hint: undefined, packageName: '' })
  t.match(read({ output: 'x'.repeat(13) }), { message: `npm: ${'x'.repeat(12)}...`, kind: 'unknown' })
  t.match(read({}, 'lasting'), { message: 'npm: exited with code 1', kind: 'lasting' })
  t.match(read({ problem: 'cannot run it' }, 'lasting'), { message: 'npm: cannot run it', kind: 'passing' })
  t.match(read({ timedOut: true }), { message: /^npm took longer than 180 s/, kind: 'passing', hint: 'wait' })
  t.match(missing.toError('said', { file: 'f', line: 2 }), {
    message: 'install failed: f:2: said',
    detail: { file: 'f', line: 2, hint: 'correct left' },
    cause: missing,
  })
  const passing = read({ output: 'network' }).toError('said', { file: 'f' })
  t.match(passing, { message: 'install failed: said', detail: undefined })
  t.end()
})
