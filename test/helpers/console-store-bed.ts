/** The rules of a console store, for both kinds. */

import type { Test } from 'tap'
import type { ConsoleStore } from '../../lib/control/console-store.ts'
import { toUiValues, UiState } from '../../lib/control/ui-state-endpoints.ts'
import {
  LOGIN_FAILURE_MS,
  MAX_LOGIN_ADDRESSES,
  MAX_LOGIN_FAILURES,
  MAX_SESSIONS,
  UI_STORE_BYTES,
} from '../../lib/core/limits.ts'

export interface ConsoleStoreBed {
  store: ConsoleStore
  /** Lets time pass for what is kept. */
  advance: (ms: number) => Promise<void>
  /** Puts a text where the state is. */
  damage: (text: string) => Promise<void>
  /** What was set aside. */
  readUnused: () => Promise<string | null>
}

const ANN = { owner: 'user ann', proof: 'p' }
const EVE = { owner: 'user eve', proof: 'q' }
const WAIT = LOGIN_FAILURE_MS

export async function testConsoleStore(t: Test, makeBed: (t: Test) => Promise<ConsoleStoreBed>): Promise<void> {
  await t.test('[control/console-store.1] sessions end by time, by key and by owner', async t => {
    const { store, advance } = await makeBed(t)
    t.same(await store.findSessions(['a', 'b']), [null, null])
    await store.beginSession('a', ANN, 60_000)
    await store.beginSession('b', EVE, 90_000)
    t.same(await store.findSessions(['b', 'x', 'a']), [EVE, null, ANN])
    t.same(await store.findSessions([]), [])
    await advance(60_000)
    t.same(await store.findSessions(['a', 'b']), [null, EVE])
    await store.beginSession('c', EVE, 60_000)
    await store.beginSession('d', ANN, 60_000)
    await store.endSessions(['b', 'nothing'])
    await store.endSessions([])
    t.same(await store.findSessions(['b', 'c', 'd']), [null, EVE, ANN])
    await store.endSessionsOf('user eve')
    await store.endSessionsOf('user')
    t.same(await store.findSessions(['c', 'd']), [null, ANN])
  })

  await t.test('[control/console-store.1] of more than 1000 sessions the oldest ends', async t => {
    const { store } = await makeBed(t)
    await store.beginSession('first', ANN, 60_000)
    // Their order is that of their times.
    await store.beginSession('second', EVE, 60_500)
    const more = Array.from({ length: MAX_SESSIONS - 1 }, (_, i) => store.beginSession(`s${i}`, ANN, 61_000))
    await Promise.all(more)
    t.same(await store.findSessions(['first', 'second', 's0']), [null, EVE, ANN])
  })

  await t.test(
    '[control/console-store.2] five failures of a network in 300 s, then it waits; others do not',
    async t => {
      const { store, advance } = await makeBed(t)
      t.same([MAX_LOGIN_FAILURES, WAIT], [5, 300_000])
      const tries = await Promise.all(Array.from({ length: MAX_LOGIN_FAILURES }, () => store.beginLogin('a')))
      t.same(tries, Array(MAX_LOGIN_FAILURES).fill(null))
      const waits = async () => (await store.beginLogin('a'))!
      const first = await waits()
      t.ok(first > WAIT - 60_000 && first <= WAIT, String(first))
      await advance(100_000)
      const second = await waits()
      t.ok(second <= first - 100_000 && second > 0, String(second))
      t.equal(await store.beginLogin('b'), null)
      await advance(WAIT - 100_000)
      t.equal(await store.beginLogin('a'), null, 'the time is over')
    },
  )

  await t.test(
    '[control/console-store.2] a right login is no failure, and does not forgive those before it',
    async t => {
      const { store } = await makeBed(t)
      for (let i = 0; i < 20; i++) {
        t.equal(await store.beginLogin('a'), null)
        await store.succeedLogin('a')
      }
      for (let i = 0; i < 4; i++) await store.beginLogin('a')
      t.equal(await store.beginLogin('a'), null)
      await store.succeedLogin('a')
      t.equal(await store.beginLogin('a'), null)
      t.not(await store.beginLogin('a'), null)
      await store.succeedLogin('never seen')
      t.equal(await store.beginLogin('never seen'), null)
    },
  )

  await t.test(
    '[control/console-store.2] of more than 10,000 networks the one that began first is forgotten',
    async t => {
      const { store, advance } = await makeBed(t)
      for (let i = 0; i < MAX_LOGIN_FAILURES; i++) await store.beginLogin('first')
      t.not(await store.beginLogin('first'), null)
      await advance(1000)
      // In portions: a command that waits for 10,000 others takes too long.
      for (let from = 0; from < MAX_LOGIN_ADDRESSES; from += 500)
        await Promise.all(Array.from({ length: 500 }, (_, i) => store.beginLogin(`host-${from + i}`)))
      t.equal(await store.beginLogin('first'), null)
    },
  )

  await t.test('[control/console-store.3] the state is kept whole, and changes at once all count', async t => {
    const { store } = await makeBed(t)
    const state = new UiState(store)
    t.same(await state.read(), { values: {}, problem: null })
    await state.change(() => ({ a: 1, b: null }))
    t.same(await state.read(), { values: { a: 1, b: null }, problem: null }, 'null is a value of a whole')
    await state.change(values => toUiValues(values, { a: null, c: ['é"\n'] }, true))
    t.same((await state.read()).values, { b: null, c: ['é"\n'] }, 'and takes a member of a part away')
    const changes = Array.from({ length: 8 }, (_, i) => state.change(values => ({ ...values, [`k${i}`]: i })))
    await Promise.all(changes)
    t.equal(Object.keys((await state.read()).values).length, 10)
    await t.rejects(
      state.change(() => {
        throw new Error('refused')
      }),
      { message: 'refused' },
    )
    await state.change(() => ({}))
    t.same(await state.read(), { values: {}, problem: null })
    const before = await store.readState()
    t.equal(await store.writeState('{"x":1}', { ...before, isUsed: true }), true)
    t.equal(await store.writeState('{"y":1}', { ...before, isUsed: true }), false, 'it changed since')
    t.same((await state.read()).values, { x: 1 })
  })

  await t.test('[control/console-store.3] the limit is exact', async t => {
    const { store } = await makeBed(t)
    const state = new UiState(store)
    const most = 'x'.repeat(UI_STORE_BYTES - '{"a":""}'.length)
    await state.change(() => toUiValues({}, { a: most }, false))
    t.same(await state.read(), { values: { a: most }, problem: null })
    t.throws(() => toUiValues({}, { a: `${most}x` }, false), { code: 'BODY_TOO_LARGE' })
    t.throws(() => toUiValues({}, { a: 'é'.repeat(UI_STORE_BYTES / 2) }, false), { code: 'BODY_TOO_LARGE' }, 'bytes')
    for (const wrong of ['x', 1, true, []]) t.throws(() => toUiValues({}, wrong, false), { code: 'BAD_REQUEST' })
  })

  await t.test(
    '[control/console-store.4] a state that cannot be used is set aside when something is written',
    async t => {
      for (const text of ['{', '7', '{"a":1}{"b":2}', `{"a":"${'x'.repeat(UI_STORE_BYTES)}"}`]) {
        const { store, damage, readUnused } = await makeBed(t)
        await damage(text)
        const state = new UiState(store)
        const { values, problem } = await state.read()
        t.same(values, {})
        t.match(problem, `${store.statePlace} is not used: it `)
        await state.change(values => ({ ...values, b: 2 }))
        t.same(await state.read(), { values: { b: 2 }, problem: null })
        t.equal(await readUnused(), text)
      }
    },
  )
}
