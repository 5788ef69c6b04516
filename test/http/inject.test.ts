import t from 'tap'
import { fetchWith, toWebRequest } from '../../lib/http/fetch.ts'
import { inject } from '../../lib/http/inject.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

t.test('[http/public.28] inject', async t => {
  const { handle, runtime, finished } = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST'] } }) })
  runtime.answer = (call, own) => own.reply(call, 201, { 'Set-Cookie': ['a=1', 'b=2'] }, call.body ?? '{"none":true}')
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

t.test('[http/public.28] fetch streams both ways', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST', 'DELETE'] } }) })
  runtime.answer = (call, own) => {
    own.stream(call, { status: 202, headers: { 'x-a': ['1', '2'] } })
    call.onChunk(call.body ?? Buffer.from('none'))
    call.onChunk(Buffer.from('!'))
    own.end(call)
  }
  const body = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode('one '))
      controller.enqueue(new TextEncoder().encode('two'))
      controller.close()
    },
  })
  const answer = await fetchWith(
    handle,
    new Request('http://h.example/a?q=1', { method: 'POST', body, duplex: 'half' } as RequestInit),
  )
  t.equal(answer.status, 202)
  t.equal(answer.headers.get('x-a'), '1, 2')
  t.equal(await answer.text(), 'one two!')
  t.match(headerOfCall(runtime.calls[0]!), { headers: { host: 'h.example' }, query: { q: '1' } })
  const json = await fetchWith(handle, new Request('http://h/a', { method: 'DELETE' }))
  t.equal(await json.text(), 'none!')
  runtime.answer = (call, own) => own.reply(call, 204)
  t.equal((await fetchWith(handle, new Request('http://h/a'))).status, 204)
  t.equal((await fetchWith(handle, new Request('http://h/missing', { method: 'HEAD' }))).status, 404)
})

t.test('[http/public.28, http/public.19] aborting a fetch is the client leaving', async t => {
  const { handle, runtime, admission } = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST'] } }) })
  runtime.answer = () => {}
  const early = new AbortController()
  const pending = fetchWith(handle, new Request('http://h/a', { signal: early.signal }))
  t.equal(admission.total(), 1)
  early.abort()
  await t.rejects(pending, { name: 'AbortError' })
  t.equal(admission.total(), 0)
  t.equal(runtime.abandoned.length, 1)
  await t.rejects(fetchWith(handle, new Request('http://h/a', { signal: early.signal })), { name: 'AbortError' })
  t.equal(runtime.calls.length, 1)

  runtime.answer = (call, own) => own.stream(call, {})
  const late = new AbortController()
  const answer = await fetchWith(handle, new Request('http://h/a', { signal: late.signal }))
  const reading = answer.text()
  late.abort()
  await t.rejects(reading, { name: 'AbortError' })
  t.equal(runtime.abandoned.length, 2)

  const canceled = await fetchWith(handle, new Request('http://h/a'))
  await canceled.body!.cancel()
  t.equal(runtime.abandoned.length, 3)

  const broken = new ReadableStream({
    pull(controller) {
      controller.error(new Error('source failed'))
    },
  })
  const request = new Request('http://h/a', { method: 'POST', body: broken, duplex: 'half' } as RequestInit)
  await t.rejects(fetchWith(handle, request), /source failed/)
  t.equal(runtime.calls.length, 3)
  t.equal(admission.total(), 0)
})

t.test('[http/public.28, http/public.22] a fetch reader that does not read stops the worker', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn() })
  let granted = 0
  runtime.answer = (call, own) => {
    call.host = {
      grant: (_call: unknown, bytes: number) => {
        granted += bytes
      },
    } as never
    own.stream(call, {})
    call.onChunk(Buffer.alloc(10))
    call.onChunk(Buffer.alloc(20))
  }
  const answer = await fetchWith(handle, new Request('http://h/a'))
  t.equal(granted, 0)
  const reader = answer.body!.getReader()
  await reader.read()
  await reader.read()
  await new Promise(setImmediate)
  t.equal(granted, 30)
  runtime.end(runtime.calls[0]!)
  t.equal((await reader.read()).done, true)
})

t.test('[http/public.28, http/public.17] a fetch body over the limit', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods: ['POST'], maxBodyBytes: 5 } }) })
  for (const [body, status] of [
    ['12345', 200],
    ['123456', 413],
  ] as const) {
    const stream = new Blob([body]).stream()
    const request = new Request('http://h/a', { method: 'POST', body: stream, duplex: 'half' } as RequestInit)
    t.equal((await fetchWith(handle, request)).status, status)
  }
  t.equal(runtime.calls.length, 1)
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

t.test('[http/public.28] what fetch takes', async t => {
  for (const [input, init, url, method] of [
    ['http://h.example/a?x=1', undefined, 'http://h.example/a?x=1', 'GET'],
    ['/a', { method: 'POST', body: 'x' }, 'http://localhost/a', 'POST'],
    [new URL('https://h.example/b'), undefined, 'https://h.example/b', 'GET'],
    [new Request('http://h.example/c', { method: 'PUT' }), undefined, 'http://h.example/c', 'PUT'],
    [new Request('http://h.example/c'), { method: 'DELETE' }, 'http://h.example/c', 'DELETE'],
  ] as const) {
    const request = toWebRequest(input, init)
    t.same([request.url, request.method], [url, method])
  }
})
