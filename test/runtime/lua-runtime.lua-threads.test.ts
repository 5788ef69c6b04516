import { once } from 'node:events'
import t from 'tap'
import { LuaRuntime } from '../../lib/runtime/lua-runtime.ts'
import { until } from '../helpers/worker-client.ts'
import type { Budget } from '../../runtimes/lua/budget.mjs'
import { Guard } from '../../runtimes/lua/guard.mjs'

/** The threads of a runtime without functions. @param totalMb - most megabytes of all together */
function makeThreads(totalMb: number): LuaRuntime {
  const facts = { functionsRoot: '/srv', production: false, toContext: () => ({}), toPackDirs: () => [] }
  return new LuaRuntime({ workerMemoryMb: 64, luaMemoryMb: totalMb }, facts)
}

type User = Parameters<LuaRuntime['take']>[0]

const user: User = { activity: 'idle', stop: () => {} }

t.test('[runtime/lua-runtime.2] one started thread is kept in reserve, as long as one is needed', async t => {
  const threads = makeThreads(256)
  t.teardown(() => threads.close())
  t.equal(threads.threadCount, 0)
  threads.start()
  threads.start()
  t.equal(threads.threadCount, 1, 'one, however often it is asked for')
  const { thread, progress } = threads.take(user)
  t.equal(threads.threadCount, 1, 'the spare one was taken')
  t.same([...progress], [0, 0])
  const other = threads.take(user)
  t.not(other.thread, thread)
  t.equal(threads.threadCount, 2, 'without a spare one a new one is started')
  threads.start()
  t.equal(threads.threadCount, 3)
  const spare = threads.take(user).thread
  threads.start()
  threads.rest()
  await Promise.all([spare.terminate(), thread.terminate()])
  t.ok(threads.threadCount <= 2, 'ended ones do not count')
  t.equal(threads.heldMb, 0)
  await threads.close()
  t.equal(threads.threadCount, 0)
  threads.start()
  t.equal(threads.threadCount, 0, 'closed')
})

t.test('[runtime/lua-runtime.2] a thread that ended is no spare one', async t => {
  const threads = makeThreads(64)
  t.teardown(() => threads.close())
  const { thread } = threads.take(user)
  await thread.terminate()
  t.equal(threads.threadCount, 0)
  const next = threads.take(user).thread
  t.not(next, thread)
  const ended = once(next, 'exit')
  await threads.close()
  await ended
  t.equal(threads.threadCount, 0)
})

t.test('[runtime/lua-runtime.31] no more threads are ended than there have to be, however long that takes', async t => {
  const limitMb = 64
  const threads = makeThreads(limitMb)
  t.teardown(() => threads.close())
  // Each takes some megabytes for itself: together more than all may, and each more than its share.
  const users: User[] = []
  while (threads.heldMb <= limitMb) {
    const added: User = { activity: 'idle', stop: () => Object.assign(added, { activity: 'ending' }) }
    users.push(added)
    const { progress } = threads.take(added)
    await until(() => progress[1]! > 0, 30_000)
  }
  const ended = () => users.filter(({ activity }) => activity === 'ending').length
  threads.relieve()
  const first = ended()
  t.ok(first >= 1 && first < users.length, `${first} of ${users.length}`)
  for (let i = 0; i < 10; i++) threads.relieve()
  t.equal(ended(), first, 'they are on their way')
})

t.test(
  '[runtime/lua-runtime.31] what a thread holds is said between calls, not after each of many small ones',
  async t => {
    const said: number[] = []
    const isShort = { value: false }
    const budget = {
      limitMb: 1,
      isExceededWith: (bytes: number) => {
        said.push(bytes)
        return isShort.value
      },
    } as unknown as Budget
    const guard = new Guard(1e12, budget, () => {})
    for (const now of [1000, 1001, 1004.9]) guard.end(now)
    t.equal(said.length, 1, 'once for all that came at once')
    guard.end(1005)
    t.equal(said.length, 2)
    guard.begin(Number.POSITIVE_INFINITY)
    guard.poll()
    const looks = said.length
    guard.end(1005.1)
    t.equal(said.length, looks + 1, 'a call that was large enough to be looked at is looked at in the end')
    isShort.value = true
    guard.end(1010.1)
    t.equal(said.length, looks + 3, 'what is over the limit is collected, and what is left is said')
    t.ok(said.every(bytes => bytes > 0))
  },
)
