import t from 'tap'
import { toShed } from '../../lib/processes/balance.ts'

t.test('[processes/processes.17] who has far more connections than the others lets half of those go', async t => {
  for (const [open, shed] of [
    [[10], [0]],
    [
      [0, 0],
      [0, 0],
    ],
    [
      [8, 0],
      [0, 0],
    ],
    [
      [10, 0],
      [3, 0],
    ],
    [
      [42, 22],
      [5, 0],
    ],
    [
      [38, 26],
      [0, 0],
    ],
    [
      [120, 80, 100],
      [0, 0, 0],
    ],
    [
      [130, 70, 100],
      [15, 0, 0],
    ],
    [
      [0, 0, 0, 4000],
      [0, 0, 0, 1500],
    ],
  ] as const)
    t.same(toShed(open), shed, open.join(' '))
})
