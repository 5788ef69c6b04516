import t from 'tap'
import { readQuery } from '../../lib/control/endpoint.ts'
import { LOG_QUERY, toFilesQuery, toLogQueries } from '../../lib/control/log-endpoints.ts'

const read = (search: string) => toFilesQuery(readQuery(search, LOG_QUERY))
const NOTHING = { runtime: null, fn: null, version: null, stream: null, requestId: null, since: null }

t.test('[control/logs.1, control/logs.3, control/logs.9] which lines of which logs', async t => {
  t.same(read(''), { ...NOTHING, file: 'error' })
  t.same(read('file=runtime&stream=stderr&fn=users/[id]&version=v2&runtime=lua&request_id=a.b-c_1'), {
    ...{ file: 'runtime', stream: 'stderr', fn: 'users/[id]', version: 'v2', runtime: 'lua' },
    ...{ requestId: 'a.b-c_1', since: null },
  })
  t.same(
    toLogQueries(read('file=all&fn=hello')).map(({ file, fn }) => [file, fn]),
    [
      ['error', 'hello'],
      ['access', 'hello'],
      ['runtime', 'hello'],
    ],
  )
})

t.test('[control/logs.9] a time in each spelling is that of the lines', async t => {
  for (const [given, since] of [
    ['0', '1970-01-01T00:00:00.000Z'],
    ['1700000000', '2023-11-14T22:13:20.000Z'],
    ['1700000000.25', '2023-11-14T22:13:20.250Z'],
    ['2026-11-22T07:00Z', '2026-11-22T07:00:00.000Z'],
    ['2026-11-22T07:00:00.5Z', '2026-11-22T07:00:00.500Z'],
    ['2026-11-22T09:00:00%2B02:00', '2026-11-22T07:00:00.000Z'],
  ] as const)
    t.equal(read(`since=${given}`).since, since, given)
  for (const wrong of ['now', '1e9', '-1', '2026-11-22', '2026-11-22T07:00:00', '2026-02-31T99:00:00Z', '9'.repeat(12)])
    t.throws(() => read(`since=${wrong}`), { code: 'BAD_REQUEST', message: /since must be/ }, wrong)
  t.throws(() => read(`request_id=${'x'.repeat(129)}`), { message: /request_id must be/ })
})
