import t from 'tap'
import { OutputBudget } from '../../lib/observe/function-output.ts'
import { FakeClock } from '../helpers/clock.ts'

const lines = (count: number): string => 'x\n'.repeat(count)
const countOf = (text: string): number => text.split('\n').filter(line => line === 'x').length

t.test(
  '[observe/log-store.11] 10,000 lines at once, then 2,000 a second; what is dropped is said in its place',
  async t => {
    const clock = new FakeClock()
    const budget = new OutputBudget(clock)
    const first = budget.take('a', lines(12_000))
    t.equal(countOf(first), 10_000)
    t.match(first, /\n\[more than 2000 lines a second: output dropped\]\n$/)
    t.equal(budget.take('a', lines(5)), '', 'nothing is left')
    clock.advance(1000)
    const second = budget.take('a', lines(3000))
    t.match(second, /^\[4010 characters of output dropped\]\nx\n/)
    t.equal(countOf(second), 2000)
    clock.advance(3_600_000)
    t.equal(countOf(budget.take('a', lines(20_000))), 10_000, 'no more is saved up')
  },
)

t.test('[observe/log-store.11] a flood of one costs the others nothing', async t => {
  const budget = new OutputBudget(new FakeClock())
  budget.take('a', lines(50_000))
  t.equal(budget.take('b', 'hello'), 'hello')
  t.equal(budget.take('b', ''), '')
  t.equal(budget.take('b', 'no end of line\nhalf'), 'no end of line\nhalf')
})

t.test('[observe/log-store.11] any number of writers costs a fixed amount of memory', async t => {
  const budget = new OutputBudget(new FakeClock())
  budget.take('first', lines(20_000))
  for (let i = 0; i < 10_000; i++) budget.take(`w${i}`, 'x')
  t.equal(budget.take('first', 'x\n'), 'x\n', 'forgotten, and so begins anew')
})
