import t from 'tap'
import { joined } from '../../lib/core/byte-pool.ts'
import { inject } from '../../lib/http/inject.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

t.test('[http/public.28] inject', async t => {
  const { handle, runtime, finished } = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST'] } }) })
  runtime.answer = (call, own) =>
    own.reply(call, 201, { 'Set-Cookie': ['a=1', 'b=2'] }, joined(call.body ?? Buffer.from('{"none":true}')))
  const posted = await inject(handle, {
    method: 'POST',
    url: '/a?x=1',
    headers: { 'X-Two': ['1', '2'] },
    body: '{"a":1}',
    remoteAddress: '192.0.2.7',
  })
  t.match(posted, { status: 201, headers: { 'set-cookie': 'a=1, b=2', 'content-length': '7' } })
  t.same(posted.json(), { a: 1 })
  t.equal(posted.text(), '{"a":1}')
  t.match(headerOfCall(runtime.calls[0]!), {
    query: { x: '1' },
    headers: { 'x-two': '1, 2', host: 'localhost', 'content-length': '7' },
    client: { ip: '192.0.2.7' },
  })
  await inject(handle, { url: 'https://example.com' })
  await inject(handle, { url: 'http://example.com:81/a?b#c' })
  t.match(headerOfCall(runtime.calls[1]!), { raw_path: '/a?b', headers: { host: 'example.com:81' } })
  t.match(
    finished.map(({ status }) => status),
    [201, 404, 201],
  )
  runtime.answer = (call, own) => {
    own.stream(call, { length: 5 })
    call.onChunk(Buffer.from('ab'))
    own.end(call)
  }
  await t.rejects(inject(handle, { url: '/a' }), /cut off/)
})

t.test('[http/public.28] what inject takes', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST'] } }) })
  const bodies: [name: string, request: object, bytes: string | null, type: string | undefined][] = [
    ['nothing', {}, null, undefined],
    ['an object', { body: { a: [1] } }, '{"a":[1]}', 'application/json'],
    ['an empty object', { body: {} }, '{}', 'application/json'],
    ['a list', { payload: [1, 2] }, '[1,2]', 'application/json'],
    ['false', { payload: false }, 'false', 'application/json'],
    ['text', { payload: 'x' }, 'x', undefined],
    ['bytes', { payload: Buffer.from('b') }, 'b', undefined],
    ['a type of its own', { body: { a: 1 }, headers: { 'content-TYPE': 'text/x' } }, '{"a":1}', 'text/x'],
    ['both', { body: 'b', payload: 'p' }, 'b', undefined],
    ['null', { body: null, payload: null }, null, undefined],
  ]
  for (const [name, request, bytes, type] of bodies) {
    await inject(handle, { method: 'POST', url: '/a', ...request })
    const call = runtime.calls.at(-1)!
    t.equal(call.body?.toString() ?? null, bytes, name)
    t.equal((headerOfCall(call).headers as Record<string, string>)['content-type'], type, name)
  }
  const queries: [url: string, query: string | Record<string, unknown>, rawPath: string][] = [
    ['/a', { x: 1, y: ['a b', '&'] }, '/a?x=1&y=a+b&y=%26'],
    ['/a?z=0', { x: true, none: undefined }, '/a?z=0&x=true'],
    ['http://h/a?z=0#end', 'x=1', '/a?z=0&x=1'],
    ['/a', '?x=1', '/a?x=1'],
    ['/a', {}, '/a'],
    ['http://h.example/a', { x: 1 }, '/a?x=1'],
  ]
  for (const [url, query, rawPath] of queries) {
    await inject(handle, { url, query })
    t.equal(headerOfCall(runtime.calls.at(-1)!).raw_path, rawPath, url)
  }
})
