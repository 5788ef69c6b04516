import t from 'tap'
import { JobQueue } from '../../lib/jobs/job-runner.ts'
import type { Job } from '../../lib/jobs/job.ts'
import { makeJob } from '../helpers/jobs-bed.ts'
import { createRandom } from '../helpers/random.ts'

const always = (): boolean => true

t.test('[jobs/jobs.8] the oldest due job of all functions is next', async t => {
  const queue = new JobQueue()
  const jobs = [1, 2, 3, 4].map(seq => makeJob({ seq, key: seq % 2 === 0 ? 'node/a@default' : 'node/b@default' }))
  for (const job of jobs) queue.add(job, job.seq === 1 ? 100 : 0)
  t.equal(queue.size, 4)
  t.equal(queue.nextDue(0), null, 'what is due has room to wait for')
  t.same([queue.take(0, always)?.seq, queue.take(0, always)?.seq, queue.take(0, always)?.seq], [2, 3, 4])
  t.equal(queue.nextDue(0), 100)
  t.equal(queue.take(99, always), null, 'not due')
  t.equal(queue.take(100, always)?.seq, 1)
  t.equal(queue.nextDue(0), null)
  t.equal(queue.size, 0)
})

t.test('[jobs/jobs.8] a function without room keeps only its own jobs waiting', async t => {
  const queue = new JobQueue()
  for (const seq of [1, 2]) queue.add(makeJob({ seq, key: 'node/full@default' }), 0)
  queue.add(makeJob({ seq: 3, key: 'node/free@default' }), 0)
  t.equal(queue.take(0, key => key !== 'node/full@default')?.seq, 3)
  t.equal(
    queue.take(0, key => key !== 'node/full@default'),
    null,
  )
  t.equal(queue.take(0, always)?.seq, 1)
})

t.test('[jobs/jobs.11] what is withdrawn does not come up, and leaves nothing behind', async t => {
  const queue = new JobQueue()
  const jobs = Array.from({ length: 1000 }, (_, index) => makeJob({ seq: index + 1 }))
  for (const job of jobs) queue.add(job, 1_000_000)
  for (const job of jobs.slice(0, 900)) t.equal(queue.remove(job.id), true)
  t.equal(queue.remove(jobs[0]!.id), false, 'twice')
  t.equal(queue.size, 100)
  const left: number[] = []
  for (let job = queue.take(2_000_000, always); job !== null; job = queue.take(2_000_000, always)) left.push(job.seq)
  t.same(
    left,
    jobs.slice(900).map(({ seq }) => seq),
  )
})

t.test('[jobs/jobs.8] any order of adding, removing and taking agrees with a plain sorted list', async t => {
  const random = createRandom(7)
  const queue = new JobQueue()
  let plain: { job: Job; due: number }[] = []
  for (let step = 1; step <= 5000; step++) {
    const action = random(10)
    if (action < 5) {
      const added = { job: makeJob({ seq: step, key: `node/f${random(3)}@default` }), due: random(50) }
      queue.add(added.job, added.due)
      plain.push(added)
    } else if (action < 7 && plain.length > 0) {
      const [gone] = plain.splice(random(plain.length), 1)
      queue.remove(gone!.job.id)
    } else {
      const now = random(50)
      const full = `node/f${random(3)}@default`
      // Of each function the one that is due first, of those the oldest.
      const heads = new Map<string, { job: Job; due: number }>()
      for (const one of [...plain].sort((a, b) => a.due - b.due || a.job.seq - b.job.seq))
        if (!heads.has(one.job.key)) heads.set(one.job.key, one)
      const wanted = [...heads.values()]
        .filter(({ job, due }) => due <= now && job.key !== full)
        .sort((a, b) => a.job.seq - b.job.seq)[0]
      const taken = queue.take(now, key => key !== full)
      if (taken?.id !== wanted?.job.id) t.equal(taken?.seq, wanted?.job.seq, `step ${step}`)
      plain = plain.filter(one => one !== wanted)
    }
    if (queue.size !== plain.length) t.equal(queue.size, plain.length, `step ${step}`)
  }
  t.ok(plain.length > 0)
})
