import t from 'tap'
import { prepareLease } from '../lib/processes-parts.ts'
import type { Preparer } from '../lib/runtime/runtime.ts'
import { makeFn } from './helpers/fn.ts'

type Parts = Parameters<typeof prepareLease>[0]

const SOURCE = { startWorker: () => Promise.reject(new Error('nobody asks')) }
const preparer = { prepare: async () => '/cache/program' } as unknown as Preparer

function toParts(settings: Partial<Parts['settings']> = {}, isWarm = true): Parts {
  const prepareStart = (_fn: unknown, program: string | null) => ({
    header: `{"program":"${program}"}`,
    source: SOURCE,
  })
  return {
    settings: { hotReload: false, isolation: 'none', runtimeSockets: {}, ...settings } as Parts['settings'],
    runtimes: {
      byName: new Map([
        ['node', { preparer: null, prepareStart }],
        ['go', { preparer, prepareStart }],
        ['lua', { preparer: null }],
      ]),
      dispatcher: { isWarm: () => isWarm },
    },
  }
}

t.test('[processes/processes.14] a lease brings the program and the start of its workers', async t => {
  t.same(await prepareLease(toParts(), makeFn()), { program: null, header: '{"program":"null"}' })
  t.same(await prepareLease(toParts(), makeFn({ runtime: 'go' })), {
    program: '/cache/program',
    header: '{"program":"/cache/program"}',
  })
})

t.test('[processes/processes.14] what only the first process can run is not leased', async t => {
  for (const [why, parts, fn] of [
    ['lua', toParts(), makeFn({ runtime: 'lua' })],
    ['a runtime that is off', toParts(), makeFn({ runtime: 'rust' })],
    ['files that may be edited', toParts({ hotReload: true }), makeFn()],
    ['users of their own', toParts({ isolation: 'user' }), makeFn()],
    ["somebody else's daemon", toParts({ runtimeSockets: { node: ['tcp://10.0.0.1:1'] } }), makeFn()],
    ['not run yet', toParts({}, false), makeFn()],
  ] as const)
    t.equal(await prepareLease(parts, fn), null, why)
})
