import t from 'tap'
import { headerOf } from '../../lib/core/http-text.ts'
import { HeadReader, withoutSessionCookie } from '../../lib/invocation/forwarded-headers.ts'

const read = (...raw: string[]) => new HeadReader().read(raw)
const forwarded = (...raw: string[]) => JSON.parse(read(...raw).json)

t.test('[invocation/forwarded-headers.1] names in lower case, values as they are', async t => {
  t.same(forwarded('Authorization', 'Bearer x', 'X-API-Key', 'k"\\\t', 'Cookie', 'a=1', 'X-Text', 'caf\xe9'), {
    authorization: 'Bearer x',
    'x-api-key': 'k"\\\t',
    cookie: 'a=1',
    'x-text': 'caf\xe9',
  })
  t.equal(read().json, '{}')
  const head = read('HOST', 'h', 'content-LENGTH', '5', 'User-Agent', 'ua', 'Origin', 'o', 'X-Request-Id', 'r')
  t.match(head, { host: 'h', hostCount: 1, contentLength: '5', userAgent: 'ua', origin: 'o', requestId: 'r' })
})

t.test('[invocation/forwarded-headers.2] repeated headers are joined', async t => {
  for (const [raw, expected] of [
    [['A', '1', 'a', '2'], { a: '1, 2' }],
    [['a', '1', 'B', 'x', 'a', '2', 'A', '3'], { a: '1, 2, 3', b: 'x' }],
    [['Cookie', 'a=1', 'cookie', 'b=2'], { cookie: 'a=1; b=2' }],
  ] as const) {
    t.same(forwarded(...raw), expected)
  }
  const head = read('Host', 'a', 'X', '1', 'host', 'b')
  t.equal(head.hostCount, 2)
  t.equal(read('X', '1', 'x', '2', 'Host', 'a').hostCount, 1)
})

t.test('[invocation/forwarded-headers.3] the admin token and internal markers stay here', async t => {
  for (const name of ['x-fn-admin-token', 'X-Fn-Admin-Token', 'X-FN-INTERNAL-CALL', 'x-fn-internal-', 'X-Fn-Trigger']) {
    t.same(forwarded(name, 'secret', 'accept', '*/*'), { accept: '*/*' }, name)
    t.same(forwarded(name, 'secret', 'a', '1', name, 'again', 'a', '2'), { a: '1, 2' }, `${name} repeated`)
  }
})

t.test('[invocation/forwarded-headers.4] the session cookie is cut out', async t => {
  for (const [cookie, expected] of [
    ['fngw_session=abc', null],
    ['a=1; fngw_session=abc; b=2', 'a=1; b=2'],
    ['fngw_session=abc;a=1', 'a=1'],
    ['a=1;fngw_session', 'a=1'],
    ['a=fngw_session', 'a=fngw_session'],
    ['xfngw_session=1; fngw_session2=2', 'xfngw_session=1; fngw_session2=2'],
    ['fngw_session=1; fngw_session=2', null],
  ] as const) {
    t.equal(withoutSessionCookie(cookie), expected, cookie)
    t.same(forwarded('Cookie', cookie), expected === null ? {} : { cookie: expected }, cookie)
    t.equal(read('Cookie', cookie).cookie, expected)
  }
  t.same(forwarded('Cookie', 'a=1', 'Cookie', 'fngw_session=x'), { cookie: 'a=1' })
})

t.test('[invocation/forwarded-headers.5] hop-by-hop headers are dropped, and those that Connection names', async t => {
  const hops = ['connection', 'keep-alive', 'proxy-connection', 'proxy-authorization', 'te', 'trailer', 'upgrade']
  for (const name of [...hops, 'transfer-encoding'])
    t.same(forwarded(name.toUpperCase(), 'x', 'a', '1'), { a: '1' }, name)
  t.same(forwarded('Connection', 'close, X-One', 'x-one', '1', 'x-two', '2'), { 'x-two': '2' })
  t.same(forwarded('x-one', '1', 'Connection', 'X-ONE'), {}, 'named after it was read')
  t.same(forwarded('Connection', 'Upgrade, keep-alive', 'accept', 'a'), { accept: 'a' })
  t.same(
    forwarded('Connection', 'host, authorization, cookie, content-length', 'Host', 'h', 'Authorization', 'x'),
    { host: 'h', authorization: 'x' },
    'not the ones that matter',
  )
})

t.test('[invocation/forwarded-headers.6] names of Object are plain names', async t => {
  const head = read('__proto__', 'x', 'constructor', 'y', 'toString', 'z', 'hasOwnProperty', 'w')
  t.equal(head.json, '{"__proto__":"x","constructor":"y","tostring":"z","hasownproperty":"w"}')
  t.equal(({} as Record<string, unknown>).x, undefined)
})

t.test('[invocation/forwarded-headers.7] any number of names is read rightly', async t => {
  const reader = new HeadReader()
  for (let round = 0; round < 40; round++) {
    const raw: string[] = ['Host', 'h']
    const expected: Record<string, string> = { host: 'h' }
    for (let i = 0; i < 100; i++) {
      const name = `X-${round}-${i}`
      raw.push(name, String(i), name, 'again')
      expected[name.toLowerCase()] = `${i}, again`
    }
    if (round % 2 === 0) {
      t.same(JSON.parse(reader.read(raw).json), expected)
    } else {
      const single = raw.filter((_, index) => index < 2 || Math.floor((index - 2) / 2) % 2 === 0)
      t.equal(Object.keys(JSON.parse(reader.read(single).json)).length, 101)
    }
    t.same(JSON.parse(reader.read(['A', '1', 'a', '2']).json), { a: '1, 2' })
  }
  t.equal(headerOf(['A', '1', 'b', '2', 'a', '3'], 'a'), '1, 3')
  t.equal(headerOf(['A', '1'], 'b'), null)
})
