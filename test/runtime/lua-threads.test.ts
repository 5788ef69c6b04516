import { once } from 'node:events'
import t from 'tap'
import { LuaThreads } from '../../lib/runtime/lua-threads.ts'

const user = { isIdle: true, stop: () => {} }

t.test('[runtime/lua-runtime.2] one started thread is kept in reserve, as long as one is needed', async t => {
  const threads = new LuaThreads(64, 256)
  t.teardown(() => threads.close())
  t.equal(threads.count, 0)
  threads.keepSpare(true)
  threads.keepSpare(true)
  t.equal(threads.count, 1, 'one, however often it is asked for')
  const { thread, progress } = threads.take(user)
  t.equal(threads.count, 1, 'the spare one was taken')
  t.same([...progress], [0, 0])
  const other = threads.take(user)
  t.not(other.thread, thread)
  t.equal(threads.count, 2, 'without a spare one a new one is started')
  threads.keepSpare(true)
  t.equal(threads.count, 3)
  const spare = threads.take(user).thread
  threads.keepSpare(true)
  threads.keepSpare(false)
  await Promise.all([spare.terminate(), thread.terminate()])
  t.ok(threads.count <= 2, 'ended ones do not count')
  t.equal(threads.heldMb, 0)
  await threads.close()
  t.equal(threads.count, 0)
  threads.keepSpare(true)
  t.equal(threads.count, 0, 'closed')
})

t.test('[runtime/lua-runtime.2] a thread that ended is no spare one', async t => {
  const threads = new LuaThreads(64, 64)
  t.teardown(() => threads.close())
  const { thread } = threads.take(user)
  await thread.terminate()
  t.equal(threads.count, 0)
  const next = threads.take(user).thread
  t.not(next, thread)
  const ended = once(next, 'exit')
  await threads.close()
  await ended
  t.equal(threads.count, 0)
})
