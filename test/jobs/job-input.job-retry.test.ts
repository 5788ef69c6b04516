import t from 'tap'
import { checkJobInput, toRetryInput, toShownInput } from '../../lib/jobs/job-input.ts'
import { makeJob, makeRequest } from '../helpers/jobs-bed.ts'

const HEADERS = { authorization: 'Bearer s3cret', 'x-api-key': 'k3y', 'x-plain': 'shown', 'content-type': 'text/plain' }
const request = makeRequest({
  method: 'POST',
  headers: HEADERS,
  query: { a: ['1', '2'] },
  callbackUrl: 'https://a.test/x?key=1',
})
const job = makeJob({ retry: { maxAttempts: 3, delayMs: 5, backoff: 2 } })

t.test('[jobs/jobs.19] shows the input without secrets, and leaves out a long body', async t => {
  const shown = toShownInput(job, request, Buffer.from('text'))
  t.match(shown, {
    name: 'hello',
    method: 'POST',
    route: '/hello',
    query: { a: ['1', '2'] },
    body: 'text',
    body_bytes: 4,
  })
  t.same(shown.headers, { ...HEADERS, authorization: '<hidden>', 'x-api-key': '<hidden>' })
  t.notMatch(JSON.stringify(shown), /s3cret|k3y|a\.test/)
  t.match(toShownInput(job, request, Buffer.from([255])), { body_base64: '/w==', body_omitted: false })
  const long = toShownInput(job, request, Buffer.alloc(1024 * 1024 + 1, 'a'))
  t.match(long, { body_omitted: true, body_bytes: 1024 * 1024 + 1 })
  t.notOk('body' in long)
})

t.test('[jobs/jobs.19] runs again with its input, and with what replaces a part of it', async t => {
  const checked = (changes: unknown, body: Buffer | null = Buffer.from([255])) =>
    checkJobInput(toRetryInput(job, request, body, changes))
  t.match(checked({}), {
    headers: HEADERS,
    query: { a: ['1', '2'] },
    body: Buffer.from([255]),
    retry: { maxAttempts: 3, delayMs: 5, backoff: 2 },
    callbackUrl: 'https://a.test/x?key=1',
  })
  t.same(checked({}, null).body, null)
  const edited = checked({ body: 'other', headers: { authorization: '<hidden>', 'x-new': 'y', 'x-none': '<hidden>' } })
  t.same([String(edited.body), { ...edited.headers }], ['other', { authorization: 'Bearer s3cret', 'x-new': 'y' }])
  t.same(checked({ body_base64: 'AA==' }, Buffer.from('text')).body, Buffer.from([0]))
  t.throws(() => checked({ colour: 1 }), { code: 'BAD_REQUEST', message: /"colour"/ })
  t.throws(() => checked([]), { code: 'BAD_REQUEST', message: /must be an object/ })
})
