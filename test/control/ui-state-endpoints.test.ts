import { existsSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs'
import t, { type Test } from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import { AccessState } from '../../lib/control/access.ts'
import { OwnConsoleStore } from '../../lib/control/console-store.ts'
import type { JsonObject } from '../../lib/control/endpoint.ts'
import { Sessions } from '../../lib/control/session-endpoints.ts'
import { createUiStateEndpoints, UiState } from '../../lib/control/ui-state-endpoints.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { UI_STORE_BYTES } from '../../lib/core/limits.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { createGateway } from '../../lib/index.ts'
import { serveParts } from '../helpers/control.ts'
import { makeTree } from '../helpers/tree.ts'

const TOKEN = { 'x-fn-admin-token': 'token-1' }
const BASE = { adminToken: 'token-1', consoleWriteEnabled: true }

function setup(t: Test, options: Record<string, unknown> = BASE) {
  const tree = makeTree({})
  t.teardown(tree.cleanup)
  const { settings } = resolveSettings({ options: { functionsRoot: '/r', ...options }, cwd: '/' })
  const access = new AccessState(settings)
  const store = new OwnConsoleStore(systemClock, new OwnFolder(tree.root, '.svc', 'console'))
  const sessions = new Sessions(store, settings)
  const ask = serveParts(settings, { endpoints: createUiStateEndpoints(access, new UiState(store)), access, sessions })
  const change = (method: string, body: unknown, headers: Record<string, string> = {}) =>
    ask({ method, url: '/_fn/ui-state', body, headers: { 'content-type': 'application/json', ...headers } })
  const read = async () => (await ask({ url: '/_fn/ui-state' })).json()
  return { tree, ask, change, read }
}

const ALL = {
  ui_enabled: false,
  api_enabled: true,
  write_enabled: true,
  local_only: true,
  login_api_enabled: false,
  login_enabled: false,
  current_user: null,
  store: {},
}

t.test('[control/ui-state.1, control/ui-state.2] switches are read, put over the settings, and taken away', async t => {
  const { ask, change, read } = setup(t)
  t.same(await read(), ALL)
  for (const method of ['POST', 'PUT', 'PATCH']) {
    const answer = await change(method, { ui_enabled: true })
    t.same(answer.json(), { ...ALL, ui_enabled: true, login_enabled: true, warnings: [] }, method)
    t.same((await ask({ method: 'DELETE', url: '/_fn/ui-state' })).json(), ALL)
  }
  const known = await change('PUT', { login_enabled: true, public_explore: 1, __proto__x: 1 })
  t.match(known.json(), {
    ...ALL,
    warnings: [/^login_enabled is not known, or cannot/, /^public_explore/, /^__proto__x/],
  })
  t.same(await read(), ALL)
})

t.test('[control/ui-state.3] a value that is no boolean is 400, and nothing is changed', async t => {
  const { change, read } = setup(t)
  for (const value of ['true', 1, null, [], {}]) {
    const answer = await change('PUT', { ui_enabled: true, local_only: value })
    t.equal(answer.status, 400)
    t.match((answer.json() as JsonObject).error, /^body field local_only must be true or false, got /)
  }
  t.same(await read(), ALL)
})

t.test('[control/ui-state.4] what lets more in needs the token; locking down does not', async (t: Test) => {
  const { ask, change, read } = setup(t)
  t.match(await change('PUT', { local_only: false }), { status: 403 })
  t.match(await change('PUT', { local_only: false, ui_enabled: true }), { status: 403 })
  t.same(await read(), ALL)
  t.equal((await change('PUT', { local_only: false }, TOKEN)).status, 200)
  t.equal((await change('PUT', { local_only: true })).status, 200)
  t.equal((await change('PUT', { login_api_enabled: true })).status, 200)
  t.equal((await change('PUT', { login_api_enabled: false })).status, 401, 'login required')
  t.equal((await change('PUT', { login_api_enabled: false }, TOKEN)).status, 200)
  t.equal((await change('PUT', { write_enabled: false })).status, 200)
  t.equal((await change('PUT', { write_enabled: true })).status, 403)
  t.equal((await ask({ method: 'DELETE', url: '/_fn/ui-state' })).status, 403, 'to the settings is looser as well')
  t.equal((await ask({ method: 'DELETE', url: '/_fn/ui-state', headers: TOKEN })).status, 200)
  t.same(await read(), ALL)
  const open = setup(t, { ...BASE, consoleLocalOnly: false })
  await open.change('PUT', { local_only: true })
  t.equal((await open.ask({ method: 'DELETE', url: '/_fn/ui-state' })).status, 403, 'back to open needs it')
})

t.test('[control/ui-state.5] the token finds the way back after the API was switched off here', async t => {
  const { ask, change, read } = setup(t)
  t.match((await change('PUT', { api_enabled: false })).json(), { api_enabled: false })
  const ask404 = await ask({ url: '/_fn/ui-state' })
  t.same([ask404.status, ask404.json()], [404, { error: 'console api disabled' }])
  t.equal((await change('PUT', { api_enabled: true })).status, 404)
  t.equal((await change('PUT', { api_enabled: true }, TOKEN)).status, 200)
  t.same(await read(), ALL)
  const off = setup(t, { ...BASE, consoleApiEnabled: false })
  t.equal((await off.change('PUT', { api_enabled: true }, TOKEN)).status, 404, 'a setting is a setting')
})

const HISTORY = { try: [{ method: 'GET', path: '/a', note: '\u00e9"\n' }], __proto__x: 1 }

t.test('[control/ui-state.6] values are kept as they are given, whole or member by member', async t => {
  const { tree, change, read } = setup(t)
  for (const method of ['POST', 'PUT']) {
    t.match((await change(method, { store: { old: 1 } })).json(), { store: { old: 1 }, warnings: [] })
    t.same(((await change(method, { store: HISTORY })).json() as JsonObject).store, HISTORY, method)
  }
  await change('PATCH', { store: { more: [1], __proto__x: null }, ui_enabled: true })
  t.match(await read(), { ui_enabled: true, store: { try: HISTORY.try, more: [1] } })
  t.notOk('__proto__x' in ((await read()) as { store: object }).store)
  await change('PUT', { ui_enabled: false })
  t.match(await read(), { store: { more: [1] } }, 'a change without it leaves it')
  t.equal(statSync(tree.path('.svc/console/state.json')).mode & 0o777, 0o600)
  await change('PUT', { store: null })
  t.same(await read(), { ...ALL })
  t.notOk(existsSync(tree.path('.svc/console/state.json')))
})

t.test('[control/ui-state.6] names of prototypes are names', async t => {
  const { change, read } = setup(t)
  const body = '{"store":{"__proto__":{"a":1},"constructor":2,"toString":3}}'
  t.equal((await change('PUT', body)).status, 200)
  const { store } = (await read()) as { store: object }
  t.same(Object.keys(store).sort(), ['__proto__', 'constructor', 'toString'])
  t.equal(({} as { a?: number }).a, undefined)
})

t.test(
  '[control/ui-state.7] what is no object, too large or not writable is refused, and nothing is changed',
  async t => {
    const { tree, change, read } = setup(t)
    await change('PUT', { store: { kept: true } })
    for (const value of ['x', 1, [], true]) {
      const answer = await change('PUT', { ui_enabled: true, store: value })
      t.equal(answer.status, 400)
      t.match((answer.json() as JsonObject).error, /^body field store must be an object, got /)
    }
    const fits = 'x'.repeat(UI_STORE_BYTES - '{"kept":true,"a":""}'.length)
    t.equal((await change('PATCH', { store: { a: fits } })).status, 200)
    t.equal(
      (await change('PATCH', { ui_enabled: true, store: { b: 1 } })).status,
      413,
      'a part makes the whole too large',
    )
    t.equal((await change('PUT', { store: { a: `${fits}${'x'.repeat(30)}` } })).status, 413)
    t.equal((await change('PUT', { store: { a: 'x'.repeat(3 * 1024 * 1024) } })).status, 413)
    t.match(await read(), { ...ALL, store: { kept: true, a: fits } })
    t.equal((await change('PUT', { local_only: false, store: {} })).status, 403, 'a switch that may not be put')
    t.match(await read(), { store: { kept: true } })
    tree.write({ 'elsewhere/': '' })
    rmSync(tree.path('.svc'), { recursive: true })
    symlinkSync(tree.path('elsewhere'), tree.path('.svc'))
    const linked = await change('PUT', { ui_enabled: true, store: { a: 1 } })
    t.equal(linked.status, 403)
    t.match((linked.json() as JsonObject).error, /\.svc is a symbolic link/)
    t.match(await read(), { ui_enabled: false, store: {}, warnings: [/symbolic link/] })
    t.same(readdirSync(tree.path('elsewhere')), [])
  },
)

t.test('[control/ui-state.8] a file that cannot be used is told, and kept when something new is written', async t => {
  const { tree, change, read } = setup(t)
  for (const [text, why] of [
    ['{ "a": ', /is not JSON/],
    ['[]', /holds no object/],
    [`{"a":"${'x'.repeat(UI_STORE_BYTES)}"}`, /at most 262144 are read/],
  ] as const) {
    tree.write({ '.svc/console/state.json': text })
    t.match(await read(), { store: {}, warnings: [why] })
    await change('PATCH', { store: { b: 2 } })
    t.same(await read(), { ...ALL, store: { b: 2 } })
    t.equal(readFileSync(tree.path('.svc/console/state.json.unused'), 'utf8'), text)
  }
})

t.test('[control/ui-state.9] only who may see details sees it, and only who may write changes it', async t => {
  const { ask, change } = setup(t, { ...BASE, consoleLocalOnly: false, consoleWriteEnabled: false })
  t.equal((await change('PUT', { store: { a: 1 } })).status, 403)
  t.equal((await change('PUT', { store: { a: 1 } }, TOKEN)).status, 200)
  const stranger = await ask({ url: '/_fn/ui-state', remoteAddress: '203.0.113.9' })
  t.notOk('store' in (stranger.json() as object))
  t.match((await ask({ url: '/_fn/ui-state' })).json(), { store: { a: 1 } })
  t.equal((await ask({ method: 'DELETE', url: '/_fn/ui-state', headers: TOKEN })).status, 200)
  t.match((await ask({ url: '/_fn/ui-state' })).json(), { store: {} })
})

t.test('[control/ui-state.6] it is there after a restart of the gateway', async t => {
  const tree = makeTree({ 'a.lua': 'function handler() return 1 end\n' })
  t.teardown(tree.cleanup)
  const options = { functionsRoot: tree.root, runtimes: ['lua'] as const, consoleWriteEnabled: true }
  const headers = { 'content-type': 'application/json' }
  const first = await createGateway(options)
  await first.inject({ method: 'PATCH', url: '/_fn/ui-state', headers, body: { store: HISTORY } })
  await first.close()
  const second = await createGateway(options)
  t.teardown(() => second.close())
  t.same(((await second.inject('/_fn/ui-state')).json() as JsonObject).store, HISTORY)
})
