import t from 'tap'
import { showText } from '../../lib/config/fields.ts'
import { compareText, escapeUnsafe } from '../../lib/core/text.ts'
import { AccessLogFormat } from '../../lib/observe/access-log.ts'
import type { RequestRecord } from '../../lib/observe/events.ts'
import { toPrintable } from '../../lib/observe/log-line.ts'

/** Every kind of character that could forge or hide output, first and last of its range. */
const UNSAFE: readonly [name: string, character: string][] = [
  ['NUL', '\u0000'],
  ['line feed', '\n'],
  ['escape', '\u001b'],
  ['last control', '\u001f'],
  ['delete', '\u007f'],
  ['control sequence introducer', '\u009b'],
  ['soft hyphen', '\u00ad'],
  ['Arabic letter mark', '\u061c'],
  ['Mongolian vowel separator', '\u180e'],
  ['zero-width space', '\u200b'],
  ['zero-width joiner', '\u200d'],
  ['right-to-left mark', '\u200f'],
  ['line separator', '\u2028'],
  ['paragraph separator', '\u2029'],
  ['right-to-left override', '\u202e'],
  ['word joiner', '\u2060'],
  ['left-to-right isolate', '\u2066'],
  ['pop isolate', '\u2069'],
  ['byte-order mark', '\ufeff'],
]

const RECORD: RequestRecord = {
  time: 0,
  id: 'id',
  method: 'GET',
  path: '/',
  route: null,
  fn: null,
  version: null,
  runtime: null,
  entryFile: null,
  status: 200,
  durationMs: 1,
  queuedMs: 0,
  bytesIn: 0,
  bytesOut: 0,
  ip: '127.0.0.1',
  userAgent: null,
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  error: null,
}

t.test(
  '[config/fields.4, observe/log-store.3] no unsafe character reaches a message, a log line or a terminal',
  async t => {
    const format = new AccessLogFormat()
    for (const [name, character] of UNSAFE) {
      const text = `a${character}b`
      t.notOk(escapeUnsafe(text).includes(character), `${name}: escaped`)
      t.notOk(showText(text).includes(character), `${name}: message`)
      t.notOk(toPrintable(text).includes(character), `${name}: log line`)
      const record = { ...RECORD, path: text, userAgent: text }
      t.notOk(format.toDevLine(record).includes(character), `${name}: access line for people`)
      const line = format.toJsonLine(record)
      t.notOk(line.includes(character), `${name}: access line for machines`)
      t.match(JSON.parse(line), { path: text, ua: text }, `${name}: still the same text`)
    }
  },
)

t.test('[config/fields.4] what is safe stays as it is', async t => {
  const text = 'plain é € 日本語 \u{1f600} "quoted" \\'
  t.equal(escapeUnsafe(text), text)
  t.equal(escapeUnsafe('a\u202eb\u0000'), 'a\\u202eb\\u0000')
  t.equal(
    escapeUnsafe('a\nb', () => '?'),
    'a?b',
  )
})

t.test('[router/route-table.1] text is ordered by code unit', async t => {
  t.same(['b', 'a', 'B', 'ä', ''].sort(compareText), ['', 'B', 'a', 'b', 'ä'])
  t.equal(compareText('a', 'a'), 0)
})
