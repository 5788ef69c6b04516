import { Readable } from 'node:stream'
import t from 'tap'
import { type InvokeFlags, toCall } from '../../bin/invoke-call.ts'

const call = (flags: InvokeFlags, stdin = '') => toCall('hello', flags, Readable.from([Buffer.from(stdin)]))

t.test('[bin/invoke.2] flags as the fields of a call', async t => {
  t.same(await call({}), { name: 'hello', method: 'GET' })
  t.same(
    await call({
      method: 'PUT',
      header: ['X-A: 1', 'x-a:2', 'Accept:  text/plain '],
      query: ['q=a=b', 'q=', 'z=1'],
      version: 'v2',
      runtime: 'lua',
      context: '{"user":1}',
      route: '/users/:id',
      param: ['id=7'],
    }),
    {
      name: 'hello',
      method: 'PUT',
      headers: { 'x-a': ['1', '2'], accept: 'text/plain' },
      query: { q: ['a=b', ''], z: '1' },
      version: 'v2',
      runtime: 'lua',
      context: { user: 1 },
      route: '/users/:id',
      params: { id: '7' },
    },
  )
})

t.test('[bin/invoke.3] the body is text, a file, or standard input', async t => {
  const folder = t.testdir({ 'body.txt': 'of the file', 'context.json': '{"a":1}', bytes: Buffer.from([255, 0]) })
  t.same(await call({ data: 'text' }), { name: 'hello', method: 'POST', body: 'text' })
  t.match(await call({ data: `@${folder}/body.txt`, method: 'GET' }), { method: 'GET', body: 'of the file' })
  t.match(await call({ data: `@${folder}/bytes` }), { is_base64: true, body_base64: '/wA=' })
  t.match(await call({ data: '@-' }, 'piped'), { method: 'POST', body: 'piped' })
  t.match(await call({ data: '' }), { method: 'POST', body: '' })
  t.match(await call({ context: `@${folder}/context.json` }), { context: { a: 1 } })
  t.match(await call({ data: ' {"a":1}' }), { headers: { 'content-type': 'application/json' }, body: ' {"a":1}' })
  t.match(await call({ data: '[1]', header: ['Content-Type: text/x'] }), { headers: { 'content-type': 'text/x' } })
  for (const data of ['{not json', '7', 'true']) t.notOk('headers' in (await call({ data })), data)
})

t.test('[bin/invoke.6] a flag that cannot be read is wrong usage', async t => {
  const cases: [flags: InvokeFlags, says: RegExp][] = [
    [{ header: ['nonsense'] }, /^-H must be "Name: value", got "nonsense"/],
    [{ header: [': x'] }, /^-H must be/],
    [{ query: ['=x'] }, /^--query must be name=value, got "=x"/],
    [{ query: ['x'] }, /^--query must be/],
    [{ param: ['id'] }, /^--param must be/],
    [{ param: ['id=1', 'id=2'] }, /^--param id is given twice/],
    [{ context: '{' }, /^--context must be a JSON object/],
    [{ context: '@/nowhere' }, /^--context "@\/nowhere" cannot be read/],
    [{ data: '@/nowhere' }, /^-d "@\/nowhere" cannot be read/],
    [{ data: '@/' }, /^-d "@\/" cannot be read/],
  ]
  for (const [flags, says] of cases) await t.rejects(call(flags), { exitCode: 2, message: says }, JSON.stringify(flags))
})
