import t from 'tap'
import { FORMATS } from '../../lib/validation/schema-compiler.ts'

t.test('[validation/request-schema.8] formats that are checked', async t => {
  const cases: [format: string, yes: string[], no: string[]][] = [
    ['date', ['2024-02-29', '0001-01-01'], ['2023-02-29', '2024-13-01', '2024-1-1', '', '2024-04-31']],
    ['time', ['23:59:60Z', '00:00:00.123+02:00'], ['24:00:00Z', '00:00:00', '0:00:00Z']],
    [
      'date-time',
      ['2024-02-29T12:00:00Z', '2024-02-29t12:00:00.5-05:30'],
      ['2024-02-30T12:00:00Z', '2024-02-29', '2024-02-29T12:00:00'],
    ],
    ['email', ['a@example.com', 'a.b+c@x-y.org'], ['@x.org', 'a@', 'a b@x.org', '.a@x.org', 'a..b@x.org', 'a@-x.org']],
    ['hostname', ['example.com', 'a', 'x-1.y'], ['-a', 'a-', 'a..b', '', `${'a'.repeat(64)}.b`, 'a_b']],
    ['ipv4', ['127.0.0.1'], ['256.0.0.1', '1.2.3', '::1']],
    ['ipv6', ['::1', '2001:db8::ff00:42:8329'], ['1.2.3.4', ':::', 'fe80::1%eth0']],
    ['uri', ['https://example.com/a?b#c', 'urn:isbn:1', 'mailto:a@b.c'], ['/path', 'a b', 'http://[', '']],
    ['uuid', ['123e4567-e89b-12d3-a456-426614174000'], ['123e4567', '123e4567-e89b-12d3-a456-42661417400g']],
  ]
  for (const [format, yes, no] of cases) {
    for (const text of yes) t.equal(FORMATS[format]!(text), true, `${format} ${text}`)
    for (const text of no) t.equal(FORMATS[format]!(text), false, `${format} ${text}`)
  }
  t.same(Object.keys(FORMATS).sort(), cases.map(([format]) => format).sort())
})

t.test('[validation/request-schema.6] formats take time that grows with the text alone', async t => {
  const long = 'a.'.repeat(500_000)
  for (const check of Object.values(FORMATS)) for (const text of [long, `${'1'.repeat(500_000)}@${long}`]) check(text)
  t.pass('all are through')
})
