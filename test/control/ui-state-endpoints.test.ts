import t, { type Test } from 'tap'
import { AccessState } from '../../lib/control/access-state.ts'
import type { JsonObject } from '../../lib/control/control-request.ts'
import { Sessions } from '../../lib/control/sessions.ts'
import { createUiStateEndpoints } from '../../lib/control/ui-state-endpoints.ts'
import { resolveSettings } from '../../lib/config/settings.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { serveParts } from '../helpers/control.ts'

const TOKEN = { 'x-fn-admin-token': 'token-1' }
const BASE = { adminToken: 'token-1', consoleWriteEnabled: true }

function setup(options: Record<string, unknown> = BASE) {
  const { settings } = resolveSettings({ options: { functionsRoot: '/r', ...options }, cwd: '/' })
  const access = new AccessState(settings)
  const sessions = new Sessions({ clock: systemClock, ttlMs: 1000 })
  const ask = serveParts(settings, { endpoints: createUiStateEndpoints({ access }), access, sessions })
  const change = (method: string, body: unknown, headers: Record<string, string> = {}) =>
    ask({ method, url: '/_fn/ui-state', body, headers: { 'content-type': 'application/json', ...headers } })
  const read = async () => (await ask({ url: '/_fn/ui-state' })).json()
  return { ask, change, read }
}

const ALL = {
  ui_enabled: false,
  api_enabled: true,
  write_enabled: true,
  local_only: true,
  login_api_enabled: false,
  login_enabled: false,
  current_user: null,
}

t.test('[control/ui-state.1, control/ui-state.2] switches are read, put over the settings, and taken away', async t => {
  const { ask, change, read } = setup()
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
  const { change, read } = setup()
  for (const value of ['true', 1, null, [], {}]) {
    const answer = await change('PUT', { ui_enabled: true, local_only: value })
    t.equal(answer.status, 400)
    t.match((answer.json() as JsonObject).error, /^body field local_only must be true or false, got /)
  }
  t.same(await read(), ALL)
})

t.test('[control/ui-state.4] what lets more in needs the token; locking down does not', async (t: Test) => {
  const { ask, change, read } = setup()
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
  const open = setup({ ...BASE, consoleLocalOnly: false })
  await open.change('PUT', { local_only: true })
  t.equal((await open.ask({ method: 'DELETE', url: '/_fn/ui-state' })).status, 403, 'back to open needs it')
})

t.test('[control/ui-state.5] the token finds the way back after the API was switched off here', async t => {
  const { ask, change, read } = setup()
  t.match((await change('PUT', { api_enabled: false })).json(), { api_enabled: false })
  const ask404 = await ask({ url: '/_fn/ui-state' })
  t.same([ask404.status, ask404.json()], [404, { error: 'console api disabled' }])
  t.equal((await change('PUT', { api_enabled: true })).status, 404)
  t.equal((await change('PUT', { api_enabled: true }, TOKEN)).status, 200)
  t.same(await read(), ALL)
  const off = setup({ ...BASE, consoleApiEnabled: false })
  t.equal((await off.change('PUT', { api_enabled: true }, TOKEN)).status, 404, 'a setting is a setting')
})
