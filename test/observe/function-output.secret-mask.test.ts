import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { MIN_SECRET_CHARS, SecretMask } from '../../lib/observe/function-output.ts'
import { makeFn } from '../helpers/fn.ts'

const secret = (value: string) => ({ value, isSecret: true })
const fn = makeFn({
  env: {
    KEY: secret('hunter2-"quoted"'),
    LONGER: secret('hunter2-"quoted"-and-more'),
    PEM: secret('-----BEGIN KEY-----\nabcdefghij\nxy\n-----END KEY-----'),
    SHORT: secret('x'.repeat(MIN_SECRET_CHARS - 1)),
    BLANK: secret(' '.repeat(20)),
    BROKEN: secret('\ud800-half-a-character'),
    PLAIN: { value: 'no-secret-at-all', isSecret: false },
  },
})

t.test('[control/secrets.4] values of secrets are hidden in text', async t => {
  const mask = new SecretMask()
  const cases: [text: string, shown: string][] = [
    ['a hunter2-"quoted" b hunter2-"quoted"', 'a <hidden> b <hidden>'],
    ['hunter2-"quoted"-and-more', '<hidden>'],
    [JSON.stringify({ key: 'hunter2-"quoted"' }), '{"key":"<hidden>"}'],
    [`?key=${encodeURIComponent('hunter2-"quoted"')}`, '?key=<hidden>'],
    ['abcdefghij and xy', '<hidden> and xy'],
    ['-----BEGIN KEY-----\nabcdefghij\nxy\n-----END KEY-----', '<hidden>'],
    ['-----BEGIN KEY-----\\nabcdefghij\\nxy\\n-----END KEY-----', '<hidden>'],
    ['\ud800-half-a-character', '<hidden>'],
    [`${'x'.repeat(7)} ${' '.repeat(20)} no-secret-at-all`, `${'x'.repeat(7)} ${' '.repeat(20)} no-secret-at-all`],
    ['', ''],
  ]
  for (const [text, shown] of cases) t.equal(mask.hide(fn, text), shown, text)
  t.equal(mask.hide(makeFn(), 'hunter2-"quoted"'), 'hunter2-"quoted"', "another function's is not looked for")
})

t.test('[control/secrets.4] errors without a secret stay the same, others are one new error', async t => {
  const mask = new SecretMask()
  const plain = new GatewayError('HANDLER_FAILED', 'boom', { detail: { stack: 'at x', line: 3 } })
  t.equal(mask.hideIn(fn, plain), plain)
  const cause = new Error('hunter2-"quoted"')
  const loud = new GatewayError('HANDLER_FAILED', 'key hunter2-"quoted"', {
    status: 500,
    headers: { 'Retry-After': '1' },
    detail: { file: 'a.js', line: 3, stack: 'Error: hunter2-"quoted"\n at a.js:3', hint: 'hunter2-"quoted"' },
    cause,
  })
  const hidden = mask.hideIn(fn, loud)
  t.match(hidden, {
    code: 'HANDLER_FAILED',
    status: 500,
    message: 'key <hidden>',
    headers: { 'Retry-After': '1' },
    detail: { file: 'a.js', line: 3, stack: 'Error: <hidden>\n at a.js:3', hint: '<hidden>' },
    cause: undefined,
  })
  t.equal(mask.hideIn(fn, loud), hidden, 'whoever waited for it hears of one error')
  t.equal(mask.hideIn(makeFn(), loud), loud)
  const quiet = new GatewayError('HANDLER_FAILED', 'boom', { detail: { stack: 'hunter2-"quoted"' } })
  t.match(mask.hideIn(fn, quiet), { message: 'boom', detail: { stack: '<hidden>' } })
})
