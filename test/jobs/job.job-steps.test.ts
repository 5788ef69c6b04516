import t from 'tap'
import { MAX_JOB_DELAY_MS } from '../../lib/core/limits.ts'
import { afterAttempt, afterInterruption, begin, cancel, UNBEGUN_DELAY_MS } from '../../lib/jobs/job.ts'
import { makeJob } from '../helpers/jobs-bed.ts'

const RESULT = { bytes: 1, isText: true, truncated: false, latencyMs: 1 }
const NOW = 5000

t.test('[jobs/jobs.1, jobs/jobs.2] what becomes of a job after an attempt', async t => {
  const rows: [
    string,
    { kind?: 'answer' | 'failure' | 'final'; status: number; left?: boolean },
    string,
    string | null,
  ][] = [
    ['an answer', { status: 200 }, 'done', null],
    ['a refusal of the handler is its answer', { status: 404 }, 'done', null],
    ['the last status that is done', { status: 499 }, 'done', null],
    ['the first that is not', { status: 500 }, 'failed', 'HTTP 500'],
    ['no answer yet', { status: 199 }, 'failed', 'HTTP 199'],
    ['another try is left', { status: 500, left: true }, 'queued', 'HTTP 500'],
    ['no answer, another try is left', { kind: 'failure', status: 504, left: true }, 'queued', 'why'],
    ['no answer', { kind: 'failure', status: 504 }, 'failed', 'why'],
    ['another try would change nothing', { kind: 'final', status: 405, left: true }, 'failed', 'why'],
  ]
  for (const [title, { kind = 'answer', status, left = false }, state, lastError] of rows) {
    const retry = { maxAttempts: left ? 2 : 1, delayMs: 100, backoff: 1 }
    const job = begin(makeJob({ retry }), 1)
    t.match(job, { state: 'running', attempt: 1, result: null })
    const error = kind === 'answer' ? null : 'why'
    const after = afterAttempt(job, { kind, status, error, result: kind === 'answer' ? RESULT : null }, NOW)
    t.match(after, { state, lastError, attempt: 1, resultStatus: status, updatedAt: NOW }, title)
    t.equal(after.finishedAt, state === 'queued' ? null : NOW, title)
    if (state === 'queued') t.equal(after.dueAt, NOW + 100, title)
  }
})

t.test('[jobs/jobs.2] each delay is so many times the one before, up to a limit', async t => {
  const retry = { maxAttempts: 10, delayMs: 3_600_000, backoff: 10 }
  const delays: number[] = []
  let job = makeJob({ retry })
  while (job.state === 'queued' && delays.length < 4) {
    job = afterAttempt(begin(job, 0), { kind: 'answer', status: 500, error: null, result: null }, 0)
    delays.push(job.dueAt)
  }
  t.same(delays, [3_600_000, 36_000_000, 360_000_000, MAX_JOB_DELAY_MS])
})

t.test('[jobs/jobs.3] what did not begin is no attempt', async t => {
  const job = begin(makeJob(), 1)
  const after = afterAttempt(job, { kind: 'unbegun', status: 429, error: 'full', result: null }, NOW)
  t.match(after, { state: 'queued', attempt: 0, dueAt: NOW + UNBEGUN_DELAY_MS, lastError: 'full', finishedAt: null })
})

t.test('[jobs/jobs.4, jobs/jobs.11] an interrupted attempt counts, a canceled job is over', async t => {
  const once = begin(makeJob(), 1)
  t.match(afterInterruption(once, NOW, 'the gateway ended'), {
    state: 'failed',
    attempt: 1,
    lastError: 'the gateway ended during attempt 1 of 1',
  })
  const twice = begin(makeJob({ retry: { maxAttempts: 2, delayMs: 7, backoff: 1 } }), 1)
  t.match(afterInterruption(twice, NOW, 'the gateway ended'), { state: 'queued', attempt: 1, dueAt: NOW + 7 })
  t.match(cancel(twice, NOW), { state: 'canceled', finishedAt: NOW, lastError: 'canceled' })
})

t.test('[jobs/jobs.18] lists each attempt with its times, its status and its error', async t => {
  const retry = { maxAttempts: 3, delayMs: 100, backoff: 1 }
  const failed = afterAttempt(
    begin(makeJob({ retry }), 10),
    { kind: 'answer', status: 500, error: null, result: RESULT },
    15,
  )
  const unbegun = afterAttempt(begin(failed, 20), { kind: 'unbegun', status: 429, error: 'full', result: null }, 21)
  t.equal(unbegun.attempts.length, 1, 'a handler that did not begin was no attempt')
  const interrupted = afterInterruption(begin(unbegun, 30), 35, 'the gateway ended')
  const running = begin(interrupted, 40)
  t.match(running.attempts[2], { startedAt: 40, endedAt: null })
  t.same(cancel(running, 45).attempts, [
    { startedAt: 10, endedAt: 15, status: 500, error: 'HTTP 500' },
    { startedAt: 30, endedAt: 35, status: null, error: 'the gateway ended during attempt 2 of 3' },
    { startedAt: 40, endedAt: 45, status: null, error: 'canceled' },
  ])
  const done = afterAttempt(begin(makeJob(), 1), { kind: 'answer', status: 201, error: null, result: RESULT }, 2)
  t.same(done.attempts, [{ startedAt: 1, endedAt: 2, status: 201, error: null }])
  t.same(cancel(makeJob(), 5).attempts, [])
})
