import { availableParallelism } from 'node:os'
import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { createProcesses, prepareLease } from '../../lib/gateway/compose.ts'
import type { Listeners } from '../../lib/gateway/listeners.ts'
import type { PublicHandler } from '../../lib/http/public.ts'
import type { Preparer } from '../../lib/runtime/runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { serveTwice } from '../helpers/processes-bed.ts'

type Parts = Parameters<typeof prepareLease>[0]

const SOURCE = { startWorker: () => Promise.reject(new Error('nobody asks')) }
const preparer = { prepare: async () => '/cache/program' } as unknown as Preparer

function toParts(
  settings: Partial<Parts['settings']> = {},
  isWarm = true,
  loadError: GatewayError | null = null,
): Parts {
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
      dispatcher: { isWarm: () => isWarm, loadErrorOf: () => loadError },
    },
  } as unknown as Parts
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
    ['a version that cannot be loaded', toParts({}, true, new GatewayError('LOAD_FAILED', 'bad')), makeFn()],
  ] as const)
    t.equal(await prepareLease(parts, fn), null, why)
})

t.test('[processes/processes.1] with one process, and where nothing is served, none of it is loaded', async t => {
  const make = (gatewayWorkers: number | 'auto', inspect = false) =>
    createProcesses(
      {
        settings: { gatewayWorkers },
        inspect,
        admission: {},
        journal: { events: {} },
        runtimes: {},
        edge: {},
      } as unknown as Parameters<typeof createProcesses>[0],
      { endpoints: [] },
      {} as PublicHandler,
      {} as Listeners,
    )
  t.equal(await make(1), null)
  t.equal(await make(2, true), null)
  const two = await make(2)
  t.equal(two!.serving, 1, 'none before the gateway listens')
  t.equal((await make('auto')) === null, availableParallelism() === 1, 'one a processor')
})

t.test(
  '[processes/processes.1] a front is given what it needs: settings, paths of the control plane, functions',
  async t => {
    const { first, front } = await serveTwice(
      t,
      {
        'hello.js': 'export const handler = () => "hello"\n',
        'post.large.js': 'export const handler = () => "large"\n',
      },
      { defaultMaxBodyBytes: 10 },
    )
    for (const connection of [first, front]) {
      t.equal((await connection.ask('/_fn/health')).status, 200)
      t.match(await connection.ask('/hello'), { status: 200, text: '"hello"' })
      t.equal((await connection.ask('/large', { method: 'POST', body: 'x'.repeat(11) })).status, 413)
    }
    t.match((await first.ask('/_fn/metrics')).text, /fn_invocations_total\{[^}]*fn="hello"[^}]*\} 2\n/)
  },
)
