import t, { type Test } from 'tap'
import { OwnConsoleStore } from '../../lib/control/console-store.ts'
import { Sessions, toNetwork } from '../../lib/control/session-endpoints.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { FakeClock } from '../helpers/clock.ts'

const USER = { user: 'ann', rights: 'user' } as const
const ADMIN = { user: 'admin', rights: 'admin' } as const
const SETTINGS = {
  adminToken: 'token-1',
  consoleLoginUsername: 'ann',
  consoleLoginPasswordHash: 'hash',
  consoleSessionTtlSeconds: 60,
}

function setup(t: Test) {
  const store = new OwnConsoleStore(new FakeClock(), new OwnFolder(t.testdir({})))
  return { store, sessions: new Sessions(store, SETTINGS) }
}

t.test('[control/session.1, control/session.3] a session is found by its id until it is ended', async t => {
  const { sessions } = setup(t)
  const id = await sessions.begin(USER)
  t.match(id, /^[\w-]{43}$/)
  t.not(await sessions.begin(USER), id)
  t.same(await sessions.find(`fngw_session=${id}`), USER)
  t.same(await sessions.find(`a=b; fngw_session=x; fngw_session=${'A'.repeat(43)};  fngw_session=${id} ;c`), USER)
  const none = [null, '', id, `fngw_session=${id}x`, `xfngw_session=${id}`, 'fngw_session']
  for (const cookie of none) t.equal(await sessions.find(cookie), null, String(cookie))
  const other = await sessions.begin(ADMIN)
  await sessions.end(`fngw_session=${other}`)
  await sessions.end(null)
  t.equal(await sessions.find(`fngw_session=${other}`), null)
})

t.test('[control/session.10] a session ends when the credentials change that began it', async t => {
  const { store, sessions } = setup(t)
  const [user, admin] = [`fngw_session=${await sessions.begin(USER)}`, `fngw_session=${await sessions.begin(ADMIN)}`]
  const changes = [
    [{ adminToken: 'token-2' }, USER, null],
    [{ adminToken: null }, USER, null],
    [{ consoleLoginPasswordHash: 'other' }, null, ADMIN],
    [{ consoleLoginPasswordHash: null }, null, ADMIN],
    [{ consoleLoginUsername: 'eve' }, null, ADMIN],
    [{}, USER, ADMIN],
  ] as const
  for (const [change, wantedUser, wantedAdmin] of changes) {
    const after = new Sessions(store, { ...SETTINGS, ...change })
    t.same([await after.find(user), await after.find(admin)], [wantedUser, wantedAdmin], JSON.stringify(change))
  }
})

t.test('[control/session.10] what was written into the store without the credentials is no session', async t => {
  const { store, sessions } = setup(t)
  const id = await sessions.begin(USER)
  const key = (await import('node:crypto')).createHash('sha256').update(id).digest('base64')
  const [kept] = await store.findSessions([key])
  t.notMatch(JSON.stringify([key, kept]), id)
  for (const owner of ['admin admin', 'user eve', 'root x', '', 'admin']) {
    await store.beginSession(key, { ...kept!, owner }, 1000)
    t.equal(await sessions.find(`fngw_session=${id}`), null, owner)
  }
  await store.beginSession(key, kept!, 1000)
  t.same(await sessions.find(`fngw_session=${id}`), USER)
})

t.test('[control/session.2] scripts and other sites cannot read the cookie, and over https it is Secure', async t => {
  const { sessions } = setup(t)
  t.equal(sessions.toSetCookie('id', false), 'fngw_session=id; Path=/; HttpOnly; SameSite=Lax; Max-Age=60')
  t.equal(sessions.toSetCookie('id', true), 'fngw_session=id; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure')
  t.equal(sessions.toSetCookie(null, false), 'fngw_session=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0')
})

t.test('[control/session.4] a client with a network of addresses is one client', async t => {
  const network = toNetwork('2001:db8:1:2::1')
  for (const end of [':2', ':a:b:c', ':ffff', '9:9:9:9']) t.equal(toNetwork(`2001:db8:1:2:${end}`), network)
  t.not(toNetwork('2001:db8:1:3::1'), network)
  t.not(toNetwork('::1'), network)
  t.equal(toNetwork('10.0.0.1'), '10.0.0.1')
})
