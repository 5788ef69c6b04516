import t from 'tap'
import { type Changed, Reloader, TREE_RETRY_MS } from '../../lib/gateway/catalog-loader.ts'
import { FakeClock } from '../helpers/clock.ts'

/** A reloader whose loads end when the test says so. */
function setup() {
  const clock = new FakeClock()
  const loads: { changed: string[] | null; cause: string; end: (outcome: boolean | Error) => void }[] = []
  const failures: unknown[] = []
  const watches: { tell: (paths: ReadonlySet<string>) => unknown; isClosed: boolean; setReady: () => void }[] = []
  const reloader = new Reloader({
    clock,
    load: (changed: Changed, cause) =>
      new Promise((resolve, reject) => {
        const end = (outcome: boolean | Error) => (outcome instanceof Error ? reject(outcome) : resolve(outcome))
        loads.push({ changed: changed === null ? null : [...changed].sort(), cause, end })
      }),
    watch: onChange => {
      let setReady = () => {}
      const ready = new Promise<void>(resolve => {
        setReady = resolve
      })
      const watch = { tell: onChange, isClosed: false, setReady }
      watches.push(watch)
      return {
        ready,
        close: () => {
          watch.isClosed = true
        },
      }
    },
    onFailure: error => failures.push(error),
  })
  const asked = () => loads.map(({ changed, cause }) => [changed, cause])
  return { clock, loads, asked, failures, watches, reloader }
}

const settled = () => new Promise<void>(resolve => setImmediate(resolve))

t.test('[gateway/gateway.14] reloads asked for meanwhile are one more, with all their changes', async t => {
  const { reloader, loads, asked } = setup()
  const first = reloader.reload(new Set(['a']), 'watch')
  const second = reloader.reload(new Set(['b']), 'watch')
  const third = reloader.reload(new Set(['c']), 'watch')
  t.equal(second, third, 'one promise for those who wait')
  t.same(asked(), [[['a'], 'watch']])
  loads[0]!.end(true)
  await first
  await settled()
  t.same(asked()[1], [['b', 'c'], 'watch'])
  const whole = reloader.reload(null, 'api')
  loads[1]!.end(true)
  await settled()
  t.same(asked()[2], [null, 'api'])
  loads[2]!.end(true)
  await Promise.all([second, whole])
  t.equal(loads.length, 3)
})

t.test('[gateway/gateway.14] one that asks for everything makes the waiting one whole, in either order', async t => {
  for (const wishes of [
    [new Set(['b']), null],
    [null, new Set(['b'])],
  ]) {
    const { reloader, loads, asked } = setup()
    const all = [reloader.reload(new Set(['a']), 'watch'), ...wishes.map(changed => reloader.reload(changed, 'api'))]
    loads[0]!.end(true)
    await settled()
    t.same(asked()[1], [null, 'api'])
    loads[1]!.end(true)
    await Promise.all(all)
  }
})

t.test('[gateway/gateway.16] a failed reload rejects for who asked, and the next one runs', async t => {
  const { reloader, loads } = setup()
  const first = reloader.reload(null, 'api')
  const second = reloader.reload(null, 'api')
  loads[0]!.end(new Error('disk'))
  await t.rejects(first, { message: 'disk' })
  await settled()
  loads[1]!.end(true)
  await second
})

t.test('[gateway/gateway.16] a tree that could not be read whole is read again later, once', async t => {
  const { reloader, loads, asked, clock, failures } = setup()
  for (let i = 0; i < 2; i++) {
    const reload = reloader.reload(null, 'api')
    loads[i]!.end(false)
    await reload
  }
  t.equal(clock.pending, 1)
  clock.advance(TREE_RETRY_MS - 1)
  t.equal(loads.length, 2)
  clock.advance(1)
  t.same(asked()[2], [null, 'retry'])
  loads[2]!.end(new Error('disk'))
  await settled()
  t.match(failures, [{ message: 'disk' }], 'nobody waits: it is told')
})

t.test('[gateway/gateway.12] a watch tells its changes, and what was saved before it is read', async t => {
  const { reloader, loads, asked, watches, failures } = setup()
  t.equal(reloader.isWatching, false)
  const watching = reloader.watch()
  t.equal(reloader.isWatching, true)
  await settled()
  t.equal(loads.length, 0, 'not before every folder is watched')
  watches[0]!.setReady()
  await settled()
  t.same(asked(), [[null, 'watch']])
  loads[0]!.end(true)
  await watching
  await reloader.watch()
  t.equal(watches.length, 1, 'one watcher')
  const told = Promise.resolve(watches[0]!.tell(new Set(['x.js'])))
  t.same(asked()[1], [['x.js'], 'watch'])
  loads[1]!.end(new Error('gone'))
  await told
  t.match(failures, [{ message: 'gone' }])
})

t.test('[gateway/gateway.9] close waits for the reload that runs, and none begins after it', async t => {
  const { reloader, loads, watches, clock } = setup()
  void reloader.watch()
  watches[0]!.setReady()
  await settled()
  loads[0]!.end(false)
  await settled()
  t.equal(clock.pending, 1)
  const running = reloader.reload(null, 'api')
  const waiting = reloader.reload(null, 'api')
  let isClosed = false
  const closed = reloader.close().then(() => {
    isClosed = true
  })
  await settled()
  t.same([isClosed, watches[0]!.isClosed, clock.pending], [false, true, 0])
  loads[1]!.end(false)
  await Promise.all([closed, running, waiting])
  await reloader.reload(null, 'api')
  await reloader.watch()
  t.same([loads.length, watches.length, clock.pending], [2, 1, 0])
})
