import { scryptSync } from 'node:crypto'
import t, { type Test } from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import { AccessState } from '../../lib/control/access.ts'
import { OwnConsoleStore } from '../../lib/control/console-store.ts'
import { endpoint, json, type JsonObject } from '../../lib/control/endpoint.ts'
import { createSessionEndpoints, Sessions } from '../../lib/control/session-endpoints.ts'
import { createUiStateEndpoints, UiState } from '../../lib/control/ui-state-endpoints.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { FakeClock } from '../helpers/clock.ts'
import { serveParts, toContext } from '../helpers/control.ts'

const SALT = Buffer.alloc(16, 7)
const HASH = `scrypt:16384:8:1:${SALT.toString('hex')}:${scryptSync('right', SALT, 32).toString('hex')}`
const LOGIN = { uiEnabled: true, adminToken: 'token-1', consoleLoginUsername: 'ann', consoleLoginPasswordHash: HASH }
const REMOTE = '203.0.113.9'

function setup(t: Test, options: Record<string, unknown> = {}) {
  const clock = new FakeClock()
  const { settings, problems } = resolveSettings({ options: { functionsRoot: '/r', ...LOGIN, ...options }, cwd: '/' })
  t.same(problems, [])
  const access = new AccessState(settings)
  const store = new OwnConsoleStore(clock, new OwnFolder(t.testdir({}), '.svc', 'console'))
  const sessions = new Sessions(store, settings)
  const endpoints = [
    ...createSessionEndpoints(toContext({ settings }), access, sessions, store),
    ...createUiStateEndpoints(access, new UiState(store)),
    endpoint('POST /_fn/reload', 'acts', () => json({})),
  ]
  const ask = serveParts(settings, { endpoints, access, sessions })
  const login = (body: unknown, more: object = {}) =>
    ask({ method: 'POST', url: '/_fn/login', headers: { 'content-type': 'application/json' }, body, ...more })
  return { ask, login, clock }
}

const idOf = (setCookie: string | undefined) => /^fngw_session=([\w-]{43});/.exec(setCookie ?? '')?.[1] ?? ''

t.test('[control/session.1, control/session.2, control/session.3] login, who am I, logout', async t => {
  const { ask, login, clock } = setup(t)
  const first = await login({ username: 'ann', password: 'right' })
  t.same([first.status, first.json()], [200, { ok: true, user: 'ann' }])
  t.match(first.headers['set-cookie'], /; Path=\/; HttpOnly; SameSite=Lax; Max-Age=43200$/)
  const headers = { cookie: `fngw_session=${idOf(first.headers['set-cookie'])}` }
  t.match((await ask({ url: '/_fn/ui-state', headers })).json(), { current_user: 'ann', login_enabled: true })
  const second = await login({ token: 'token-1' }, { headers: { ...headers, 'content-type': 'application/json' } })
  t.same(second.json(), { ok: true, user: 'admin' })
  t.match((await ask({ url: '/_fn/ui-state', headers })).json(), { current_user: null }, 'the id from before ended')
  const admin = { cookie: `fngw_session=${idOf(second.headers['set-cookie'])}` }
  t.match((await ask({ url: '/_fn/ui-state', headers: admin })).json(), { current_user: 'admin' })
  clock.advance(1000)
  const out = await ask({ method: 'POST', url: '/_fn/logout', headers: admin })
  t.same([out.status, out.json()], [200, { ok: true }])
  t.match(out.headers['set-cookie'], /^fngw_session=; .*Max-Age=0$/)
  t.match((await ask({ url: '/_fn/ui-state', headers: admin })).json(), { current_user: null }, 'replayed')
  t.equal((await ask({ method: 'POST', url: '/_fn/logout' })).status, 200, 'nobody was logged in')
})

t.test('[control/session.9] out of every browser, and nobody else', async t => {
  const { ask, login } = setup(t)
  const begin = async (body: unknown) => ({
    cookie: `fngw_session=${idOf((await login(body)).headers['set-cookie'])}`,
  })
  const userOf = async (headers: Record<string, string>) =>
    ((await ask({ url: '/_fn/ui-state', headers })).json() as { current_user: string | null }).current_user
  const ann = await begin({ username: 'ann', password: 'right' })
  const elsewhere = await begin({ username: 'ann', password: 'right' })
  const admin = await begin({ token: 'token-1' })
  const out = (query: string, headers: Record<string, string>) =>
    ask({ method: 'POST', url: `/_fn/logout${query}`, headers })
  t.equal((await out('?everywhere=1', {})).status, 200, 'somebody without a session')
  t.equal((await out('?everywhere=maybe', ann)).status, 400)
  t.equal((await out('?all=1', ann)).status, 400)
  t.same([await userOf(ann), await userOf(elsewhere), await userOf(admin)], ['ann', 'ann', 'admin'])
  t.equal((await out('?everywhere=1', ann)).status, 200)
  t.same([await userOf(ann), await userOf(elsewhere), await userOf(admin)], [null, null, 'admin'])
})

t.test('[control/session.1, control/session.7] what is refused, and that no answer repeats a secret', async t => {
  const { ask, login } = setup(t)
  const cases: [body: unknown, status: number, error: RegExp][] = [
    [{ username: 'ann', password: 'planted-1' }, 401, /^invalid credentials$/],
    [{ token: 'planted-1' }, 401, /^invalid credentials$/],
    [{}, 400, /must have username and password, or token/],
    [{ username: 'ann' }, 400, /must have username and password/],
    [{ username: 'ann', password: 'planted-1', token: 'planted-1' }, 400, /must have/],
    [{ username: 'ann', password: 5 }, 400, /password must be a text of 1 to 1024 characters/],
    [{ username: ['planted-1'], password: 'x' }, 400, /username must be a text/],
    [{ token: '' }, 400, /token must be/],
    [{ token: 'planted-1'.repeat(200) }, 400, /token must be/],
    [{ username: 'ann', password: 'x', 'planted-1': 1 }, 400, /has a field that is not/],
    ['[]', 400, /JSON object/],
    ['{', 400, /not JSON/],
    [`{"token":"${'x'.repeat(20_000)}"}`, 413, /16384/],
  ]
  for (const [body, status, error] of cases) {
    const answer = await login(body)
    const name = JSON.stringify(body).slice(0, 40)
    t.equal(answer.status, status, name)
    t.match((answer.json() as JsonObject).error, error, name)
    t.notMatch(answer.text(), 'planted-1')
    t.notOk(answer.headers['set-cookie'])
  }
  const form = { method: 'POST', url: '/_fn/login', body: 'token=token-1' }
  const type = { 'content-type': 'application/x-www-form-urlencoded' }
  t.equal((await ask({ ...form, headers: type })).status, 403, 'a form of a page logs nobody in')
  t.equal((await login({ token: 'token-1' }, { remoteAddress: REMOTE })).status, 403, 'local-only')
})

t.test('[control/session.4] the sixth failure of an address is 429, for the right password too', async t => {
  const { login, clock } = setup(t, { consoleLocalOnly: false })
  const from = { remoteAddress: REMOTE }
  const tries = await Promise.all(Array.from({ length: 8 }, () => login({ token: 'wrong' }, from)))
  t.same(tries.map(({ status }) => status).sort(), [401, 401, 401, 401, 401, 429, 429, 429])
  const locked = await login({ token: 'token-1' }, from)
  t.match(locked, { status: 429, headers: { 'retry-after': '300' } })
  t.equal((await login({ token: 'token-1' })).status, 200, 'another address')
  clock.advance(300_000)
  t.equal((await login({ token: 'token-1' }, from)).status, 200)
})

t.test('[control/session.7, control/access.11, control/access.12] what a session is good for', async t => {
  const begin = async (options: Record<string, unknown>, body: object, from = {}) => {
    const { ask, login } = setup(t, options)
    const answer = await login(body, from)
    const headers = { cookie: `fngw_session=${idOf(answer.headers['set-cookie'])}`, 'content-type': 'application/json' }
    return (request: { method?: string; url: string; body?: unknown; remoteAddress?: string; headers?: object }) =>
      ask({ ...request, headers: { ...headers, ...request.headers } } as never)
  }
  const user = { username: 'ann', password: 'right' }
  const put = { method: 'PUT', url: '/_fn/ui-state', body: {} }
  const asUser = await begin({}, user)
  t.equal((await asUser(put)).status, 403, 'a password gives no write permission')
  t.equal((await asUser({ url: '/_fn/ui-state', remoteAddress: REMOTE })).status, 403, 'nor a way past local-only')
  const asAdmin = await begin({}, { token: 'token-1' })
  t.equal((await asAdmin(put)).status, 200, 'the token does')
  t.equal((await asAdmin({ ...put, remoteAddress: REMOTE })).status, 200)
  t.equal((await asAdmin({ ...put, headers: { origin: 'http://evil.example' } })).status, 403, 'cookies come along')
  t.equal((await asAdmin({ ...put, headers: { 'content-type': 'text/plain' } })).status, 403, 'a form too')
  const open = { consoleLocalOnly: false, consoleLoginApi: true, consoleWriteEnabled: true }
  const nobody = setup(t, open)
  for (const request of [{ url: '/_fn/ui-state' }, { url: '/_fn/nothing' }, { method: 'POST', url: '/_fn/reload' }]) {
    const answer = await nobody.ask({ ...request, remoteAddress: REMOTE })
    t.same([answer.status, answer.json()], [401, { error: 'login required' }], request.url)
  }
  t.equal((await nobody.ask({ url: '/_fn/ui-state' })).status, 401, 'local callers too')
  const token = { 'x-fn-admin-token': 'token-1' }
  t.equal((await nobody.ask({ url: '/_fn/ui-state', headers: token })).status, 200)
  const loggedIn = await begin(open, user, { remoteAddress: REMOTE })
  t.equal((await loggedIn({ ...put, remoteAddress: REMOTE })).status, 200)
})

t.test('[control/session.8] without FN_UI_ENABLED, or without anything to log in with, there is no login', async t => {
  const off = setup(t, { uiEnabled: false })
  const answer = await off.login({ token: 'token-1' })
  t.equal(answer.status, 404)
  t.match((answer.json() as JsonObject).error, /^login disabled: it needs FN_UI_ENABLED=1, and FN_ADMIN_TOKEN or /)
  const nothing = setup(t, { adminToken: null, consoleLoginPasswordHash: null })
  t.equal((await nothing.login({ username: 'ann', password: 'right' })).status, 404)
  t.match((await nothing.ask({ url: '/_fn/ui-state' })).json(), { login_enabled: false })
})
