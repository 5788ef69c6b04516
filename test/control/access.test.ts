import t from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import {
  type Access,
  type AccessSettings,
  type Caller,
  checkAccess,
  isAdminToken,
  maySeeDetails,
  toAccessWarnings,
} from '../../lib/control/access.ts'

const flags: AccessSettings = {
  ...resolveSettings({ cwd: '/' }).settings,
  uiEnabled: false,
  consoleLoginApi: false,
  apiOffByState: false,
  consoleApiEnabled: true,
  consoleWriteEnabled: false,
  consoleLocalOnly: true,
  adminToken: 's3cret-token',
  consoleHosts: ['dev.example'],
  consoleLocalCidrs: [],
}

const local: Caller = {
  method: 'GET',
  socketAddress: '127.0.0.1',
  clientAddress: '127.0.0.1',
  forwarded: false,
  host: '127.0.0.1:8080',
  origin: null,
  fetchSite: null,
  isBrowser: false,
  contentType: null,
  mark: null,
  token: null,
  session: null,
}
const remote: Caller = { ...local, socketAddress: '10.1.2.3', clientAddress: '10.1.2.3' }
const read = 'read'
const write = 'write'

function status(caller: Partial<Caller>, access: Access = read, changed: Partial<AccessSettings> = {}): number {
  return checkAccess({ ...local, ...caller }, access, { ...flags, ...changed })?.status ?? 200
}

t.test(
  '[control/access.1, control/access.2, control/access.3, control/access.6] callers, flags and endpoints',
  async t => {
    const off = { consoleApiEnabled: false }
    const writable = { consoleWriteEnabled: true }
    const everywhere = { consoleLocalOnly: false }
    const post = { method: 'POST' }
    const token = { token: 's3cret-token' }
    const wrong = { token: 's3cret-tokem' }
    const cases: [name: string, got: number, want: number][] = [
      ['local read', status({}), 200],
      ['local unsafe call that is no write', status(post), 200],
      ['local write, writes off', status(post, write), 403],
      ['local write, writes on', status(post, write, writable), 200],
      ['remote read', status(remote), 403],
      ['remote read, local-only off', status(remote, read, everywhere), 200],
      ['remote write, local-only off, writes off', status({ ...remote, ...post }, write, everywhere), 403],
      [
        'remote write, local-only off, writes on',
        status({ ...remote, ...post }, write, { ...everywhere, ...writable }),
        200,
      ],
      ['remote write with token', status({ ...remote, ...post, ...token }, write), 200],
      ['surface off, local', status({}, read, off), 404],
      ['surface off, token', status(token, read, off), 404],
      ['surface off, open endpoint', status(remote, 'open', off), 200],
      ['wrong token, local', status(wrong), 401],
      ['wrong token, remote', status({ ...remote, ...wrong }), 401],
      ['wrong token, open endpoint', status(wrong, 'open'), 200],
      ['token where none is set, local', status(token, read, { adminToken: null }), 200],
      ['token where none is set, remote', status({ ...remote, ...token }, read, { adminToken: null }), 403],
    ]
    for (const [name, got, want] of cases) t.equal(got, want, name)
  },
)

t.test('[control/access.3] the token is compared whole', async t => {
  t.ok(isAdminToken('abc', 'abc'))
  for (const given of ['ab', 'abcd', 'ABC', '', 'abd', null]) t.notOk(isAdminToken(given, 'abc'), String(given))
  t.notOk(isAdminToken('', ''), 'an empty token admits nobody')
})

t.test('[control/access.4] what counts as local', async t => {
  const cases: [name: string, caller: Partial<Caller>, want: number][] = [
    ['localhost by name', { host: 'localhost:8080' }, 200],
    ['a name below localhost', { host: 'app.localhost' }, 200],
    ['IPv6 loopback', { socketAddress: '::1', clientAddress: '::1', host: '[::1]:8080' }, 200],
    ['another loopback address', { socketAddress: '127.8.9.1', clientAddress: '127.8.9.1' }, 200],
    ['a listed name', { host: 'DEV.example.:8080' }, 200],
    ['a foreign name (DNS rebinding)', { host: 'evil.example:8080' }, 403],
    ['a name that looks like an address', { host: '127.0.0.1.evil.example' }, 403],
    ['no host', { host: null }, 403],
    ['a forwarding header of a stranger', { forwarded: true }, 403],
    ['behind a trusted proxy, remote client', { clientAddress: '203.0.113.9' }, 403],
    ['a private network', { socketAddress: '192.168.1.5', clientAddress: '192.168.1.5' }, 403],
  ]
  for (const [name, caller, want] of cases) t.equal(status(caller), want, name)
})

t.test('[control/access.14] addresses that are listed count as loopback does', async t => {
  const listed = { consoleLocalCidrs: ['10.88.0.1', 'fd00::/64'] }
  const from = (address: string, clientAddress = address) => ({ socketAddress: address, clientAddress })
  const cases: [name: string, caller: Partial<Caller>, want: number][] = [
    ['the one that is listed', from('10.88.0.1'), 200],
    ['one of a listed network', from('fd00::7'), 200],
    ['its neighbour', from('10.88.0.2'), 403],
    ['loopback', {}, 200],
    ['a remote client behind the listed one', from('10.88.0.1', '203.0.113.9'), 403],
    ['a stranger who names the listed one', from('203.0.113.9', '10.88.0.1'), 403],
    ['a page of another name', { ...from('10.88.0.1'), host: 'evil.example' }, 403],
    ['a forwarding header of a stranger', { ...from('10.88.0.1'), forwarded: true }, 403],
  ]
  for (const [name, caller, want] of cases) t.equal(status(caller, read, listed), want, name)
  t.equal(status(from('10.88.0.1')), 403, 'nobody is listed by default')
})

t.test('[control/access.5] a page of another site cannot act', async t => {
  const post = { method: 'POST' }
  const cases: [name: string, caller: Partial<Caller>, want: number][] = [
    ['no origin (curl)', post, 200],
    ['own origin', { ...post, origin: 'http://127.0.0.1:8080', mark: '1' }, 200],
    ['foreign origin', { ...post, origin: 'http://evil.example' }, 403],
    ['another port', { ...post, origin: 'http://127.0.0.1:9999' }, 403],
    ['origin null', { ...post, origin: 'null' }, 403],
    ['cross-site', { ...post, fetchSite: 'cross-site' }, 403],
    ['same-origin', { ...post, fetchSite: 'same-origin', mark: '1' }, 200],
    ['cross-site with the mark', { ...post, fetchSite: 'cross-site', mark: '1' }, 403],
    ['a token exempts', { ...post, origin: 'http://evil.example', token: 's3cret-token' }, 200],
  ]
  for (const [name, caller, want] of cases) t.equal(status(caller), want, name)
})

t.test('[control/access.16] a page of another origin cannot read', async t => {
  const get = { method: 'GET' }
  const cases: [name: string, caller: Partial<Caller>, want: number][] = [
    ['curl', get, 200],
    ['a script of the console', { ...get, fetchSite: 'same-origin', isBrowser: true }, 200],
    ['an address that is typed', { ...get, fetchSite: 'none', isBrowser: true }, 200],
    ['a script of another origin', { ...get, origin: 'http://evil.example' }, 403],
    ['an image of another site', { ...get, fetchSite: 'cross-site' }, 403],
    ['an image of another port', { ...get, fetchSite: 'same-site' }, 403],
    ['with the token', { ...get, fetchSite: 'cross-site', token: 's3cret-token' }, 200],
  ]
  for (const [name, caller, want] of cases) t.equal(status(caller), want, name)
  const linked = { ...get, fetchSite: 'cross-site' }
  t.equal(status(linked, 'page'), 200, 'a link to the console')
  t.equal(status(linked, 'open'), 200, 'health')
})

/** What sends a call, as its headers tell. */
const CALLERS: readonly (readonly [name: string, caller: Partial<Caller>, post: number, get: number])[] = [
  ['curl -X POST', {}, 200, 200],
  ['curl with JSON', { contentType: 'application/json' }, 200, 200],
  ['curl -d', { contentType: 'application/x-www-form-urlencoded' }, 403, 403],
  ['curl -d with the mark', { contentType: 'application/x-www-form-urlencoded', mark: '1' }, 200, 200],
  ['an address that is typed', { fetchSite: 'none', isBrowser: true }, 200, 200],
  ['an image in a browser that says nothing of its site', { isBrowser: true }, 403, 403],
  ['a script in such a browser', { isBrowser: true, mark: '1' }, 200, 200],
  ['an image of its own origin', { fetchSite: 'same-origin' }, 403, 403],
  ['an image of another port', { fetchSite: 'same-site' }, 403, 403],
  ['an image of another site', { fetchSite: 'cross-site' }, 403, 403],
  [
    'a form of its own origin',
    { origin: 'http://127.0.0.1:8080', fetchSite: 'same-origin', contentType: 'application/x-www-form-urlencoded' },
    403,
    403,
  ],
  ['a form of an older browser', { contentType: 'multipart/form-data; boundary=x' }, 403, 403],
  ['a form that looks like JSON', { origin: 'http://127.0.0.1:8080', contentType: 'text/plain' }, 403, 403],
  ['a beacon of its own origin', { origin: 'http://127.0.0.1:8080', fetchSite: 'same-origin' }, 403, 403],
  [
    'a script of its own origin, JSON',
    { origin: 'http://127.0.0.1:8080', fetchSite: 'same-origin', contentType: 'application/json; charset=utf-8' },
    200,
    200,
  ],
  [
    'a script of its own origin, mark',
    { origin: 'http://127.0.0.1:8080', fetchSite: 'same-origin', mark: '1' },
    200,
    200,
  ],
  ['a script of another origin, JSON', { origin: 'http://evil.example', contentType: 'application/json' }, 403, 403],
  ['a script of another origin, mark', { origin: 'http://evil.example', fetchSite: 'same-site', mark: '1' }, 403, 403],
]

const OWN_ORIGIN = 'http://127.0.0.1:8080'

function isOfOther({ origin, fetchSite }: Partial<Caller>): boolean {
  return fetchSite?.endsWith('-site') === true || (origin ?? OWN_ORIGIN) !== OWN_ORIGIN
}

t.test('[control/access.5, control/access.8] who may act: no markup of a page, whatever its origin', async t => {
  for (const [name, caller, post, get] of CALLERS) {
    t.equal(status({ ...caller, method: 'POST' }), post, `${name}: POST`)
    t.equal(status({ ...caller, method: 'DELETE' }), post, `${name}: DELETE`)
    t.equal(status({ ...caller, method: 'GET' }, 'acts'), get, `${name}: GET that acts`)
    t.equal(status({ ...caller, method: 'GET' }), isOfOther(caller) ? 403 : 200, `${name}: GET`)
    t.equal(status({ ...caller, method: 'POST', token: 's3cret-token' }), 200, `${name}: with the token`)
    t.equal(status({ ...caller, ...remote, method: 'POST', origin: null }), 403, `${name}: remote`)
  }
  const refused = checkAccess({ ...local, method: 'POST', contentType: 'text/plain' }, read, flags)
  t.equal(refused?.message, 'send the header X-Fngw-Request: 1, or Content-Type: application/json')
})

t.test('[control/access.7] details are for local callers and token holders', async t => {
  t.ok(maySeeDetails(local, flags))
  t.notOk(maySeeDetails(remote, flags))
  t.ok(maySeeDetails({ ...remote, token: 's3cret-token' }, flags))
})

t.test('[control/access.10] a token beside an open door is a warning', async t => {
  const open = {
    ...flags,
    consoleApiEnabled: true,
    consoleLocalOnly: false,
    adminToken: 'a'.repeat(32),
    consoleLoginPasswordHash: null,
    isolation: 'process' as const,
  }
  t.match(toAccessWarnings(open), [
    { code: 'CONTROL_OPEN', message: /without the admin token/, hint: /FN_CONSOLE_LOCAL_ONLY/ },
  ])
  for (const safe of [{ consoleLocalOnly: true }, { adminToken: null }, { consoleApiEnabled: false }])
    t.same(toAccessWarnings({ ...open, ...safe }), [])
  const login = { ...open, adminToken: null, consoleLoginApi: true }
  for (const more of [{}, { uiEnabled: true }, { consoleLoginPasswordHash: 'scrypt' }])
    t.match(toAccessWarnings({ ...login, ...more }), [
      { code: 'LOGIN_IMPOSSIBLE', message: /^FN_CONSOLE_LOGIN_API=1 requires a login and no login is possible/ },
    ])
  for (const more of [{ adminToken: 't' }, { uiEnabled: true, consoleLoginPasswordHash: 'scrypt' }])
    t.same(toAccessWarnings({ ...login, ...more }), [])
  t.match(toAccessWarnings({ ...open, adminToken: null, isolation: 'user' }), [
    { code: 'LOGIN_IMPOSSIBLE', message: /^FN_ISOLATION=user requires a login and no login is possible/ },
  ])
})
