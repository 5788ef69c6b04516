import t from 'tap'
import { AccessLogFormat } from '../../lib/observe/access-log.ts'
import type { RequestRecord } from '../../lib/observe/events.ts'
import { eachLine } from '../../lib/observe/line-buffer.ts'
import { toLineRecord } from '../../lib/processes/acceptor-journal.ts'
import { makeFn } from '../helpers/fn.ts'

const RECORD: RequestRecord = {
  ...{
    time: 1_700_000_000_123,
    id: 'one',
    method: 'GET',
    path: '/a "b"\n',
    route: '/:x',
    fn: 'hello',
    version: 'default',
  },
  ...{ runtime: 'node', entryFile: 'hello/handler.js', status: 503, durationMs: 12.345, queuedMs: 1.5, bytesIn: 3 },
  ...{ bytesOut: 4, ip: '::1', userAgent: 'me \u20ac', traceId: 'f'.repeat(32), error: 'no' },
}

t.test('[processes/processes.7] a line of a front is the record that it was made of', async t => {
  const format = new AccessLogFormat()
  const fn = makeFn({ name: 'hello' })
  const versioned = makeFn({ name: 'hello', version: 'v2', entryFile: 'hello/v2/handler.js' })
  const functions = new Map([fn, versioned].map(one => [one.key, one]))
  const records = [
    RECORD,
    { ...RECORD, version: 'v2', entryFile: 'hello/v2/handler.js', error: null },
    { ...RECORD, fn: 'gone', entryFile: null },
    {
      ...RECORD,
      fn: null,
      version: null,
      runtime: null,
      entryFile: null,
      route: null,
      userAgent: null,
      queuedMs: 0,
      bytesIn: 0,
    },
  ]
  const bytes = Buffer.from(records.map(record => `${format.toJsonLine(record)}\n`).join(''))
  const read: RequestRecord[] = []
  eachLine(bytes, line => read.push(toLineRecord(line, functions)))
  t.same(read, records)
})
