import t from 'tap'
import { KEPT_JOB_MS, KEPT_JOBS } from '../../lib/core/limits.ts'
import { type JobFilter, JobTable } from '../../lib/jobs/jobs.ts'
import { makeJob } from '../helpers/jobs-bed.ts'

t.test('[jobs/jobs.12] finished jobs beyond the newest ones, and old ones, are outdated', async t => {
  const table = new JobTable()
  const finished = (seq: number, finishedAt = seq) => makeJob({ seq, state: 'done', finishedAt })
  for (let seq = 1; seq <= KEPT_JOBS + 2; seq++) table.put(finished(seq))
  table.put(makeJob({ seq: 1000 }))
  t.same(
    table.outdated(KEPT_JOBS).map(({ seq }) => seq),
    [1, 2],
    'the ones that ended first',
  )
  for (const { id } of table.outdated(KEPT_JOBS)) table.remove(id)
  t.same(table.outdated(KEPT_JOBS), [])
  t.same(
    table.outdated(KEPT_JOB_MS + 3).map(({ seq }) => seq),
    [3],
    'a day later',
  )
  t.equal(table.outdated(KEPT_JOB_MS * 2).length, KEPT_JOBS, 'never one that waits')
  const pending = { state: 'pending', attempts: 1, lastError: null } as const
  table.put(makeJob({ seq: 3, state: 'done', finishedAt: 3, callback: pending }))
  t.same(table.outdated(KEPT_JOB_MS + 3), [], 'its callback is still to be told')
})

t.test('[jobs/jobs.17] jobs by state, by key, newest first', async t => {
  const table = new JobTable()
  t.equal(table.nextSeq(), 1)
  const idempotency = { key: 'k', digest: 'd' }
  table.put(makeJob({ seq: 5, idempotency }))
  t.equal(table.nextSeq(), 6, 'numbers go on after the highest')
  for (const seq of [6, 7, 8])
    table.put(makeJob({ seq, key: 'node/api/users@v2', state: seq === 8 ? 'done' : 'queued' }))
  t.same(table.counts(), { queued: 3, running: 0, done: 1, failed: 0, canceled: 0 })
  table.put(makeJob({ seq: 5, state: 'running', idempotency }))
  t.same(table.counts(), { queued: 2, running: 1, done: 1, failed: 0, canceled: 0 })
  t.equal(table.open, 3)
  const all: JobFilter = { state: null, fn: null, before: null, limit: 50 }
  const seqs = (filter: Partial<typeof all>) => table.list({ ...all, ...filter }).jobs.map(({ seq }) => seq)
  t.same(seqs({}), [8, 7, 6, 5])
  t.same(seqs({ fn: 'api/users' }), [8, 7, 6])
  t.same(seqs({ fn: 'users' }), [])
  t.same(seqs({ before: 7 }), [6, 5])
  t.same(seqs({ state: 'running' }), [5])
  t.same(
    [seqs({ limit: 2 }), table.list({ ...all, limit: 2 }).more, table.list({ ...all, limit: 4 }).more],
    [[8, 7], true, false],
  )
  t.equal(table.withKey('k')?.seq, 5)
  table.remove(makeJob({ seq: 5 }).id)
  table.remove(makeJob({ seq: 5 }).id)
  t.equal(table.withKey('k'), null)
  t.same(table.counts(), { queued: 2, running: 0, done: 1, failed: 0, canceled: 0 })
})
