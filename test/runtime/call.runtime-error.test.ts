import t from 'tap'
import { toBrokenContract, toHandlerLine, toRuntimeError, toTimeout } from '../../lib/runtime/call.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

const fn = makeFn({ entryPath: '/srv/fns/a/handler.js', entryFile: 'a/handler.js', policy: { timeoutMs: 700 } })

t.test(
  '[runtime/worker-set.6, invocation/response.5] what a worker says of a call, as the answer to the client',
  async t => {
    for (const [fields, code, status, message, detail] of [
      [{}, 'HANDLER_FAILED', 500, 'handler failed', undefined],
      [{ message: '' }, 'HANDLER_FAILED', 500, 'handler failed', undefined],
      [{ message: 5, file: 5, line: 'x', stack: null }, 'HANDLER_FAILED', 500, 'handler failed', undefined],
      [
        { message: 'boom', file: '/srv/fns/b/util.js', line: 3, stack: 'at f', hint: 'h' },
        'HANDLER_FAILED',
        500,
        'boom',
        { file: 'b/util.js', line: 3, stack: 'at f', hint: 'h' },
      ],
      [{ message: 'x', file: '/srv/fns2/util.js' }, 'HANDLER_FAILED', 500, 'x', { file: '/srv/fns2/util.js' }],
      [{ code: 'load', message: 'in /srv/fns/a/handler.js' }, 'LOAD_FAILED', 500, 'in a/handler.js', undefined],
      [
        { code: 'contract', message: 'no status' },
        'CONTRACT_BROKEN',
        502,
        'invalid runtime response: no status',
        { file: 'a/handler.js' },
      ],
      [
        { code: 'contract', message: 'no status', file: '/srv/fns/a/b.js', line: 2 },
        'CONTRACT_BROKEN',
        502,
        'invalid runtime response: no status',
        { file: 'a/b.js', line: 2 },
      ],
      [
        { code: 'contract', message: 'status must be an integer from 100 to 599, got "ok" (string)' },
        'CONTRACT_BROKEN',
        502,
        'invalid runtime response: status must be an integer from 100 to 599, got "ok" (string)',
        {
          file: 'a/handler.js',
          hint: 'to return an object that has a field "status", put it in the body: { "status": 200, "body": { ... } }',
        },
      ],
      [
        { code: 'timeout', message: 'anything' },
        'TIMEOUT',
        504,
        'runtime timeout after 700 ms',
        {
          file: 'a/handler.js',
          hint: 'a handler may take longer with a larger "timeout_ms" in a/fn.config.json',
        },
      ],
    ] as const) {
      const error = toRuntimeError(fields, fn)
      t.same([error.code, error.status, error.message, error.detail], [code, status, message, detail])
    }
    t.equal(toTimeout(fn).message, 'runtime timeout after 700 ms')
    t.same(toBrokenContract('no reply', fn).detail, { file: 'a/handler.js' })
  },
)

t.test('[runtime/worker-set.6] files below a root that is a link are named by their paths below it', t => {
  const tree = makeTree({ 'real/a/handler.js': '', link: { symlink: 'real' } })
  t.teardown(tree.cleanup)
  const linked = makeFn({ entryPath: tree.path('link/a/handler.js'), entryFile: 'a/handler.js' })
  for (const root of ['link', 'real']) {
    const file = tree.path(`${root}/b/util.js`)
    t.same(toRuntimeError({ message: 'x', file }, linked).detail, { file: 'b/util.js' }, root)
    const failed = toRuntimeError({ code: 'load', message: `syntax error in ${file}:2`, file }, linked)
    t.match(failed, { message: 'syntax error in b/util.js:2', detail: { file: 'b/util.js' } }, root)
  }
  t.equal(toRuntimeError({ file: tree.path('other.js') }, linked).detail?.file, tree.path('other.js'))
  t.end()
})

t.test('[runtime/worker-set.6] a timeout names the line where the handler begins, in every language', t => {
  const cases: [text: string, line: number | null, names?: string[]][] = [
    ['# def handler\nimport os\n\nasync def handler(event):\n    pass', 4],
    ['import x\ndef main(event):\n    pass', 2, ['handler', 'main']],
    ['// exports.handler\nconst a = 1\nexports.handler = async e => a', 3],
    ['export const a = 1\nexport const handler = (e: Event) => a', 2],
    ['export async function handler(e) {}', 1],
    ['\nexport default { fetch() {} }', 2, ['handler', 'default']],
    ['module.exports = async e => 1', 1, ['handler', 'default']],
    ['<?php\n\nfunction handler($e) {}', 3],
    ['-- function handler\nlocal x = 1\nfunction handler(e) end', 3],
    ['package main\n\nfunc Handler(e map[string]any) map[string]any {', 3, ['handler', 'Handler']],
    ['use x;\npub fn handler(e: Value) -> Value {', 2],
    ['export { handler } from "./other.js"', null],
    ['', null],
  ]
  for (const [text, line, names = ['handler']] of cases) t.equal(toHandlerLine(text, names), line, text)
  t.end()
})
