import { EventEmitter } from 'node:events'
import type { FSWatcher } from 'node:fs'
import t from 'tap'
import { watchEnvFiles } from '../../lib/discovery/watch.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

function setUp(t: { teardown: (fn: () => void) => void }, isLimited = false) {
  const tree = makeTree({ '.env': 'A=1' })
  const clock = new FakeClock()
  const listeners: ((event: string, fileName: string | null) => void)[] = []
  let calls = 0
  const close = watchEnvFiles({
    clock,
    folder: tree.root,
    names: ['.env', '.env.local'],
    onChange: async () => {
      calls++
    },
    watchFolder: (_path, listener) => {
      if (isLimited) throw Object.assign(new Error('no space'), { code: 'ENOSPC' })
      listeners.push(listener)
      return Object.assign(new EventEmitter(), { close: () => listeners.splice(0) }) as unknown as FSWatcher
    },
  })
  t.teardown(() => {
    close()
    tree.cleanup()
  })
  return {
    tree,
    clock,
    close,
    fire: (name: string | null) => listeners[0]?.('change', name),
    calls: () => calls,
    listeners,
  }
}

t.test('[config/function-env.13] env files of the project are watched, other files beside them are not', async t => {
  const { clock, fire, calls, close, listeners } = setUp(t)
  fire('package.json')
  clock.advance(1000)
  t.equal(calls(), 0)
  fire('.env')
  fire('.env.local')
  clock.advance(24)
  t.equal(calls(), 0, 'changes together are one call')
  clock.advance(1)
  t.equal(calls(), 1)
  close()
  t.equal(listeners.length, 0)
  t.equal(clock.pending, 0, 'nothing is left running')
})

t.test('[config/function-env.13] where nothing can be watched they are looked at', async t => {
  const { tree, clock, calls } = setUp(t, true)
  clock.advance(5000)
  t.equal(calls(), 0)
  tree.write({ '.env.local': 'B=1' })
  clock.advance(1025)
  t.equal(calls(), 1, 'a new file')
  await Promise.resolve()
  tree.remove('.env')
  clock.advance(1025)
  t.equal(calls(), 2, 'one that is gone')
  await Promise.resolve()
  clock.advance(5000)
  t.equal(calls(), 2)
})
