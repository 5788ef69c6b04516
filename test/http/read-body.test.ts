import t from 'tap'
import { joined } from '../../lib/core/byte-pool.ts'
import { collectBody } from '../../lib/http/read-body.ts'
import type { Exchange } from '../../lib/http/exchange.ts'
import { fetchWith } from '../../lib/http/fetch.ts'
import { inject } from '../../lib/http/inject.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

/** A request whose body comes in the given pieces, without a declared length. */
function pieces(url: string, sizes: number[]): Request {
  let index = 0
  const body = new ReadableStream({
    pull(controller) {
      if (index === sizes.length) controller.close()
      else controller.enqueue(new Uint8Array(sizes[index]!).fill(index++))
    },
  })
  return new Request(`http://h${url}`, { method: 'POST', body, duplex: 'half' } as RequestInit)
}

t.test('[http/public.17] the limit is exact however the body is cut', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods: ['POST'], maxBodyBytes: 10 } }) })
  for (const sizes of [[10], [9, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [5, 5]]) {
    t.equal((await fetchWith(handle, pieces('/a', sizes))).status, 200, String(sizes))
    const expected = Buffer.concat(sizes.map((size, index) => Buffer.alloc(size, index)))
    t.same(joined(runtime.calls.at(-1)!.body!), expected)
    t.equal(Array.isArray(runtime.calls.at(-1)!.body), sizes.length > 1, 'not joined')
  }
  const before = runtime.calls.length
  for (const sizes of [[11], [10, 1], [9, 2], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [5, 5, 1, 1000000]])
    t.equal((await fetchWith(handle, pieces('/a', sizes))).status, 413, String(sizes))
  t.equal(runtime.calls.length, before)
  for (const [length, status] of [
    [10, 200],
    [11, 413],
  ] as const)
    t.equal((await inject(handle, { method: 'POST', url: '/a', body: 'x'.repeat(length) })).status, status)
  t.equal((await inject(handle, { method: 'POST', url: '/a' })).status, 200, 'no body')
  t.equal(runtime.calls.at(-1)!.body, null)
})

t.test('[http/public.17] a limit of 0 takes no body', async t => {
  const { handle } = makePublic({ '/a': makeFn({ policy: { methods: ['POST'], maxBodyBytes: 0 } }) })
  t.equal((await inject(handle, { method: 'POST', url: '/a', body: '' })).status, 200)
  t.equal((await inject(handle, { method: 'POST', url: '/a', body: 'x' })).status, 413)
})

t.test('[http/public.17, http/public.4] the control plane reads bodies the same way', async t => {
  const control = (exchange: Exchange) => {
    collectBody(exchange, 4).then(
      body => exchange.responder.sendJson(exchange, 200, { body: body === null ? null : body.toString() }),
      error => exchange.responder.sendError(exchange, error),
    )
  }
  const { handle, finished } = makePublic({}, { control })
  for (const [body, status, expected] of [
    ['1234', 200, { body: '1234' }],
    [null, 200, { body: null }],
    ['12345', 413, { error: 'payload too large: the limit is 4 bytes' }],
  ] as const) {
    const answer = await inject(handle, { method: 'PUT', url: '/_fn/x', body })
    t.equal(answer.status, status)
    t.same(answer.json(), expected)
  }
  t.same(
    finished.map(exchange => exchange.bytesIn),
    [4, 0, 0],
  )
})

t.test('[http/public.17] a body that the host application has read is taken from it, within the limit', async t => {
  /** What becomes of a body of which the host application has this. */
  const end = (parsedBody: Buffer | null, limit: number): Promise<Buffer | null> =>
    collectBody({ hasBody: true, parsedBody, req: { readableEnded: true } } as unknown as Exchange, limit)
  t.same(await end(Buffer.from('1234'), 4), Buffer.from('1234'))
  t.equal(await end(Buffer.alloc(0), 0), null)
  await t.rejects(end(Buffer.from('12345'), 4), { code: 'BODY_TOO_LARGE' })
  await t.rejects(end(null, 4), { code: 'INTERNAL', message: /already read by the host application/ })
})
