import t from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { Descriptors } from '../../lib/core/host.ts'
import { createCalls, type GatewayContext } from '../../lib/gateway/compose.ts'
import { Journal } from '../../lib/observe/journal.ts'
import type { Runtimes } from '../../lib/runtime/runtimes.ts'
import { FakeRuntime } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'

t.test(
  '[gateway/gateway.7, invocation/admission.1] calls of every door go through one admission and are counted',
  async t => {
    const fn = makeFn({ name: 'a' })
    const dispatcher = new FakeRuntime()
    const context = {
      settings: { controlPort: null },
      clock: systemClock,
      descriptors: new Descriptors(),
      journal: new Journal({ clock: systemClock, functionsRoot: null, accessLog: false }),
      catalog: () => ({ discovery: { functions: [fn] }, functions: new Map([[fn.key, fn]]) }),
    } as unknown as GatewayContext
    const parts = createCalls(context, {
      runtimes: { dispatcher, byName: new Map() } as unknown as Runtimes,
      // No function here has a schema.
      schemas: undefined as never,
      listening: () => [],
    })
    parts.admission.adopt(new Map([[fn.key, fn]]))
    parts.metrics.functions.adopt(new Map([[fn.key, fn]]))
    t.match(await parts.calls.byName('a', {}), { status: 200, error: null })
    t.same(await parts.calls.ping(fn), { status: 200, error: null })
    t.match(dispatcher.calls.length, 2)
    t.match(parts.admission.snapshot(), [{ key: fn.key, active: 0 }])
    await parts.edge.close(0)
  },
)
