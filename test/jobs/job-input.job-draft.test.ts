import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { checkJobInput, digestOf, draftJob, type JobInput } from '../../lib/jobs/job-input.ts'
import { isJobId } from '../../lib/jobs/job.ts'
import { makeFn } from '../helpers/fn.ts'

const options = {
  find: (name: string) => {
    if (name === 'none') throw new GatewayError('NOT_FOUND', 'unknown function or version')
    return makeFn({
      name,
      policy: { methods: name === 'post' ? ['PUT', 'POST'] : ['GET', 'POST'], maxBodyBytes: 20_000 },
    })
  },
  routesOf: () => ['/users/:id'],
}

const draft = (input: JobInput, nextSeq = () => 7) => draftJob(checkJobInput(input), options, 1000, nextSeq, null)

t.test('[jobs/jobs.5, jobs/jobs.6] a job with its request, or why not, before a number is taken', async t => {
  const { job, request } = draft({
    name: 'a',
    params: { id: 5 },
    body: 'x',
    delay_ms: 50,
    callback_url: 'http://a.test/',
  })
  t.ok(isJobId(job.id))
  t.match(job, { seq: 7, key: 'node/a@default', state: 'queued', attempt: 0, createdAt: 1000, dueAt: 1050 })
  t.match(job.callback, { state: 'pending', attempts: 0 })
  t.match(request, { method: 'GET', path: '/users/5', routeTemplate: '/users/:id', body: 'eA==', hasBodyPart: false })
  t.equal(draft({ name: 'post', params: { id: 1 } }).request.method, 'PUT', 'its first')
  t.match(draft({ name: 'a', params: { id: 1 }, body: 'x'.repeat(17_000) }).request, { body: null, hasBodyPart: true })
  const rows: [JobInput, string][] = [
    [{ name: 'none' }, 'NOT_FOUND'],
    [{ name: 'a', method: 'DELETE' }, 'METHOD_NOT_ALLOWED'],
    [{ name: 'a', body: 'x'.repeat(20_001) }, 'BODY_TOO_LARGE'],
    [{ name: 'a' }, 'BAD_REQUEST'],
  ]
  for (const [input, code] of rows) t.throws(() => draft(input, () => t.fail('a number is taken') as never), { code })
})

t.test('[jobs/jobs.13] requests that differ in anything have another digest', async t => {
  const inputs: JobInput[] = [
    { name: 'a' },
    { name: 'b' },
    { name: 'a', body: 'x' },
    { name: 'a', query: { a: 1 } },
    { name: 'a', max_attempts: 2 },
    { name: 'a', delay_ms: 1 },
  ]
  const digests = inputs.map(input => digestOf(checkJobInput(input)))
  t.equal(new Set(digests).size, inputs.length)
  t.equal(digestOf(checkJobInput({ name: 'a', version: null })), digests[0])
})
