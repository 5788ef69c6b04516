import t from 'tap'
import type { Policy } from '../../lib/core/catalog.ts'
import { toAdmissionLimits } from '../../lib/invocation/policy.ts'
import { TEST_POLICY } from '../helpers/fn.ts'

/** The limits with their refusals as they are after a wait of 1.2 s. */
const shown = (policy: Policy) => {
  const limits = toAdmissionLimits(policy)
  return { ...limits, overflow: limits.overflow(0), queueTimeout: limits.queueTimeout(1200) }
}

const POOL = {
  enabled: true,
  minWarm: 0,
  maxWorkers: 3,
  maxQueue: 4,
  queueTimeoutMs: 5,
  queuePollMs: 20,
  idleTtlSeconds: 300,
  overflowStatus: 503 as const,
}

t.test('[invocation/admission.2, invocation/admission.3, invocation/admission.14] limits of a policy', async t => {
  const defaultQueue = { maxQueue: 9, timeoutMs: 50, maxWaitMs: 0 }
  t.match(shown({ ...TEST_POLICY, defaultQueue }), {
    maxWorkers: 20,
    maxQueue: 9,
    queueTimeoutMs: 50,
    overflow: { status: 429, message: 'concurrency limit reached' },
    queueTimeout: { status: 429, message: 'concurrency queue timeout', headers: { 'Retry-After': '2' } },
  })
  t.match(shown({ ...TEST_POLICY, defaultQueue, workerPool: POOL }), { maxQueue: 4, queueTimeoutMs: 5 })
  t.match(shown(TEST_POLICY), { maxWorkers: 20, maxQueue: 0, overflow: { status: 429 } })
  t.match(shown({ ...TEST_POLICY, workerPool: POOL }), {
    maxWorkers: 3,
    maxQueue: 4,
    queueTimeoutMs: 5,
    overflow: { status: 503 },
    queueTimeout: { status: 503 },
  })
  for (const [maxConcurrency, maxWorkers, isSet, most] of [
    [2, 3, true, 2],
    [5, 3, true, 3],
    [0, 3, true, 3],
    [20, 50, false, 50],
    [20, 3, false, 3],
  ] as const) {
    const given = isSet ? null : defaultQueue
    const policy = { ...TEST_POLICY, maxConcurrency, defaultQueue: given, workerPool: { ...POOL, maxWorkers } }
    t.match(shown(policy), { maxWorkers: most, maxQueue: 4, overflow: { status: 503 } })
  }
  t.match(shown({ ...TEST_POLICY, maxConcurrency: 7, workerPool: { ...POOL, enabled: false } }), {
    maxWorkers: 7,
    maxQueue: 0,
    overflow: { status: 429, message: 'concurrency limit reached' },
  })
})
