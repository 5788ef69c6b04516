import { scryptSync, pbkdf2Sync } from 'node:crypto'
import t from 'tap'
import { Credentials, MAX_PASSWORD_CHECKS } from '../../lib/control/session-endpoints.ts'

const SALT = Buffer.alloc(16, 7)
const SCRYPT = `scrypt:16384:8:1:${SALT.toString('hex')}:${scryptSync('pässword', SALT, 32).toString('hex')}`
const PBKDF2 = `pbkdf2-sha256:100000:${SALT.toString('hex')}:${pbkdf2Sync('old', SALT, 100_000, 32, 'sha256').toString('hex')}`

const settings = { adminToken: 'token-1', consoleLoginUsername: 'ann', consoleLoginPasswordHash: SCRYPT }

t.test('[control/session.1, control/session.6] a name with its password, or the token', async t => {
  const credentials = new Credentials(settings)
  t.same(await credentials.check({ username: 'ann', password: 'pässword' }), { user: 'ann', rights: 'user' })
  t.same(await credentials.check({ token: 'token-1' }), { user: 'admin', rights: 'admin' })
  for (const given of [
    { username: 'ann', password: 'password' },
    { username: 'Ann', password: 'pässword' },
    { username: 'bob', password: 'pässword' },
    { token: 'token-' },
    { token: 'pässword' },
  ])
    t.equal(await credentials.check(given), null, JSON.stringify(given))
  const old = new Credentials({ ...settings, consoleLoginPasswordHash: PBKDF2 })
  t.match(await old.check({ username: 'ann', password: 'old' }), { user: 'ann' })
  t.equal(await old.check({ username: 'ann', password: 'new' }), null)
  const none = new Credentials({ ...settings, adminToken: null, consoleLoginPasswordHash: null })
  t.equal(await none.check({ username: 'ann', password: 'pässword' }), null)
  t.equal(await none.check({ token: '' }), null)
})

t.test('[control/session.5] passwords are checked one after the other, and only so many wait', async t => {
  const credentials = new Credentials(settings)
  const checks = Array.from({ length: MAX_PASSWORD_CHECKS + 1 }, () =>
    credentials.check({ username: 'ann', password: 'wrong' }).catch((error: { status: number }) => error.status),
  )
  const results = await Promise.all(checks)
  t.same(results, [...Array(MAX_PASSWORD_CHECKS).fill(null), 429])
  t.match(await credentials.check({ username: 'ann', password: 'pässword' }), { user: 'ann' }, 'and then again')
})
