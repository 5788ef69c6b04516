import t from 'tap'
import { toBrokenContract, toRuntimeError, toTimeout } from '../../lib/runtime/runtime-error.ts'
import { makeFn } from '../helpers/fn.ts'

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
