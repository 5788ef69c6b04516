import t from 'tap'
import { Metrics, Added, addTo } from '../../lib/observe/metrics.ts'
import { makeFn } from '../helpers/fn.ts'

const textOf = (metrics: Metrics): string => [...metrics.toText()].join('')

t.test('[processes/processes.6] counts go over whole and once', async t => {
  const fn = makeFn()
  const gone = makeFn({ name: 'gone' })
  const [there, here, alone] = [new Metrics(), new Metrics(), new Metrics()]
  there.functions.adopt(new Map([fn, gone].map(one => [one.key, one])))
  for (const metrics of [here, alone]) metrics.functions.adopt(new Map([[fn.key, fn]]))
  t.equal(there.take(), null)
  for (let turn = 0; turn < 3; turn++) {
    for (const metrics of [turn === 1 ? here : there, alone]) {
      metrics.request('GET', 200, fn, 3, 0)
      metrics.request('PUT', 404, null, 1, 0)
      metrics.request('GET', 503, fn, 9, 7, true)
      metrics.functions.coldStart(fn)
    }
    const taken = there.take()
    if (taken !== null) here.add(structuredClone(taken))
  }
  there.functions.count(gone, 200, 1, 0)
  here.add(there.take()!)
  t.equal(textOf(here), textOf(alone))
  t.equal(there.take(), null, 'and begins anew')
})

t.test('[processes/processes.6] named numbers go over as what was added', async t => {
  const numbers = { a: 1, b: 0 }
  const added = new Added(numbers)
  t.equal(added.take(), null)
  numbers.a = 4
  const sums = { a: 10, b: 10 }
  addTo(sums, added.take()!)
  t.same(sums, { a: 13, b: 10 })
  t.equal(added.take(), null)
})
