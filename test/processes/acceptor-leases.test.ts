import t from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { AcceptorLeases, RemoteWorkers } from '../../lib/processes/acceptor-leases.ts'
import type { FromAcceptor } from '../../lib/processes/link.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'

function createBed() {
  const fn = makeFn()
  const clock = new FakeClock()
  const told: FromAcceptor[] = []
  const tell = (message: FromAcceptor): void => void told.push(message)
  const leases = new AcceptorLeases({
    clock,
    pool: new BytePool(clock),
    workers: new RemoteWorkers(tell),
    processes: 2,
    post: tell,
    onLog: () => {},
    onFailure: () => {},
  })
  leases.adopt(new Map([[fn.key, fn]]))
  const take = (id: number, slots = 2) =>
    leases.take({ kind: 'lease', id, key: fn.key, slots, program: null, header: '{}' })
  return { fn, clock, told, leases, take }
}

t.test(
  '[processes/processes.14] a front asks for a function that it has many calls of, once within a look',
  async t => {
    const { fn, told, leases } = createBed()
    for (let at = 0; at < 31; at++) t.equal(leases.find(fn), null)
    t.same(told, [])
    for (let at = 0; at < 100; at++) leases.find(fn)
    t.same(told.splice(0), [{ kind: 'ask', key: fn.key }])
    leases.look()
    for (let at = 0; at < 31; at++) leases.find(fn)
    t.same(told, [])
    leases.find(fn)
    t.same(told, [{ kind: 'ask', key: fn.key }])
  },
)

t.test('[processes/processes.14] a lease has a worker started, and is of no use before that is ready', async t => {
  const { fn, told, leases, take } = createBed()
  take(1)
  t.match(told, [{ kind: 'startWorker', key: fn.key, program: null, header: '{}' }])
  t.equal(leases.find(fn), null, 'calls go over the line meanwhile')
  take(2)
  t.match(told.at(-1), { kind: 'returned', id: 2, used: 0 }, 'it has one')
  leases.take({ kind: 'lease', id: 3, key: 'node/gone@default', slots: 1, program: null, header: '{}' })
  t.match(told.at(-1), { kind: 'returned', id: 3, used: 0 })
})

t.test('[processes/processes.15] a recalled lease takes no call more, and gives back what runs as it ends', async t => {
  const { told, leases, take } = createBed()
  const lease = take(1)!
  lease.active += 1
  lease.active += 1
  t.same(leases.used, [[1, 2]])
  leases.leave(lease)
  told.length = 0
  leases.recall(9)
  t.same(told, [], 'somebody else')
  leases.recall(1)
  t.same(told.splice(0), [{ kind: 'returned', id: 1, used: 1 }])
  t.same(leases.used, [])
  leases.leave(lease)
  t.same(told, [{ kind: 'freed', id: 1 }])
})

t.test('[processes/processes.15] a lease ends when its function changes, and when nobody uses it', async t => {
  const { fn, clock, told, leases, take } = createBed()
  take(1)
  const returned = (): number[] => told.flatMap(message => (message.kind === 'returned' ? [message.id] : []))
  leases.adopt(new Map([[fn.key, fn]]))
  t.same(returned(), [])
  const changed = makeFn({ signature: '2' })
  leases.adopt(new Map([[fn.key, changed]]))
  t.same(returned(), [1])
  const lease = take(2)!
  lease.active += 1
  clock.advance(40_000)
  leases.look()
  t.same(returned(), [1], 'a call runs')
  leases.leave(lease)
  clock.advance(30_001)
  leases.look()
  t.same(returned(), [1, 2])
  leases.close()
})
