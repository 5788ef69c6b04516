import t from 'tap'
import { fromBase64, toBase64 } from '../../console/preview.ts'
import { toPublicOrigin } from '../../console/pages/try/public-origin.ts'
import {
  EMPTY_REQUEST,
  findProblem,
  fromFields,
  readHeaders,
  toBody,
  toFields,
  toHeaders,
  toQuery,
} from '../../console/pages/try/try-request.ts'

const field = (name: string, value: string, file: File | null = null) => ({ name, value, file })

t.test('[console/try.2] the address brings back all of a request but files and secrets', async t => {
  const cases = [
    { ...EMPTY_REQUEST },
    { ...EMPTY_REQUEST, method: 'POST', path: '/a?b=ü&c', as: 'json' as const, text: '{ "a": 1 }\n' },
    { ...EMPTY_REQUEST, method: 'PUT', as: 'form' as const, fields: [field('a', 'b'), field('', '')] },
    { ...EMPTY_REQUEST, headers: 'X-A: b\nAccept: text/plain' },
  ]
  for (const request of cases) {
    const kept = Object.entries(toFields(request)).filter((pair): pair is [string, string] => pair[1] !== null)
    t.same(fromFields(new URLSearchParams(kept)), request)
  }
  const secret = { ...EMPTY_REQUEST, headers: 'Authorization: Bearer s3cret\nX-Api-Key: s3cret\nCookie:s3cret\nX-B: c' }
  t.notMatch(JSON.stringify(toFields(secret)), 's3cret')
  t.equal(toFields(secret).headers, 'Authorization:\nX-Api-Key:\nCookie:\nX-B: c')
  const long = { ...EMPTY_REQUEST, method: 'POST', as: 'text' as const, text: 'x'.repeat(3000) }
  t.equal(toFields(long).body, null, 'an address has an end')
  t.same(fromFields(new URLSearchParams('as=form&body={')), { ...EMPTY_REQUEST, as: 'form' })
  t.same(fromFields(new URLSearchParams('as=other&body=[1]')).as, 'none')
})

t.test('[console/try.1] what cannot be sent is said before it is sent', async t => {
  const wrong: [Partial<typeof EMPTY_REQUEST>, RegExp][] = [
    [{ path: 'users' }, /path must start with/],
    [{ path: '' }, /path must start with/],
    [{ method: 'GE T' }, /method/],
    [{ headers: 'X-A: b\nwrong' }, /line 2 .*no colon/],
    [{ headers: 'a b: c' }, /"a b" is not a valid header name/],
    [{ headers: 'X-A: 漢' }, /headers cannot contain/],
    [{ method: 'POST', as: 'json', text: '{' }, /not JSON/],
    [{ method: 'POST', as: 'file' }, /choose the file/],
  ]
  for (const [part, pattern] of wrong) t.match(findProblem({ ...EMPTY_REQUEST, ...part }), pattern)
  t.equal(findProblem({ ...EMPTY_REQUEST, as: 'json', text: '{' }), null, 'GET has no body')
  t.same(readHeaders('X-A:b:c\n\n x-d : e '), {
    headers: [
      ['X-A', 'b:c'],
      ['x-d', 'e'],
    ],
    problem: null,
  })
})

t.test('[console/try.1] the body and its content type', async t => {
  const post = { ...EMPTY_REQUEST, method: 'POST' }
  const sent = async (part: Partial<typeof post>) => {
    const request = { ...post, ...part }
    const body = await toBody(request)
    const type = body?.type ?? toHeaders(request).find(([name]) => name.toLowerCase() === 'content-type')?.[1]
    return [body === null ? null : Buffer.from(body.bytes).toString(), type]
  }
  t.same(await sent({ as: 'none' }), [null, undefined])
  t.same(await sent({ as: 'json', text: '{}', method: 'GET' }), [null, undefined])
  t.same(await sent({ as: 'json', text: '{"ü":1}' }), ['{"ü":1}', 'application/json'])
  t.same(await sent({ as: 'text', text: 'a', headers: 'content-type: text/csv' }), ['a', 'text/csv'])
  t.same(await sent({ as: 'form', fields: [field('a', 'b c'), field('', 'x')] }), [
    'a=b+c',
    'application/x-www-form-urlencoded',
  ])
  const file = new File(['inside'], 'a.txt', { type: 'text/plain' })
  t.same(await sent({ as: 'file', file }), ['inside', 'text/plain'])
  const [text, type] = await sent({ as: 'form', fields: [field('f', '', file), field('g', 'h')] })
  t.match(type, /^multipart\/form-data; boundary=/)
  t.match(text, /name="f"; filename="a.txt"[\s\S]*inside[\s\S]*name="g"[\s\S]*h/)
})

t.test('[console/try.3] bytes and queries on their way through JSON', async t => {
  const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => (index * 7) % 256)
  t.equal(toBase64(bytes), Buffer.from(bytes).toString('base64'))
  t.same(fromBase64(toBase64(bytes)), bytes)
  t.same({ ...toQuery('?a=1&b=&a=2&__proto__=x&c') }, { a: ['1', '2'], b: '', c: '', ['__proto__']: 'x' })
})

t.test('[console/try.8] where functions are reached when the control plane has a port of its own', async t => {
  const at = new URL('https://gateway.example:9000/')
  const rows = (port: number, controlPort: number | null) => [
    { name: 'port', value: port },
    { name: 'controlPort', value: controlPort },
  ]
  t.same(toPublicOrigin(at, []), { origin: 'https://gateway.example:9000', isHere: true })
  t.same(toPublicOrigin(at, rows(8080, null)), { origin: 'https://gateway.example:9000', isHere: true })
  t.same(toPublicOrigin(at, rows(8080, 0)), { origin: 'https://gateway.example:8080', isHere: false })
  t.same(toPublicOrigin(at, rows(0, 9000)), { origin: 'https://gateway.example', isHere: false })
})
