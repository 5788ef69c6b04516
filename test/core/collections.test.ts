import t from 'tap'
import { compareLists, countUpTo, mergeSorted } from '../../lib/core/collections.ts'
import { compareText } from '../../lib/core/text.ts'

t.test('[router/route-table.22] two lists differ in what one of them has alone, wherever it stands', async t => {
  const cases: [before: string, after: string, gone: string, fresh: string][] = [
    ['', '', '', ''],
    ['abc', 'abc', '', ''],
    ['', 'abc', '', 'abc'],
    ['abc', '', 'abc', ''],
    ['abc', 'axc', 'b', 'x'],
    ['abc', 'abcd', '', 'd'],
    ['abc', 'xabc', '', 'x'],
    ['abcd', 'abd', 'c', ''],
    ['abcdefg', 'axcdeyg', 'bf', 'xy'],
    ['abc', 'cba', '', ''],
    ['abcd', 'dxba', 'c', 'x'],
  ]
  for (const [before, after, gone, fresh] of cases) {
    const { gone: lost, fresh: found } = compareLists([...before], [...after])
    t.same([lost.join(''), found.join('')], [gone, fresh], `${before} to ${after}`)
  }
})

t.test('[router/route-table.22] two sorted lists become one', async t => {
  const cases = [
    ['', ''],
    ['abc', ''],
    ['', 'abc'],
    ['ace', 'bdf'],
    ['abc', 'def'],
    ['def', 'abc'],
    ['aab', 'ab'],
  ] as const
  for (const [a, b] of cases)
    t.same(mergeSorted([...a], [...b], compareText), [...`${a}${b}`].sort(compareText), `${a} and ${b}`)
})

t.test('[router/route-table.22] a new item among ten thousand is compared with a few of them', async t => {
  const list = Array.from({ length: 10_000 }, (_, i) => i * 2)
  let count = 0
  const compare = (a: number, b: number) => {
    count += 1
    return a - b
  }
  for (const [item, upTo] of [
    [-1, 0],
    [0, 1],
    [1, 1],
    [9_999, 5000],
    [19_998, 10_000],
    [20_000, 10_000],
  ] as const)
    t.equal(countUpTo(list, item, compare), upTo, `${item}`)
  t.equal(countUpTo(list, 4, compare, 7), 7, 'so many are before it for sure')
  count = 0
  t.same(mergeSorted(list, [5, 19_999], compare), [0, 2, 4, 5, ...list.slice(3), 19_999])
  t.ok(count <= 30, `${count} looks`)
})
