import t from 'tap'
import { followSignals } from '../../bin/stop-signals.ts'

const SIGNALS = ['SIGHUP', 'SIGINT', 'SIGTERM'] as const

t.test('[bin/dev.6] the first signal is told, the second ends the process with its code', async t => {
  for (const [second, code] of [
    ['SIGHUP', 129],
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const) {
    const exits: number[] = []
    const signals = followSignals({}, exit => exits.push(exit))
    process.emit('SIGTERM', 'SIGTERM')
    t.equal(await signals.first, 'SIGTERM')
    t.same(exits, [])
    process.emit(second, second)
    t.same(exits, [code])
    signals.forget()
  }
})

t.test('[bin/dev.6] whoever served has no listeners left, however often', async t => {
  const count = () => SIGNALS.map(signal => process.listenerCount(signal))
  const before = count()
  const warned: string[] = []
  const onWarning = ({ name }: Error) => warned.push(name)
  process.on('warning', onWarning)
  for (let times = 0; times < 20; times++) {
    const signals = followSignals({ npm_command: 'exec' })
    t.same(
      count(),
      before.map(listeners => listeners + 1),
    )
    signals.forget()
    signals.forget()
    t.same(count(), before)
  }
  // A warning is told in the next turn.
  await new Promise(setImmediate)
  process.off('warning', onWarning)
  t.same(warned, [])
})
