import t from 'tap'
import { isFinished, isJobId, JOB_STATES } from '../../lib/jobs/job.ts'
import { makeJob } from '../helpers/jobs-bed.ts'

t.test('[jobs/file-store.7] only ids of jobs become names of files', async t => {
  t.ok(isJobId('job-1700000000000-1-0123456789ab'))
  const wrong = [
    '',
    'job',
    'job-1-1-0123456789AB',
    'job-1-1-0123456789a',
    '../job-1-1-0123456789ab',
    'job-1-1-0123456789ab/..',
  ]
  for (const id of [
    ...wrong,
    'job-1-1-0123456789ab\0',
    'job-1-1-0123456789ab\n',
    `job-${'1'.repeat(99)}-1-0123456789ab`,
  ])
    t.notOk(isJobId(id), JSON.stringify(id))
})

t.test('[jobs/jobs.1] a job is over in three of its five states', async t => {
  const over = JOB_STATES.filter(state => isFinished(makeJob({ state })))
  t.same(over, ['done', 'failed', 'canceled'])
})
