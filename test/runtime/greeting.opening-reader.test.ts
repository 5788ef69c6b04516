import t from 'tap'
import { OpeningReader } from '../../lib/runtime/greeting.ts'
import { encodeFrame, KIND } from '../../lib/runtime/wire-protocol.ts'

const HELLO = new Map<number, number>([[KIND.hello, 100]])
const frame = encodeFrame(KIND.hello, 7, '{"a":1}', Buffer.from([1]))

t.test(
  '[runtime/greeting.5] frames of an opening come one at a time, cut anywhere, and leave what follows',
  async t => {
    const both = Buffer.concat([frame, encodeFrame(KIND.ping, 3, '', null)])
    for (let at = 0; at <= both.length; at++) {
      const reader = new OpeningReader()
      const found = []
      for (const part of [both.subarray(0, at), both.subarray(at)]) {
        reader.push(part)
        if (found.length > 0) continue
        const next = reader.next(HELLO)
        if (next !== null) found.push(next)
      }
      t.match(found, [{ kind: KIND.hello, id: 7, header: '{"a":1}', body: Buffer.from([1]) }], `cut at ${at}`)
      t.same(reader.rest(), both.subarray(frame.length))
    }
  },
)

t.test('[runtime/greeting.5] what is wrong is told by its first bytes', async t => {
  const check = (bytes: number[], code: string): void => {
    const reader = new OpeningReader()
    reader.push(Buffer.from(bytes))
    t.throws(() => reader.next(HELLO), { code }, bytes.join())
  }
  check([255, 255, 255, 255], 'FRAME_TOO_LONG')
  check([0, 0, 0, 110], 'FRAME_TOO_LONG')
  check([0, 0, 0, 8], 'FRAME_TOO_SHORT')
  check([0, 0, 0, 9, KIND.start, 0, 0, 0, 0, 0, 0, 0, 0], 'UNKNOWN_KIND')
  check([0, 0, 0, 9, KIND.hello, 0, 0, 0, 0, 0, 0, 0, 1], 'HEADER_TOO_LONG')
  const two = new Map<number, number>([...HELLO, [KIND.error, 1000]])
  const reader = new OpeningReader()
  reader.push(encodeFrame(KIND.hello, 0, `"${'x'.repeat(200)}"`, null).subarray(0, 20))
  t.throws(() => reader.next(two), { code: 'FRAME_TOO_LONG' }, 'each kind has a limit of its own')
})
