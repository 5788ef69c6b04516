import t from 'tap'
import {
  type ClaimStanding,
  decideClaim,
  isRetryable,
  nextAdmission,
  nextRetry,
  toMaxActive,
} from '../../lib/core/transitions.ts'
import { makeFn } from '../helpers/fn.ts'

function claim(fnKey: string, standing: Partial<ClaimStanding> = {}): ClaimStanding {
  return { fnKey, source: 'config', forced: false, versioned: false, forceUrl: false, ...standing }
}

const FILE = { source: 'file' } as const
const MANIFEST = { source: 'manifest' } as const
const FORCED = { forced: true } as const
const ALL_FORCED = { forceUrl: true } as const
const VERSION = { versioned: true } as const

t.test('[core/transitions.1] a claim on a free route maps it, whatever its kind', async t => {
  for (const standing of [FILE, MANIFEST, {}, FORCED, VERSION]) t.equal(decideClaim(null, claim('a', standing)), 'map')
})

t.test(
  '[core/transitions.2, core/transitions.3, core/transitions.4, core/transitions.6] who keeps a route',
  async t => {
    const rows: [string, Partial<ClaimStanding>, Partial<ClaimStanding>, string][] = [
      ['file against file', FILE, FILE, 'conflict'],
      ['manifest against manifest', MANIFEST, MANIFEST, 'conflict'],
      ['config against config', {}, {}, 'conflict'],
      ['file, then manifest', FILE, MANIFEST, 'replace'],
      ['file, then config', FILE, {}, 'reject'],
      ['manifest, then config', MANIFEST, {}, 'reject'],
      ['manifest, then file', MANIFEST, FILE, 'reject'],
      ['config, then file', {}, FILE, 'replace'],
      ['file, then forced', FILE, FORCED, 'replace'],
      ['manifest, then forced', MANIFEST, FORCED, 'replace'],
      ['config, then forced', {}, FORCED, 'replace'],
      ['forced, then file', FORCED, FILE, 'reject'],
      ['forced, then config', FORCED, {}, 'reject'],
      ['forced against forced', FORCED, FORCED, 'conflict'],
      ['file, then config under FN_FORCE_URL', { ...FILE, ...ALL_FORCED }, ALL_FORCED, 'replace'],
      ['file against file under FN_FORCE_URL', { ...FILE, ...ALL_FORCED }, { ...FILE, ...ALL_FORCED }, 'conflict'],
      ['forced against config under FN_FORCE_URL', { ...FORCED, ...ALL_FORCED }, ALL_FORCED, 'conflict'],
      ['config, then version', {}, VERSION, 'reject'],
      ['config, then version with force-url', {}, { ...VERSION, ...FORCED }, 'reject'],
      ['version, then config', VERSION, {}, 'replace'],
      ['version against version', VERSION, VERSION, 'conflict'],
      ['config, then version under FN_FORCE_URL', ALL_FORCED, { ...VERSION, ...ALL_FORCED }, 'replace'],
      [
        'forced, then version under FN_FORCE_URL',
        { ...FORCED, ...ALL_FORCED },
        { ...VERSION, ...ALL_FORCED },
        'replace',
      ],
    ]
    for (const [name, holder, other, decision] of rows) {
      t.equal(decideClaim(claim('a', holder), claim('b', other)), decision, name)
    }
  },
)

t.test('[core/transitions.4] the outcome does not depend on which claim comes first', async t => {
  const kinds = [FILE, MANIFEST, {}, FORCED, VERSION, { ...VERSION, ...ALL_FORCED }]
  const mirrored = { replace: 'reject', reject: 'replace', conflict: 'conflict' } as Record<string, string>
  for (const a of kinds) {
    for (const b of kinds) {
      const one = decideClaim(claim('a', a), claim('b', b))
      t.equal(decideClaim(claim('b', b), claim('a', a)), mirrored[one], JSON.stringify([a, b]))
    }
  }
})

t.test('[core/transitions.5] a function never competes with itself', async t => {
  for (const standing of [FILE, MANIFEST, FORCED]) t.equal(decideClaim(claim('a'), claim('a', standing)), 'merge')
})

t.test('[core/transitions.7, core/transitions.8, core/transitions.9] what a call does on arrival', async t => {
  const rows: [string, number, number, number, number, string][] = [
    // active, queued, maxWorkers, maxQueue
    ['nothing runs', 0, 0, 1, 0, 'run'],
    ['one of two runs', 1, 0, 2, 0, 'run'],
    ['all busy, no queue', 2, 0, 2, 0, 'reject'],
    ['all busy, room in the queue', 2, 0, 2, 3, 'queue'],
    ['all busy, last place in the queue', 2, 2, 2, 3, 'queue'],
    ['all busy, queue full', 2, 3, 2, 3, 'reject'],
    ['unlimited', 1000, 0, 0, 0, 'run'],
    ['a worker is free for the one who waits', 1, 1, 2, 5, 'queue'],
    ['two workers are free, one waits', 0, 1, 2, 5, 'run'],
    ['a worker is free for the one who waits, queue full', 1, 1, 2, 1, 'reject'],
  ]
  for (const [name, active, queued, maxWorkers, maxQueue, decision] of rows) {
    t.equal(nextAdmission({ active, queued, maxWorkers, maxQueue }), decision, name)
  }
})

const RETRY = { maxAttempts: 3, baseDelaySeconds: 1, maxDelaySeconds: 30, jitter: 0 }

t.test('[core/transitions.10, core/transitions.11] which results are tried again', async t => {
  for (const status of [0, 429, 500, 502, 503, 504, 599]) {
    t.ok(isRetryable(status), `${status}`)
    t.same(nextRetry({ status, attempt: 1, retry: RETRY, random: 0.5 }), { attempt: 2, delaySeconds: 1 }, `${status}`)
  }
  for (const status of [100, 200, 204, 302, 400, 404, 405, 413, 428, 430, 499]) {
    t.equal(nextRetry({ status, attempt: 1, retry: RETRY, random: 0.5 }), null, `${status}`)
  }
  t.equal(nextRetry({ status: 500, attempt: 1, retry: null, random: 0.5 }), null, 'no retry')
  t.same(nextRetry({ status: 500, attempt: 2, retry: RETRY, random: 0.5 })?.attempt, 3, 'the last attempt')
  t.equal(nextRetry({ status: 500, attempt: 3, retry: RETRY, random: 0.5 }), null, 'no attempt remains')
  t.equal(nextRetry({ status: 500, attempt: 1, retry: { ...RETRY, maxAttempts: 1 }, random: 0.5 }), null, 'only one')
})

t.test('[core/transitions.12] the delay doubles up to its limit, give or take the jitter', async t => {
  const retry = { maxAttempts: 10, baseDelaySeconds: 2, maxDelaySeconds: 20, jitter: 0.5 }
  const delay = (attempt: number, random: number, changed = {}): number | undefined =>
    nextRetry({ status: 0, attempt, retry: { ...retry, ...changed }, random })?.delaySeconds
  t.same(
    [1, 2, 3, 4, 5, 9].map(attempt => delay(attempt, 0.5)),
    [2, 4, 8, 16, 20, 20],
  )
  t.equal(delay(1, 0), 1, 'least')
  t.equal(delay(1, 0.75), 2.5)
  t.equal(delay(9, 0), 10, 'the limit is moved too')
  t.equal(delay(1, 0, { baseDelaySeconds: 0 }), 0)
  t.equal(delay(3, 0, { maxDelaySeconds: 0 }), 0)
})

t.test(
  '[invocation/admission.3] the smaller of max_concurrency and max_workers holds, a default does not cut',
  async t => {
    const { policy } = makeFn({})
    const workerPool = { ...policy.workerPool!, enabled: true, maxWorkers: 5 }
    t.equal(toMaxActive({ ...policy, maxConcurrency: 3, workerPool: null }), 3)
    t.equal(toMaxActive({ ...policy, maxConcurrency: 3, defaultQueue: null, workerPool }), 3)
    t.equal(toMaxActive({ ...policy, maxConcurrency: 9, defaultQueue: null, workerPool }), 5)
    t.equal(
      toMaxActive({
        ...policy,
        maxConcurrency: 3,
        defaultQueue: { maxQueue: 1, timeoutMs: 1, maxWaitMs: 0 },
        workerPool,
      }),
      5,
    )
  },
)
