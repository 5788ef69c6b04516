import t, { type Test } from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { PathMap } from '../../lib/remote/worker-relay.ts'
import { StartPreparer } from '../../lib/remote/remote-daemon.ts'
import type { Preparer } from '../../lib/runtime/runtime.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[remote/daemon-server.4] paths are those of this machine, and never outside the functions folder', async t => {
  const map = new PathMap('/srv/app/', '/mnt/fns')
  t.equal(map.toHere('/srv/app/a/b.py'), '/mnt/fns/a/b.py')
  t.equal(map.toHere('/srv/app'), '/mnt/fns')
  t.equal(map.toHere('/srv/app/a/../b.py'), '/mnt/fns/b.py')
  t.equal(map.toThere('x /mnt/fns/a.py y'), 'x /srv/app/a.py y')
  t.equal(new PathMap('/srv/app', '/srv/app').isSame, true)
  for (const path of [
    '/srv/app/../x',
    '/srv/apples/x',
    '/etc/passwd',
    'a.py',
    '',
    '../x',
    '/srv/app/a\0b',
    5,
    null,
    undefined,
    ['/srv/app/x'],
  ])
    t.throws(() => map.toHere(path), /is not below the functions folder of the gateway/, JSON.stringify(path))
  for (const root of ['', '/']) t.equal(new PathMap(root || '/', '/x').toHere('/a'), '/x/a')
})

function makeBed(t: Test, preparer: Partial<Preparer> | null) {
  const tree = makeTree({ 'a/handler.py': '', 'b/handler.py': '' })
  t.teardown(() => tree.cleanup())
  const clock = new FakeClock()
  const fnOf = (name: string) =>
    makeFn({ key: `python/${name}@default`, name, runtime: 'python', entryPath: tree.path(`${name}/handler.py`) })
  const bed = { clock, tree, reloads: 0, changed: false, known: [fnOf('a')] }
  return Object.assign(bed, {
    preparer: new StartPreparer({
      runtime: 'python',
      root: tree.root,
      clock,
      preparer: preparer && ({ toStep: () => 'installing it', prepare: async () => null, ...preparer } as Preparer),
      find: key => bed.known.find(fn => fn.key === key),
      isChanged: () => bed.changed,
      reload: async () => {
        bed.reloads++
        bed.known = [fnOf('a'), fnOf('b')]
      },
    }),
  })
}

const start = (name: string, more: object = {}) => ({
  key: `python/${name}@default`,
  runtime: 'python',
  name,
  version: null,
  root: '/srv/fns',
  dir: `/srv/fns/${name}`,
  entry: `/srv/fns/${name}/handler.py`,
  ...more,
})

t.test(
  '[remote/daemon-server.4] a start is made of what lies here: no program, user or early start of the gateway counts',
  async t => {
    const { preparer, tree } = makeBed(t, null)
    t.same(await preparer.toStart(start('a', { binary: '/bin/sh', user: { uid: 0 }, early: '{}' })), {
      key: 'python/a@default',
      runtime: 'python',
      name: 'a',
      version: null,
      dir: tree.path('a'),
      entry: tree.path('a/handler.py'),
    })
    await t.rejects(preparer.toStart(start('a', { runtime: 'node' })), {
      message: 'this daemon runs python functions, not "node"',
    })
    await t.rejects(preparer.toStart(start('c')), {
      message: `c/handler.py is missing in the daemon's folder ${tree.root}`,
    })
    await t.rejects(preparer.toStart(start('a', { entry: '/etc/passwd' })), /is not below the functions folder/)
    await t.rejects(preparer.toStart(start('a', { root: undefined })), /is not below/)
  },
)

t.test('[remote/daemon-server.4] a function is made ready here; what is new or changed is read first', async t => {
  const asked: string[] = []
  const prepare: Preparer['prepare'] = async fn => {
    asked.push(fn.key)
    return '/here/program'
  }
  const bed = makeBed(t, { prepare })
  t.match(await bed.preparer.toStart(start('a')), { binary: '/here/program' })
  t.equal(bed.reloads, 0)
  t.match(await bed.preparer.toStart(start('b')), { binary: '/here/program' })
  t.equal(bed.reloads, 1)
  bed.changed = true
  await bed.preparer.toStart(start('a'))
  t.equal(bed.reloads, 2)
  t.same(asked, ['python/a@default', 'python/b@default', 'python/a@default'])
  await t.rejects(
    bed.preparer.toStart(start('a', { key: 'python/x@default' })),
    /the daemon finds no function python\/x@default/,
  )
  t.equal(bed.clock.pending, 0)
})

t.test(
  '[remote/daemon-server.4] what fails is told with its hint; what takes long goes on without the gateway',
  async t => {
    const failing = makeBed(t, {
      prepare: () =>
        Promise.reject(new GatewayError('LOAD_FAILED', 'no such package', { detail: { hint: 'mend it' } })),
    })
    await t.rejects(failing.preparer.toStart(start('a')), { message: 'no such package (mend it)' })
    const slow = makeBed(t, { prepare: () => new Promise(() => {}) })
    const answer = slow.preparer.toStart(start('a'))
    while (slow.clock.pending === 0) await new Promise(resolve => setImmediate(resolve))
    slow.clock.advance(12_000)
    await t.rejects(answer, { message: 'installing it; it goes on in the background' })
  },
)
