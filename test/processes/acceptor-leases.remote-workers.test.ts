import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { LentWorkers } from '../../lib/processes/leases.ts'
import type { FromAcceptor, WorkerMessage } from '../../lib/processes/link.ts'
import { RemoteWorkers } from '../../lib/processes/acceptor-leases.ts'
import type { LentWorker } from '../../lib/runtime/dispatcher.ts'
import { NO_TRUST } from '../../lib/runtime/worker-socket.ts'
import { type AskedWorker, type StartedWorker, WorkerEnd, type WorkerExit } from '../../lib/runtime/socket-worker.ts'
import { makeFn } from '../helpers/fn.ts'

const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

/** Both ends, joined; what starts workers is the test. */
function createBed(start: (fn: FunctionVersion, program: string | null) => Promise<StartedWorker>) {
  const fn = makeFn()
  const remote = new RemoteWorkers(message => handle(message))
  const counted = new Set<LentWorker>()
  const lend = (worker: LentWorker) => {
    counted.add(worker)
    return () => counted.delete(worker)
  }
  const lent = new LentWorkers({
    clock: systemClock,
    dispatcher: { lend },
    sourceOf: (_fn, program) => ({ startWorker: asked => start(asked.set.fn, program) }),
    findFunction: key => (key === fn.key ? fn : null),
    post: (message: WorkerMessage) => remote.handle(structuredClone(message)),
  })
  const handle = (message: FromAcceptor): void => {
    if (message.kind === 'startWorker') lent.start(message)
    else if (message.kind === 'stopWorker') lent.stop(message.ask, message.graceMs)
  }
  const asked: AskedWorker = { set: { fn, loadOf: () => 0 }, socketIndex: 1 }
  const ask = (one = fn) =>
    remote.sourceOf('/program', '{}').startWorker(one === fn ? asked : { ...asked, set: { ...asked.set, fn: one } })
  return { fn, remote, lent, ask, asked, counted }
}

interface Fake {
  started: StartedWorker
  kills: number[]
  exit: (exit: WorkerExit) => void
}

function createWorker(): Fake {
  const kills: number[] = []
  const end = new WorkerEnd()
  const started = {
    id: 'w1',
    uri: 'unix:/w1',
    isShared: false,
    trust: NO_TRUST,
    socketIndex: 2,
    pid: 99,
    kill: (graceMs: number) => void kills.push(graceMs),
    ended: end.ended,
  }
  return { started, kills, exit: exit => end.settle(exit) }
}

t.test(
  '[processes/processes.16] a front has its workers started, stopped and told of by the first process',
  async t => {
    const fake = createWorker()
    const programs: (string | null)[] = []
    const { fn, ask, lent, asked, counted } = createBed(async (_fn, program) => {
      programs.push(program)
      return fake.started
    })
    const worker = await ask()
    t.match(worker, { id: 'w1', uri: 'unix:/w1', socketIndex: 2, pid: 99 })
    t.same([asked.socketIndex, programs, lent.size], [2, ['/program'], 1])
    t.match([...counted], [{ fn, socketIndex: 2, pid: 99 }])
    worker.kill(5)
    t.same(fake.kills, [5])
    const exits: WorkerExit[] = []
    void worker.ended.then(exit => exits.push(exit))
    const exit = { code: 1, signal: null, reason: 'exited with code 1' }
    fake.exit(exit)
    await turn()
    t.same(exits, [exit])
    void worker.ended.then(late => exits.push(late))
    t.equal(exits.length, 1, 'never from inside the call')
    await turn()
    t.same(exits, [exit, exit])
    worker.kill(0)
    t.same([fake.kills, lent.size, counted.size], [[5], 0, 0], 'it is gone')
  },
)

t.test(
  '[processes/processes.16] the end of a front is the end of its workers, also of one that is just starting',
  async t => {
    const [one, two] = [createWorker(), createWorker()]
    let finish: (worker: StartedWorker) => void = () => {}
    let count = 0
    const { ask, lent } = createBed(() => {
      count += 1
      return count === 1 ? Promise.resolve(one.started) : new Promise(resolve => (finish = resolve))
    })
    await ask()
    void ask()
    lent.close()
    t.same(one.kills, [0])
    finish(two.started)
    await turn()
    t.same(two.kills, [0])
  },
)

t.test('[processes/processes.16] why a worker cannot be started arrives', async t => {
  const { ask } = createBed(async () => {
    throw new GatewayError('RUNTIME_DOWN', 'runtime down', { detail: { hint: 'node: gone' } })
  })
  await t.rejects(ask(), { code: 'RUNTIME_DOWN', detail: { hint: 'node: gone' } })
  await t.rejects(ask(makeFn({ name: 'other' })), { code: 'RUNTIME_DOWN' })
})
