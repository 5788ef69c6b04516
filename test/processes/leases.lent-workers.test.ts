import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { LentWorkers } from '../../lib/processes/leases.ts'
import type { WorkerMessage } from '../../lib/processes/link.ts'
import { type StartedWorker, WorkerEnd, type WorkerExit, type WorkerSource } from '../../lib/runtime/socket-worker.ts'
import type { LentWorker } from '../../lib/runtime/dispatcher.ts'
import { makeFn } from '../helpers/fn.ts'

const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

/** A worker as a daemon has it, and what was done to it. */
function createWorker(id: string) {
  const kills: number[] = []
  const end = new WorkerEnd()
  const started = {
    ...{ id, uri: `unix:/tmp/${id}`, isShared: false, trust: null, socketIndex: 2, pid: 77 },
    kill: (graceMs: number) => kills.push(graceMs),
    ended: end.ended,
  } as unknown as StartedWorker
  return { started, kills, exit: (exit: WorkerExit) => end.settle(exit) }
}

/** The workers of one front. `next` is what the daemon does when one is asked for. */
function createBed(next: WorkerSource['startWorker'] | null, isKnown = true) {
  const fn = makeFn()
  const told: WorkerMessage[] = []
  const programs: (string | null)[] = []
  /** Those in the list of workers. */
  const listed = new Set<LentWorker>()
  const lent = new LentWorkers({
    clock: systemClock,
    dispatcher: {
      lend: worker => {
        listed.add(worker)
        return () => listed.delete(worker)
      },
    },
    sourceOf: (_fn, program) => {
      programs.push(program)
      return next === null ? null : { startWorker: next }
    },
    findFunction: key => (isKnown && key === fn.key ? fn : null),
    post: message => told.push(message),
  })
  const start = (ask: number, program: string | null = null): void =>
    lent.start({ kind: 'startWorker', ask, key: fn.key, program, header: '{}' })
  return { lent, told, programs, listed, start }
}

const EXIT: WorkerExit = { code: 3, signal: null, reason: 'exited with code 3' }

t.test(
  '[processes/processes.16] a worker is started with its program, told where it is, and ended when the front says so',
  async t => {
    const worker = createWorker('w1')
    const asked: string[] = []
    const { lent, told, programs, listed, start } = createBed(async ({ set }) => {
      asked.push(`${set.fn.key} ${set.loadOf(1)}`)
      return worker.started
    })
    start(5, '/cache/program')
    lent.stop(5, 100)
    await turn()
    t.same(asked, [`${makeFn().key} 0`])
    t.same(programs, ['/cache/program'])
    t.same(told.splice(0), [
      {
        kind: 'worker',
        ask: 5,
        worker: { id: 'w1', uri: 'unix:/tmp/w1', isShared: false, trust: null, socketIndex: 2, pid: 77 },
      },
    ])
    t.equal(lent.size, 1)
    t.match([...listed], [{ fn: { key: makeFn().key }, socketIndex: 2, pid: 77 }])
    lent.stop(6, 1)
    lent.stop(5, 250)
    t.same(worker.kills, [250], 'this one, and once')
    worker.exit(EXIT)
    await turn()
    t.same(told, [{ kind: 'workerExit', ask: 5, exit: EXIT }])
    t.same([lent.size, listed.size], [0, 0])
    lent.stop(5, 250)
    lent.close()
    t.same(worker.kills, [250], 'one that is gone is left alone')
  },
)

t.test('[processes/processes.16] why there is no worker is told', async t => {
  const failing = createBed(() => Promise.reject(new GatewayError('RUNTIME_DOWN', 'node daemon is down')))
  failing.start(1)
  const broken = createBed(() => Promise.reject(new Error('secret path')))
  broken.start(1)
  const none = createBed(null)
  none.start(1)
  const gone = createBed(() => t.fail('asked for') as never, false)
  gone.start(1)
  await turn()
  t.match(failing.told, [{ kind: 'noWorker', ask: 1, error: /"RUNTIME_DOWN".*node daemon is down/ }])
  t.match(broken.told, [{ kind: 'noWorker', ask: 1 }])
  t.match(none.told, [{ kind: 'noWorker', ask: 1, error: /RUNTIME_DOWN/ }], 'its workers live in one process')
  t.match(gone.told, [{ kind: 'noWorker', ask: 1, error: /RUNTIME_DOWN/ }], 'a reload took the function away')
  for (const { lent, listed } of [failing, broken, none, gone]) t.same([lent.size, listed.size], [0, 0])
})

t.test('[processes/processes.16] workers of a front that is gone end, those that just start too', async t => {
  const [running, starting] = [createWorker('w1'), createWorker('w2')]
  const waiting: ((worker: StartedWorker) => void)[] = []
  const { lent, told, listed, start } = createBed(() => new Promise(resolve => waiting.push(resolve)))
  start(1)
  start(2)
  waiting[0]!(running.started)
  await turn()
  t.equal(lent.size, 1)
  lent.close()
  t.same(running.kills, [0])
  waiting[1]!(starting.started)
  await turn()
  t.same(starting.kills, [0])
  t.equal(listed.size, 1, 'only the one whose end is still to be told')
  t.same(
    told.map(({ kind, ask }) => `${kind} ${ask}`),
    ['worker 1'],
    'nobody is there to be told',
  )
})
