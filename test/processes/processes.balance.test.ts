import t from 'tap'
import { toKept } from '../../lib/processes/processes.ts'

t.test(
  '[processes/processes.17] who has far more connections than the others keeps as many as the average',
  async t => {
    for (const [open, kept] of [
      [[10], [null]],
      [
        [0, 0],
        [null, null],
      ],
      [
        [8, 0],
        [null, null],
      ],
      [
        [10, 0],
        [5, null],
      ],
      [
        [43, 22],
        [33, null],
      ],
      [
        [38, 26],
        [null, null],
      ],
      [
        [120, 80, 100],
        [null, null, null],
      ],
      [
        [130, 70, 100],
        [100, null, null],
      ],
      [
        [0, 0, 0, 4000],
        [null, null, null, 1000],
      ],
    ] as const)
      t.same(toKept(open), kept, open.join(' '))
  },
)
