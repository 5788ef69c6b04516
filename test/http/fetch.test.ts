import t from 'tap'
import { joined } from '../../lib/core/byte-pool.ts'
import { fetchWith, toWebRequest } from '../../lib/http/fetch.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

t.test('[http/public.28] fetch streams both ways', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST', 'DELETE'] } }) })
  runtime.answer = (call, own) => {
    own.stream(call, { status: 202, headers: { 'x-a': ['1', '2'] } })
    call.onChunk(joined(call.body ?? Buffer.from('none')))
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
  for (let bytes = 0; bytes < 30; ) bytes += (await reader.read()).value!.length
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

t.test('[http/public.28, http/public.22] an answer that is cut off', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn() })
  runtime.answer = (call, own) => {
    own.stream(call, { length: 5 })
    call.onChunk(Buffer.from('ab'))
    own.end(call)
  }
  const begun = await fetchWith(handle, new Request('http://h/a'))
  await t.rejects(begun.text(), { name: 'TypeError', message: 'answer was cut off' })
  await t.rejects(
    fetchWith((_req, res) => void res.destroy(), new Request('http://h/a')),
    { name: 'TypeError', message: 'answer was cut off' },
    'before its head',
  )
})

t.test('[http/public.28] bodies that say their length, and statuses without a body', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST'] } }) })
  const headers = { 'content-length': '3' }
  await fetchWith(handle, new Request('http://h/a', { method: 'POST', body: 'abc', headers }))
  t.match(headerOfCall(runtime.calls[0]!), { headers: { 'content-length': '3' } })
  for (const status of [204, 304]) {
    runtime.answer = (call, own) => own.reply(call, status, {}, 'dropped')
    const answer = await fetchWith(handle, new Request('http://h/a'))
    t.same([answer.status, answer.body], [status, null])
  }
  runtime.answer = (call, own) => own.reply(call, 205)
  t.equal((await fetchWith(handle, new Request('http://h/a'))).body, null)
})
