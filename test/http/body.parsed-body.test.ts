import { createServer, IncomingMessage, ServerResponse } from 'node:http'
import { type AddressInfo, Socket } from 'node:net'
import t from 'tap'
import { toBodyBytes, unwrap } from '../../lib/http/body.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

const JSON_TYPE = 'application/json; charset=utf-8'
const FORM = 'application/x-www-form-urlencoded'

t.test('[http/public.29] what a parser left, as bytes', async t => {
  const cases: [
    name: string,
    left: { body?: unknown; rawBody?: unknown },
    type: string | null,
    bytes: string | undefined,
  ][] = [
    ['nothing', {}, JSON_TYPE, undefined],
    ['kept bytes', { rawBody: Buffer.from('{ "a": 1 }'), body: { a: 1 } }, JSON_TYPE, '{ "a": 1 }'],
    ['bytes', { body: Buffer.from('raw') }, 'application/octet-stream', 'raw'],
    ['a view of bytes', { body: new Uint8Array(Buffer.from('xraw')).subarray(1) }, null, 'raw'],
    ['an object', { body: { a: [1, null] } }, JSON_TYPE, '{"a":[1,null]}'],
    ['a JSON string', { body: 'text' }, JSON_TYPE, '"text"'],
    ['null', { body: null }, JSON_TYPE, 'null'],
    ['zero', { body: 0 }, 'application/problem+json', '0'],
    ['text', { body: 'h\u00e9' }, 'text/plain', 'h\u00e9'],
    ['empty text', { body: '' }, 'text/plain', ''],
    ['a form', { body: { a: '1 2', b: ['x', 'y'], c: { d: '&' } } }, FORM, 'a=1+2&b=x&b=y&c%5Bd%5D=%26'],
    ['a form of another prototype', { body: Object.assign(Object.create(null), { a: '1' }) }, `${FORM};x`, 'a=1'],
    ['fields of a multipart form', { body: { a: '1' } }, 'multipart/form-data; boundary=x', undefined],
    ['an object of no type', { body: { a: 1 } }, null, undefined],
  ]
  for (const [name, left, type, bytes] of cases) t.equal(toBodyBytes(left, type)?.toString(), bytes, name)
})

type Parsed = IncomingMessage & { body?: unknown; rawBody?: unknown }

t.test('[http/public.29] behind the parser of a host application', async t => {
  const fn = makeFn({ policy: { methods: ['POST'], maxBodyBytes: 20 } })
  const { handle, runtime } = makePublic({ '/a': fn })
  const host = createServer(async (req: Parsed, res: ServerResponse) => {
    // As express.json() does: the stream is read to its end, and the value lies beside it.
    const chunks: Buffer[] = []
    for await (const chunk of req) chunks.push(chunk as Buffer)
    const text = Buffer.concat(chunks).toString()
    if (req.headers['x-keep'] !== undefined) req.rawBody = Buffer.from(text)
    if (req.headers['x-lose'] === undefined) req.body = JSON.parse(text)
    if (req.headers['x-odd'] !== undefined) req.body = { big: 1n }
    handle(req, res)
  })
  await new Promise<void>(resolve => host.listen(0, '127.0.0.1', resolve))
  t.teardown(() => host.close())
  const url = `http://127.0.0.1:${(host.address() as AddressInfo).port}/a`
  const post = (body: string, headers: Record<string, string> = {}) =>
    fetch(url, { method: 'POST', body, headers: { 'content-type': 'application/json', ...headers } })
  for (const [body, headers, bytes] of [
    ['{ "a":  1 }', {}, '{"a":1}'],
    ['{ "b":  2 }', {}, '{"b":2}'],
    ['{ "a":  1 }', { 'x-keep': '1' }, '{ "a":  1 }'],
    ['[1,2,3, 4 ]', {}, '[1,2,3,4]'],
  ] as const) {
    t.equal((await post(body, headers)).status, 200)
    const call = runtime.calls.at(-1)!
    t.equal(call.body!.toString(), bytes)
    t.match(
      headerOfCall(call).headers,
      { 'content-length': String(bytes.length) },
      'the length is that of what arrives',
    )
  }
  const long = await post('{ "a": "123456789012" }')
  t.equal(long.status, 200, 'blanks do not count')
  t.equal((await post('{ "a": "12345678901234567890" }')).status, 413)
  const lost = await post('{}', { 'x-lose': '1' })
  t.equal(lost.status, 500)
  t.match(await lost.json(), { error: /already read by the host application, and nothing of it is in req.body/ })
  const odd = await post('{}', { 'x-odd': '1' })
  t.equal(odd.status, 500, 'what JSON cannot say')
  t.same(await odd.json(), { error: 'gateway exception' })
  host.closeAllConnections()
})

t.test('[http/public.29] requests as Fastify wraps them', async t => {
  const raw = new IncomingMessage(new Socket())
  const answer = new ServerResponse(raw)
  t.same(unwrap(raw, answer), { req: raw, res: answer })
  let hijacked = 0
  const wrapped = unwrap({ raw, body: { a: 1 }, rawBody: 'kept' }, { raw: answer, hijack: () => (hijacked += 1) })
  t.equal(wrapped.req, raw)
  t.equal(wrapped.res, answer)
  t.match(raw, { body: { a: 1 }, rawBody: 'kept' })
  t.equal(hijacked, 1)
  // A host application may note what it likes on node's own request.
  const noted = Object.assign(new IncomingMessage(new Socket()), { raw: 'text' })
  t.equal(unwrap(noted, answer).req, noted)
})
