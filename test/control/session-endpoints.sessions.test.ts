import t from 'tap'
import { MAX_SESSIONS, Sessions } from '../../lib/control/session-endpoints.ts'
import { FakeClock } from '../helpers/clock.ts'

const USER = { user: 'ann', rights: 'user' } as const

function setup() {
  const clock = new FakeClock()
  return { clock, sessions: new Sessions({ clock, ttlMs: 60_000 }) }
}

t.test(
  '[control/session.1, control/session.3] a session is found by its id until its time is over or it is ended',
  t => {
    const { clock, sessions } = setup()
    const id = sessions.begin(USER)
    t.match(id, /^[\w-]{43}$/)
    t.not(sessions.begin(USER), id)
    t.same(sessions.find(`fngw_session=${id}`), USER)
    t.same(sessions.find(`a=b; fngw_session=x; fngw_session=${'A'.repeat(43)};  fngw_session=${id} ;c`), USER)
    const none = [null, '', id, `fngw_session=${id}x`, `xfngw_session=${id}`, 'fngw_session']
    for (const cookie of none) t.equal(sessions.find(cookie), null, String(cookie))
    clock.advance(59_999)
    t.same(sessions.find(`fngw_session=${id}`), USER)
    clock.advance(1)
    t.equal(sessions.find(`fngw_session=${id}`), null)
    const other = sessions.begin({ user: 'admin', rights: 'admin' })
    sessions.end(`fngw_session=${other}`)
    sessions.end(null)
    t.equal(sessions.find(`fngw_session=${other}`), null)
    t.end()
  },
)

t.test('[control/session.3] of more than 1000 sessions the oldest ends', t => {
  const { sessions } = setup()
  const first = sessions.begin(USER)
  const second = sessions.begin(USER)
  for (let i = 2; i <= MAX_SESSIONS; i++) sessions.begin(USER)
  t.equal(sessions.find(`fngw_session=${first}`), null)
  t.same(sessions.find(`fngw_session=${second}`), USER)
  t.end()
})

t.test("[control/session.2] the cookie is no script's, no other site's, and of https alone where that is used", t => {
  const { sessions } = setup()
  t.equal(sessions.toSetCookie('id', false), 'fngw_session=id; Path=/; HttpOnly; SameSite=Lax; Max-Age=60')
  t.equal(sessions.toSetCookie('id', true), 'fngw_session=id; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure')
  t.equal(sessions.toSetCookie(null, false), 'fngw_session=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0')
  t.end()
})
