import t from 'tap'
import { BuildStatus } from '../../bin/status-line.ts'

function setup() {
  const shown: (string | null)[] = []
  let now = 0
  let tick: (() => void) | null = null
  const status = new BuildStatus({
    show: text => shown.push(text),
    now: () => now,
    every: callback => {
      tick = callback
      return () => {
        tick = null
      }
    },
  })
  const pass = (ms: number): void => {
    now += ms
    tick?.()
  }
  return { shown, status, pass, isTurning: () => tick !== null }
}

t.test('[bin/dev.14] the line counts the seconds of each build and goes with the last one', async t => {
  const { shown, status, pass, isTurning } = setup()
  status.on({ state: 'began', key: 'go/a@default', action: 'building' })
  t.match(shown.at(-1), /^\S building go\/a@default 0 s$/)
  pass(2100)
  status.on({ state: 'began', key: 'rust/b@default', action: 'building' })
  pass(1000)
  t.match(shown.at(-1), /^\S building go\/a@default 3 s, rust\/b@default 1 s$/)
  t.not(shown.at(-1)?.[0], shown.at(-2)?.[0], 'it turns')
  status.on({ state: 'ended', key: 'go/a@default', action: 'building' })
  t.match(shown.at(-1), /building rust\/b@default 1 s$/)
  status.on({ state: 'ended', key: 'never-began', action: 'building' })
  t.equal(isTurning(), true)
  status.on({ state: 'ended', key: 'rust/b@default', action: 'building' })
  t.same([shown.at(-1), isTurning()], [null, false])
})

t.test('[bin/dev.14] closing takes the line away', async t => {
  const { shown, status, isTurning } = setup()
  status.on({ state: 'began', key: 'go/a@default', action: 'building' })
  status.close()
  t.same([shown.at(-1), isTurning()], [null, false])
})
