import t from 'tap'
import { readCallFields } from '../../lib/control/call-fields.ts'
import type { GatewayError } from '../../lib/core/errors.ts'

const MINIMAL = { name: 'hello', method: 'GET' }

t.test('[control/invoke.2] every field, and what is left out', async t => {
  const nothing = { runtime: null, version: null, query: null, body: null, context: null, route: null, params: null }
  t.match(readCallFields(MINIMAL), { ...MINIMAL, ...nothing, headers: {} })
  t.match(readCallFields({ ...MINIMAL, ...nothing }), nothing, 'null is the same as absent')
  t.match(
    readCallFields({
      name: 'api/users',
      runtime: 'Go',
      version: 'v1.0',
      method: 'post',
      query: { a: 1, b: ['x', 'y'] },
      headers: { 'X-A': 'a', Accept: ['x', 'y'], 'X-N': 7, 'X-Empty': '' },
      body: 'text',
      context: { user: 'u' },
      route: '/users/:id',
      params: { id: 7 },
    }),
    {
      name: 'api/users',
      runtime: 'go',
      version: 'v1.0',
      method: 'POST',
      query: { a: 1, b: ['x', 'y'] },
      headers: { 'X-A': 'a', Accept: 'x, y', 'X-N': '7', 'X-Empty': '' },
      context: { user: 'u' },
      route: '/users/:id',
      params: { id: '7' },
    },
  )
})

t.test('[control/invoke.3] a body is text as it is, another JSON value as JSON, bytes as base64', async t => {
  const read = (fields: object) => readCallFields({ ...MINIMAL, ...fields })
  const cases: [body: unknown, bytes: string, type: string | undefined][] = [
    ['héllo', 'héllo', undefined],
    ['', '', undefined],
    [{ a: 1 }, '{"a":1}', 'application/json'],
    [[1], '[1]', 'application/json'],
    [0, '0', 'application/json'],
    [false, 'false', 'application/json'],
  ]
  for (const [body, bytes, type] of cases) {
    const call = read({ body })
    t.equal(String(call.body), bytes)
    t.equal(call.headers['Content-Type'], type, bytes)
  }
  t.same(read({ body: {}, headers: { 'content-type': 'text/x' } }).headers, { 'content-type': 'text/x' })
  t.same(read({ body_base64: '/wD+', is_base64: true }).body, Buffer.from([255, 0, 254]))
  t.same(read({ body_base64: '' }).body?.length, 0)
})

t.test('[control/invoke.2] a wrong field is 400 with field, rule and value', async t => {
  const cases: [fields: object, says: RegExp][] = [
    [{ name: undefined }, /^name is missing$/],
    [{ name: '' }, /^name must be the name of a function, got "" \(string\)/],
    [{ name: 7 }, /^name must be .*got 7 \(number\)/],
    [{ name: 'a\nb' }, /^name must be/],
    [{ name: 'x'.repeat(513) }, /^name must be/],
    [{ method: null }, /^method is missing$/],
    [{ method: 'FETCH' }, /^method must be one of GET, .*got "FETCH" \(string\)/],
    [{ method: ['GET'] }, /^method must be/],
    [{ runtime: 'perl' }, /^runtime must be one of python, node, php, lua, go, rust, got "perl"/],
    [{ version: '../v1' }, /^version must be the label of a version/],
    [{ version: '..' }, /^version must be/],
    [{ version: 2 }, /^version must be/],
    [{ query: 'a=1' }, /^query must be an object, got a hidden value \(string\)/],
    [{ headers: ['a'] }, /^headers must be an object, got an array/],
    [{ headers: { 'a b': 'x' } }, /^headers must be an object of header names, got "a b"/],
    [{ headers: { a: 'x\r\nb: y' } }, /^headers\.a must be text that a header can carry/],
    [{ headers: { a: '\u{1f600}' } }, /^headers\.a must be/],
    [{ headers: { a: { b: 1 } } }, /^headers\.a must be .*got an object/],
    [{ headers: { a: ['x', {}] } }, /^headers\.a must be/],
    [{ headers: { a: 'x'.repeat(16385) } }, /^headers\.a must be/],
    [{ context: [] }, /^context must be an object, got an array/],
    [{ context: 'user' }, /^context must be an object/],
    [{ route: 'users' }, /^route must be a path that starts with \//],
    [{ params: { id: {} } }, /^params\.id must be text/],
    [{ params: { id: '' } }, /^params\.id must be text/],
    [{ params: { id: '\ud800' } }, /^params\.id must be text/],
    [{ body: 'a', body_base64: 'YQ==' }, /^body_base64 must be absent where body is given/],
    [{ body_base64: 'a' }, /^body_base64 must be base64 text/],
    [{ body_base64: 'YQ' }, /^body_base64 must be base64 text/],
    [{ body_base64: 'Y-_=' }, /^body_base64 must be/],
    [{ is_base64: true }, /^is_base64 must be false where body_base64 is not given/],
    [{ is_base64: true, body: 'YQ==' }, /^is_base64 must be/],
    [{ nme: 'x' }, /^nme is not a known key, did you mean name\?/],
    [{ __proto__x: 1 }, /is not a known key/],
    [{ query: 1, context: 1 }, /^query must be .*; context must be/],
  ]
  for (const [fields, says] of cases) {
    const name = JSON.stringify(fields).slice(0, 80)
    try {
      readCallFields({ ...MINIMAL, ...fields })
      t.fail(name)
    } catch (error) {
      t.equal((error as GatewayError).status, 400, name)
      t.match((error as GatewayError).message, says, name)
    }
  }
  const many = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`unknown${i}`, 1]))
  t.throws(() => readCallFields({ ...MINIMAL, ...many }), { message: /; and 995 more$/ })
})
