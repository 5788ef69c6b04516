import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { OpenCalls, RuntimeCall } from '../../lib/runtime/call.ts'
import { createRandom } from '../helpers/random.ts'

class PlainCall extends RuntimeCall {
  override onReply(): void {}
  override onChunk(): void {}
  override onEnd(): void {}
  override onLog(): void {}
  override onError(): void {}
}

t.test('[runtime/wire-protocol.4, runtime/worker-set.1] open calls have ids of their own and keep their order', t => {
  const random = createRandom(7)
  const calls = new OpenCalls()
  const model = new Map<number, RuntimeCall>()
  for (let step = 0; step < 20_000; step++) {
    // Mostly short-lived calls, some that stay while thousands of others come and go.
    if (model.size === 0 || random(100) < (model.size < 40 ? 52 : 45)) {
      const call = new PlainCall({} as FunctionVersion)
      calls.add(call)
      if (model.has(call.wireId)) t.fail(`id ${call.wireId} is taken`)
      model.set(call.wireId, call)
    } else {
      const at = random(4) === 0 ? random(model.size) : model.size - 1
      const [id, call] = [...model][at]!
      calls.remove(call)
      model.delete(id)
      if (calls.get(id) !== undefined) t.fail(`call ${id} is still there`)
    }
    if (calls.size !== model.size) t.fail(`size ${calls.size}, not ${model.size}`)
  }
  t.same(
    calls.values().map(call => call.wireId),
    [...model.keys()],
  )
  for (const [id, call] of model) t.equal(calls.get(id), call)
  const taken = calls.takeAll()
  t.equal(taken.length, model.size)
  t.equal(calls.size, 0)
  t.equal(calls.first, null)
  t.end()
})

t.test('[runtime/wire-protocol.4] behind the largest id comes 1, and an id that is still open is passed over', t => {
  const calls = new OpenCalls(0xfffffffd)
  const made = Array.from({ length: 4 }, () => new PlainCall({} as FunctionVersion))
  for (const call of made) calls.add(call)
  t.same(
    made.map(call => call.wireId),
    [0xfffffffe, 0xffffffff, 1, 2],
  )
  const old = new OpenCalls()
  const stays = new PlainCall({} as FunctionVersion)
  old.add(stays)
  const seen = new Set<number>()
  for (let i = 0; i < 100; i++) {
    const call = new PlainCall({} as FunctionVersion)
    old.add(call)
    seen.add(call.wireId)
    t.equal(old.get(call.wireId), call)
    old.remove(call)
  }
  t.equal(seen.size, 100)
  t.equal(old.get(stays.wireId), stays)
  t.equal(old.get(stays.wireId + 16), undefined)
  t.end()
})
