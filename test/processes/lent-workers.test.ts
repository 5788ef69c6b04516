import t from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { LentWorkers } from '../../lib/processes/lent-workers.ts'
import type { WorkerMessage } from '../../lib/processes/messages.ts'
import { makeFn } from '../helpers/fn.ts'

const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

t.test(
  '[processes/processes.16] a runtime whose workers live in one process lends none, and strange frames harm nobody',
  async t => {
    const fn = makeFn()
    const told: WorkerMessage[] = []
    const lent = new LentWorkers({
      clock: systemClock,
      dispatcher: { lend: () => t.fail('nothing is lent') as never },
      sourceOf: () => null,
      findFunction: () => fn,
      tell: message => told.push(message),
    })
    lent.start({ kind: 'startWorker', ask: 1, key: fn.key, program: null, header: '{}' })
    await turn()
    t.match(told, [{ kind: 'noWorker', ask: 1, error: /RUNTIME_DOWN/ }])
    lent.stop(7, 0)
    lent.close()
    t.equal(lent.size, 0)
  },
)
