import t from 'tap'
import { Heap, type HeapItem } from '../../lib/core/collections.ts'
import { createRandom } from '../helpers/random.ts'

interface Item extends HeapItem {
  order: number
}

t.test(
  '[scheduler/scheduler.1] the first item of a heap is the smallest, whatever was put, moved and removed',
  async t => {
    const random = createRandom(11)
    const heap = new Heap<Item>((a, b) => a.order < b.order)
    const items = Array.from({ length: 50 }, (): Item => ({ heapIndex: -1, order: 0 }))
    const inside = new Set<Item>()
    for (let step = 0; step < 5000; step++) {
      const item = items[random(items.length)]!
      if (random(3) === 0) {
        heap.remove(item)
        inside.delete(item)
        if (item.heapIndex !== -1) return t.fail(`step ${step}: index ${item.heapIndex} of a removed item`)
      } else {
        item.order = random(100)
        heap.put(item)
        inside.add(item)
      }
      const least = Math.min(...[...inside].map(({ order }) => order))
      if (heap.size !== inside.size || (heap.first?.order ?? Infinity) !== least) return t.fail(`step ${step}`)
    }
    t.ok(heap.size > 0)
  },
)
