import t from 'tap'
import {
  LOGIN_FAILURE_MS,
  LoginLimit,
  MAX_LOGIN_ADDRESSES,
  MAX_LOGIN_FAILURES,
} from '../../lib/control/session-endpoints.ts'
import { FakeClock } from '../helpers/clock.ts'

t.test('[control/session.4] five failures of an address in 300 s, then it waits; others do not', t => {
  const clock = new FakeClock()
  const limit = new LoginLimit(clock)
  t.same([MAX_LOGIN_FAILURES, LOGIN_FAILURE_MS], [5, 300_000])
  for (let i = 0; i < MAX_LOGIN_FAILURES; i++) t.equal(limit.begin('10.0.0.1'), null)
  t.equal(limit.begin('10.0.0.1'), LOGIN_FAILURE_MS)
  clock.advance(1000)
  t.equal(limit.begin('10.0.0.1'), LOGIN_FAILURE_MS - 1000)
  t.equal(limit.begin('10.0.0.2'), null)
  clock.advance(LOGIN_FAILURE_MS - 1000)
  t.equal(limit.begin('10.0.0.1'), null, 'the time is over')
  t.end()
})

t.test('[control/session.4] a right login is no failure, and does not forgive those before it', t => {
  const limit = new LoginLimit(new FakeClock())
  for (let i = 0; i < 20; i++) {
    t.equal(limit.begin('a'), null)
    limit.succeed('a')
  }
  for (let i = 0; i < 4; i++) limit.begin('a')
  t.equal(limit.begin('a'), null)
  limit.succeed('a')
  t.equal(limit.begin('a'), null)
  t.not(limit.begin('a'), null)
  limit.succeed('never seen')
  t.end()
})

t.test('[control/session.4] a client with a network of addresses is one client, and memory is bounded', t => {
  const limit = new LoginLimit(new FakeClock())
  for (const end of ['1', '2', 'a:b:c', 'ffff', '3']) t.equal(limit.begin(`2001:db8:1:2::${end}`), null)
  t.not(limit.begin('2001:db8:1:2:9:9:9:9'), null)
  t.equal(limit.begin('2001:db8:1:3::1'), null)
  t.equal(limit.begin('::1'), null)
  for (let i = 0; i < MAX_LOGIN_ADDRESSES; i++) limit.begin(`host-${i}`)
  t.equal(limit.begin('2001:db8:1:2::1'), null, 'forgotten')
  t.end()
})
