import { execFileSync } from 'node:child_process'
import t from 'tap'
import { giveBackStart } from '../../bin/start-garbage.ts'
import { FakeClock } from '../helpers/clock.ts'

function begin(): { clock: FakeClock; told: string[]; end: () => void } {
  const clock = new FakeClock()
  const told: string[] = []
  return { clock, told, end: giveBackStart({ clock, setFlags: flags => told.push(flags) }) }
}

t.test('[bin/dev.21] for some seconds after a start the engine is told that memory counts, and no longer', async t => {
  const { clock, told, end } = begin()
  clock.advance(2999)
  t.same(told, [], 'nothing before the start is over')
  clock.advance(1)
  t.same(told, ['--optimize-for-size'])
  clock.advance(24_999)
  t.equal(told.length, 1, 'long enough for two of its looks')
  clock.advance(1)
  t.same(told.slice(1), ['--no-optimize-for-size'])
  end()
  clock.advance(100_000)
  t.equal(told.length, 2, 'once')
})

t.test('[bin/dev.21] what ends before has told the engine nothing that stays', async t => {
  const early = begin()
  early.end()
  early.clock.advance(100_000)
  t.same(early.told, [])
  const late = begin()
  late.clock.advance(5000)
  late.end()
  late.clock.advance(100_000)
  t.same(late.told, ['--optimize-for-size', '--no-optimize-for-size'])
})

t.test('[bin/dev.21] the engine knows what it is told', async t => {
  const flags = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' })
  t.match(flags, /^ +--optimize-for-size /m)
})
