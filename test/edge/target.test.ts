import t from 'tap'
import type { EdgePolicy } from '../../lib/core/catalog.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { type EdgeRequest, toEdgeRequest, toEdgeRules } from '../../lib/edge/target.ts'

const EDGE: EdgePolicy = {
  baseUrl: 'http://up.test:81/api',
  allowHosts: [],
  allowPrivate: false,
  maxResponseBytes: 100,
}

function read(directive: Record<string, unknown>, edge: Partial<EdgePolicy> = {}, method = 'GET'): EdgeRequest {
  const policy = { ...EDGE, ...edge }
  return toEdgeRequest(directive, toEdgeRules(policy), 2500, method)
}

/** The refusal of a directive, without what all of them begin with. */
function refusal(directive: Record<string, unknown>, edge: Partial<EdgePolicy> = {}, method = 'GET'): string {
  try {
    read(directive, edge, method)
    return 'no refusal'
  } catch (error) {
    const { message, status } = error as GatewayError
    return status === 502
      ? message.replace('edge proxy failed: ', '').replace('invalid runtime response: ', '! ')
      : String(error)
  }
}

t.test('[edge/passthrough.1, edge/passthrough.3] where a path and a url lead', async t => {
  const rows: [Record<string, unknown>, string][] = [
    [{ path: '/x?a=1#f' }, 'http up.test:81 /api/x?a=1'],
    [{ path: '/' }, 'http up.test:81 /api/'],
    [{ path: '//other.test/x' }, 'http up.test:81 /api//other.test/x'],
    [{ path: '/@other.test/x' }, 'http up.test:81 /api/@other.test/x'],
    [{ path: '/:90/x' }, 'http up.test:81 /api/:90/x'],
    [{ path: '/é x/%2F?q=ü' }, 'http up.test:81 /api/%C3%A9%20x/%2F?q=%C3%BC'],
    [{ path: '/./x?y=../z' }, 'http up.test:81 /api/x?y=../z'],
    [{ path: '/x', url: 'https://Other.TEST/y' }, 'https other.test:443 /y'],
    [{ path: null, url: 'HTTP://other.test:80' }, 'http other.test:80 /'],
    [{ url: 'https://other.test:8443/?q=\\' }, 'https other.test:8443 /?q=\\'],
  ]
  for (const [directive, expected] of rows) {
    const { isTls, hostname, port, path } = read(directive).to
    t.equal(`${isTls ? 'https' : 'http'} ${hostname}:${port} ${path}`, expected, JSON.stringify(directive))
  }
  t.match(read({ path: '/x' }), {
    to: { host: 'up.test:81' },
    method: 'GET',
    headers: [],
    timeoutMs: null,
    maxResponseBytes: 100,
  })
  t.equal(read({ path: '/x' }, { baseUrl: 'http://up.test/' }).to.path, '/x')
  t.equal(read({ url: 'http://up.test:80/' }).to.host, 'up.test')
})

t.test('[edge/passthrough.3] targets that are refused', async t => {
  const rows: [Record<string, unknown>, string][] = [
    [{}, 'proxy.url or proxy.path is required'],
    [{ path: null, url: null }, 'proxy.url or proxy.path is required'],
    [{ path: 7 }, 'proxy.path must be a string'],
    [{ url: ['http://a'] }, 'proxy.url must be a string'],
    [{ path: 'x' }, 'proxy.path must start with /'],
    [{ path: 'http://other.test/' }, 'proxy.path must start with /'],
    [{ path: '' }, 'proxy.path must start with /'],
    [{ path: '/a\r\nX: 1' }, 'proxy.path holds a character that a URL cannot carry'],
    [{ path: '/\tx' }, 'proxy.path holds a character that a URL cannot carry'],
    [{ path: '/a\\..\\x' }, 'proxy.path holds a character that a URL cannot carry'],
    [{ url: 'http:\\\\other.test' }, 'proxy.url holds a character that a URL cannot carry'],
    [{ url: 'http://other.test\\@up.test/' }, 'proxy.url holds a character that a URL cannot carry'],
    [{ url: 'ht\ntp://other.test/' }, 'proxy.url holds a character that a URL cannot carry'],
    [{ url: `http://other.test/${'x'.repeat(16_384)}` }, 'proxy.url is longer than 16384 characters'],
    [{ path: `/${'x'.repeat(16_384)}` }, 'proxy.path is longer than 16384 characters'],
    [{ url: '//other.test/' }, 'proxy.url must be absolute, http:// or https://'],
    [{ url: '/x' }, 'proxy.url must be absolute, http:// or https://'],
    [{ url: 'ftp://other.test/' }, 'proxy.url must be absolute, http:// or https://'],
    [{ url: 'file:///etc/passwd' }, 'proxy.url must be absolute, http:// or https://'],
    [{ url: 'http://' }, 'proxy.url is not a valid URL'],
    [{ url: 'http://a b/' }, 'proxy.url is not a valid URL'],
    [{ url: 'http://other.test:99999/' }, 'proxy.url is not a valid URL'],
    [{ url: 'http://user@other.test/' }, 'proxy.url may not hold a user name or password'],
    [{ url: 'http://:pw@other.test/' }, 'proxy.url may not hold a user name or password'],
    [{ url: 'http://a..b/' }, 'the target has no valid host'],
    [{ url: 'http://a$b/' }, 'the target has no valid host'],
    [{ url: 'http://./' }, 'the target has no valid host'],
    [{ path: '/x', method: 'TRACE' }, 'proxy.method must be one of GET, POST, PUT, PATCH, DELETE'],
    [{ path: '/x', method: 'GET / HTTP/1.1\r\n' }, 'proxy.method must be one of GET, POST, PUT, PATCH, DELETE'],
    [{ path: '/x', method: 7 }, 'proxy.method must be one of GET, POST, PUT, PATCH, DELETE'],
    [{ path: '/x', method: 'HEAD' }, 'proxy.method must be one of GET, POST, PUT, PATCH, DELETE'],
    [{ path: '/x', timeout_ms: 0 }, '! proxy.timeout_ms must be a number of at least 1, got 0 (number)'],
    [{ path: '/x', timeout_ms: '5' }, '! proxy.timeout_ms must be a number of at least 1, got "5" (string)'],
    [
      { path: '/x', max_response_bytes: -1 },
      '! proxy.max_response_bytes must be a number of at least 1, got -1 (number)',
    ],
  ]
  for (const path of [
    '/..',
    '/a/../b',
    '/a/..',
    '/%2e%2e/x',
    '/.%2E/x',
    '/%252e%252e/x',
    '/a/..;x/b',
    '/x/..%2f..%2fy',
    '/..%5cx',
  ])
    rows.push([{ path }, 'proxy.path may not include ..'])
  for (const [directive, expected] of rows)
    t.equal(refusal(directive), expected, JSON.stringify(directive).slice(0, 80))
  t.equal(refusal({ path: '/x' }, { baseUrl: null }), 'edge.base_url is required for proxy.path')
})

t.test('[edge/passthrough.4, edge/passthrough.5] method, and limits that only lower', async t => {
  t.equal(read({ path: '/' }, {}, 'PATCH').method, 'PATCH')
  t.equal(read({ path: '/', method: 'post' }).method, 'POST')
  t.equal(read({ path: '/', method: null }, {}, 'HEAD').method, 'HEAD')
  t.equal(read({ path: '/', method: 'HEAD' }, {}, 'HEAD').method, 'HEAD')
  const limits = (fields: Record<string, unknown>) => {
    const { timeoutMs, maxResponseBytes } = read({ path: '/', ...fields })
    return [timeoutMs, maxResponseBytes]
  }
  t.same(limits({ timeout_ms: 100, max_response_bytes: 10 }), [100, 10])
  t.same(limits({ timeout_ms: 100.9, max_response_bytes: 10.9 }), [100, 10])
  t.same(limits({ timeout_ms: 1e9, max_response_bytes: 1e9 }), [null, 100])
  t.same(limits({ timeout_ms: null, max_response_bytes: null }), [null, 100])
})

t.test('[edge/passthrough.7] every spelling of a host is read as one', async t => {
  const rows: Record<string, string> = {
    '127.0.0.1': '127.0.0.1',
    '127.1': '127.0.0.1',
    '127.0.1': '127.0.0.1',
    '2130706433': '127.0.0.1',
    '0x7f000001': '127.0.0.1',
    '0x7F.1': '127.0.0.1',
    '0177.0.0.01': '127.0.0.1',
    '017700000001': '127.0.0.1',
    '127.0.0.1.': '127.0.0.1',
    '%31%32%37.0.0.1': '127.0.0.1',
    '１２７.0.0.1': '127.0.0.1',
    '①②⑦.0.0.1': '127.0.0.1',
    '127。0。0。1': '127.0.0.1',
    '0': '0.0.0.0',
    '0xa9fea9fe': '169.254.169.254',
    '[::1]': '::1',
    '[0:0:0:0:0:0:0:1]': '::1',
    '[::FFFF:127.0.0.1]': '::ffff:7f00:1',
    LOCALHOST: 'localhost',
    'localhost.': 'localhost',
    'ⓛocalhost': 'localhost',
    'Bücher.Example.': 'xn--bcher-kva.example',
  }
  for (const [host, hostname] of Object.entries(rows))
    t.equal(read({ url: `http://${host}/` }).to.hostname, hostname, host)
  for (const host of [
    '127.0.0.1.2',
    '256.1.1.1',
    '4294967296',
    '1.2.3.256',
    '[::1',
    '[::1%25eth0]',
    '[fe80::1%eth0]',
    '[127.0.0.1]',
  ])
    t.equal(refusal({ url: `http://${host}/` }), 'proxy.url is not a valid URL', host)
})

t.test('[edge/passthrough.6] allow_hosts', async t => {
  const rows: [string[], string, boolean][] = [
    [['up.test'], 'http://up.test:81/', true],
    [['up.test'], 'http://UP.test./', true],
    [['up.test'], 'http://sub.up.test/', false],
    [['up.test'], 'http://notup.test/', false],
    [['up.test:81'], 'http://up.test:81/', true],
    [['up.test:81'], 'http://up.test/', false],
    [['up.test:443'], 'https://up.test/', true],
    [['*.up.test'], 'http://a.b.up.test/', true],
    [['*.up.test'], 'http://up.test/', false],
    [['*.up.test'], 'http://xup.test/', false],
    [['*.up.test:81'], 'http://a.up.test:80/', false],
    [['a.test', 'up.test'], 'http://up.test/', true],
    [['[2606:4700:0::5]'], 'http://[2606:4700::5]/', true],
    [['[2606:4700::5]:81'], 'http://[2606:4700::5]/', false],
    [['8.8.8.8'], 'http://0x08080808/', true],
    [['8.8.8.8'], 'http://8.8.4.4/', false],
  ]
  for (const [allowHosts, url, isAllowed] of rows) {
    const expected = isAllowed ? 'no refusal' : 'proxy denied: host not in allowlist'
    t.equal(refusal({ url }, { allowHosts }), expected, `${allowHosts} ${url}`)
  }
  t.equal(refusal({ path: '/x' }, { allowHosts: ['a.test'] }), 'proxy denied: host not in allowlist', 'base_url too')
})

t.test('[edge/passthrough.12] the control plane in every spelling', async t => {
  const denied = 'proxy denied: control-plane path not allowed'
  const paths = `/_fn /_fn/ /_fn/health /console /console/x //_fn/health ///_fn /_FN/health /Console /%5ffn /%5Ffn /_%66n
    /%255ffn /%25255ffn /%2525255f%2566n /./_fn /%2e/_fn /x/%2e%2e%2f_fn /x%2f..%2f_fn /x%2f..%2f..%2f_fn /%2f_fn /%5c_fn
    /%252f_fn /x;a/%252e%252e/_fn /_fn;a=1/health /_fn%3fx /_fn%23 /_fn%00 /%09_fn /_fn%20/ /_fn%2fhealth /_fn/%2e%2e%2fx
    /console%2f /%63onsole /c%256fnsole`
  for (const path of paths.split(/\s+/)) {
    t.equal(refusal({ url: `http://other.test${path}?q=1` }), denied, path)
    t.match(refusal({ path }, { baseUrl: 'http://other.test' }), /control-plane|may not include/, path)
  }
  t.equal(refusal({ url: 'http://other.test/x/../_fn/health' }), denied)
  t.equal(refusal({ url: 'http://other.test/x/%2e%2e/_fn/health' }), denied)
  const often = (rounds: number) => `/%${'25'.repeat(rounds)}61`
  t.equal(refusal({ url: `http://other.test${often(7)}` }), 'no refusal')
  t.equal(refusal({ url: `http://other.test${often(8)}` }), denied, 'escaped more often than anyone means')
  for (const path of ['/_fnx', '/x_fn', '/consoles', '/x/_fn', '/x/console', '/?q=/_fn', '/100%', '/%zz', '/%c0%ae'])
    t.equal(refusal({ url: `http://other.test${path}` }), 'no refusal', path)
  t.equal(refusal({ url: 'http://other.test/x#/_fn' }), 'no refusal', 'a fragment is not sent')
})

t.test(
  '[edge/passthrough.3] a target that came before is not read again, and the rest of its directive is',
  async t => {
    const policy = { ...EDGE, allowHosts: ['up.test:81', 'other.test'] }
    const rules = toEdgeRules(policy)
    const ask = (directive: Record<string, unknown>) => toEdgeRequest(directive, rules, 2500, 'GET')
    const first = ask({ path: '/x', method: 'POST', headers: { a: '1' } })
    const again = ask({ path: '/x', timeout_ms: 5 })
    t.equal(again.to, first.to)
    t.match(again, { to: { path: '/api/x' }, method: 'GET', headers: [], timeoutMs: 5 })
    t.match(ask({ url: 'http://other.test/x' }), { to: { hostname: 'other.test', path: '/x' } })
    // A url and a path of one text are two targets.
    t.throws(() => ask({ url: '/x' }), { message: /proxy.url must be absolute/ })
    for (let i = 0; i < 2; i++) {
      t.throws(() => ask({ url: 'http://else.test/' }), { message: /host not in allowlist/ }, 'a refusal stays one')
      t.throws(() => ask({ path: '/../_fn' }), { message: /\.\./ })
    }
    for (let i = 0; i < 300; i++) ask({ path: `/${i}` })
    t.ok(rules.known.size <= 256, 'bounded')
    ask({ path: `/${'x'.repeat(600)}` })
    t.notOk(
      [...rules.known.keys()].some(key => key.length > 600),
      'long ones are not kept',
    )
  },
)
