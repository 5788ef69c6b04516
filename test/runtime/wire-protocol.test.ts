import { readFileSync } from 'node:fs'
import t from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { MAX_FRAME_BYTES } from '../../lib/core/limits.ts'
import {
  encodeFrame,
  FRAME_LIMITS,
  FrameReader,
  FrameWriter,
  KIND,
  type Kind,
  parseHeader,
  ProtocolError,
} from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { createRandom } from '../helpers/random.ts'

interface Vector {
  name: string
  kind: Kind
  id: number
  header: string
  body: string
  hex: string
}

type Seen = [kind: number, id: number, header: string, body: string]

const vectors = JSON.parse(readFileSync(new URL('./vectors.json', import.meta.url), 'utf8')) as Vector[]
const limits = JSON.parse(readFileSync(new URL('./frame-limits.json', import.meta.url), 'utf8')) as {
  kind: number
  name: string
  header: number
  body: number
}[]
const all = Buffer.concat(vectors.map(vector => Buffer.from(vector.hex, 'hex')))
const expected: Seen[] = vectors.map(vector => [vector.kind, vector.id, vector.header, vector.body])

function collect(maxBodyBytes = 0): { seen: Seen[]; reader: FrameReader } {
  const seen: Seen[] = []
  const reader = new FrameReader(
    (kind, id, header, body) => seen.push([kind, id, header, body.toString('hex')]),
    maxBodyBytes,
  )
  return { seen, reader }
}

t.test('[runtime/wire-protocol.1] every vector encodes to its bytes', async t => {
  for (const vector of vectors) {
    const frame = encodeFrame(vector.kind, vector.id, vector.header, Buffer.from(vector.body, 'hex'))
    t.equal(frame.toString('hex'), vector.hex, vector.name)
  }
  const written: Buffer[] = []
  const writer = new FrameWriter(bytes => {
    written.push(bytes)
    return false
  }, Number.POSITIVE_INFINITY)
  for (const vector of vectors) writer.add(vector.kind, vector.id, vector.header, Buffer.from(vector.body, 'hex'))
  t.equal(written.length, 0, 'nothing leaves before the flush')
  writer.flush()
  t.equal(written.length, 1, 'the frames of one tick are one write')
  t.equal(written[0]!.toString('hex'), all.toString('hex'))
})

t.test('[runtime/wire-protocol.2] frames cut at every byte, and joined, are read the same', async t => {
  for (let cut = 0; cut <= all.length; cut++) {
    const { seen, reader } = collect()
    reader.push(all.subarray(0, cut))
    reader.push(all.subarray(cut))
    t.same(seen, expected, `cut at ${cut}`)
  }
  const { seen, reader } = collect()
  for (const byte of all) reader.push(Buffer.from([byte]))
  t.same(seen, expected, 'one byte at a time')
})

t.test('[runtime/wire-protocol.2] bodies above and below the copy limit keep their order', async t => {
  const written: Buffer[] = []
  const writer = new FrameWriter(bytes => {
    written.push(bytes)
    return false
  }, Number.POSITIVE_INFINITY)
  const sizes = [0, 1, 16 * 1024, 16 * 1024 + 1, 70_000, 3, 200_000]
  sizes.forEach((size, i) => {
    writer.add(KIND.chunk, i + 1, `{"n":"${'ü'.repeat(i * 30)}"}`, Buffer.alloc(size, i))
  })
  writer.flush()
  const seen: [number, string, number, boolean][] = []
  const reader = new FrameReader((_kind, id, header, body) => {
    seen.push([id, header, body.length, body.every(byte => byte === id - 1)])
  })
  reader.push(Buffer.concat(written))
  t.same(
    seen,
    sizes.map((size, i) => [i + 1, `{"n":"${'ü'.repeat(i * 30)}"}`, size, true]),
  )
})

t.test('[core/byte-pool.6] the rest of a large frame is read to where it belongs', async t => {
  const sizes = [0, 16 * 1024 - 14, 16 * 1024 - 13, 16 * 1024 - 12, 5, 70_000, 1, 300_000, 64 * 1024, 2]
  const bytes = Buffer.concat(
    sizes.map((size, i) => encodeFrame(KIND.reply, i + 1, '', Buffer.alloc(Math.min(size, 256 * 1024), i + 1))),
  )
  for (const step of [1024, 4099, 16 * 1024, 65_536, 100_003, bytes.length]) {
    const pool = new BytePool(new FakeClock(), slab => slab.fill(0xdd))
    const kept: Buffer[] = []
    let copied = 0
    const reader = new FrameReader(
      (_kind, id, _header, body) => {
        t.ok(
          body.every(byte => byte === id),
          `frame ${id}, ${step} bytes at a time`,
        )
        if (body.length > 0) kept.push(pool.keep(body))
      },
      0,
      pool,
    )
    // As a socket reads: into the frame's own memory where there is some.
    for (let at = 0; at < bytes.length; ) {
      const { room } = reader
      const end = Math.min(bytes.length, at + Math.min(step, room?.length ?? step))
      if (room === null) {
        const shared = Buffer.from(bytes.subarray(at, end))
        reader.push(shared, end - at)
        shared.fill(0xcc)
        copied += end - at
      } else {
        bytes.copy(room, 0, at, end)
        reader.fill(end - at)
      }
      at = end
    }
    t.equal(reader.room, null)
    t.same(
      kept.map(body => [body.length, body.every(byte => byte === body[0])]),
      sizes.filter(size => size > 0).map(size => [Math.min(size, 256 * 1024), true]),
      'what was kept is as it was',
    )
    if (step === 1024) t.ok(copied < bytes.length / 4, 'of large frames the beginning alone is copied')
    t.same(
      kept.map(body => body[0]),
      sizes.flatMap((size, i) => (size > 0 ? [i + 1] : [])),
    )
    for (const body of kept) pool.free(body)
  }
})

t.test('[runtime/wire-protocol.23] the gateway hands a piece of a stream on as far as it is here', async t => {
  const frames = [
    encodeFrame(KIND.chunk, 1, '', Buffer.from('abcdef')),
    encodeFrame(KIND.reply, 2, '{"status":200}', Buffer.from('whole')),
    encodeFrame(KIND.chunk, 3, '{"any":1}', Buffer.from('ghi')),
    encodeFrame(KIND.chunk, 3, '', Buffer.alloc(0)),
    encodeFrame(KIND.end, 3, '', null),
  ]
  const bytes = Buffer.concat(frames)
  const read = (cuts: readonly number[]) => {
    const reads: string[][] = []
    const pool = new BytePool(new FakeClock())
    let seen: string[] = []
    const reader = new FrameReader((kind, id, header, body) => seen.push(`${kind} ${id} ${header} ${body}`), 0, pool)
    let at = 0
    for (const cut of [...cuts, bytes.length]) {
      const shared = Buffer.from(bytes.subarray(at, cut))
      seen = []
      reader.push(shared)
      shared.fill('?')
      reads.push(seen)
      at = cut
    }
    return reads
  }
  const whole = [
    `${KIND.chunk} 1  abcdef`,
    `${KIND.reply} 2 {"status":200} whole`,
    `${KIND.chunk} 3 {"any":1} ghi`,
    `${KIND.chunk} 3  `,
    `${KIND.end} 3  `,
  ]
  t.same(read([]), [whole])
  t.same(read([15])[0], [`${KIND.chunk} 1  ab`], 'what is here')
  t.same(read([15])[1]!.slice(0, 2), [`${KIND.chunk} 1  cdef`, whole[1]], 'then the rest, and what comes behind it')
  t.same(read([15, 16])[1], [`${KIND.chunk} 1  c`], 'in as many parts as there are reads')
  t.same(read([13])[0], [], 'nothing without a byte of its body')
  t.same(read([frames[0]!.length + 30])[0], [whole[0]], 'other frames are whole')
  const joined = (reads: string[][]) => {
    const bodies = new Map<string, string>()
    for (const one of reads.flat()) {
      const [kind, id, , ...body] = one.split(' ')
      const name = `${kind} ${id}`
      bodies.set(name, (bodies.get(name) ?? '') + body.join(' '))
    }
    return [...bodies]
  }
  const expected = joined([whole])
  for (let cut = 0; cut <= bytes.length; cut++) t.same(joined(read([cut])), expected, `cut at ${cut}`)
  t.same(joined(read(Array.from({ length: bytes.length - 1 }, (_, i) => i + 1))), expected, 'one byte at a time')
})

t.test(
  '[runtime/wire-protocol.23, runtime/wire-protocol.21] of a piece that is too large nothing is handed on',
  async t => {
    let seen = 0
    const reader = new FrameReader(() => (seen += 1), 0, new BytePool(new FakeClock()))
    const frame = encodeFrame(KIND.chunk, 1, '', Buffer.alloc(FRAME_LIMITS.chunk.body + 1))
    t.throws(() => reader.push(frame.subarray(0, 100)), { code: 'BODY_TOO_LARGE', id: 1 })
    t.equal(seen, 0)
  },
)

t.test('[runtime/wire-protocol.3] a malformed frame is a named error', async t => {
  const frame = (length: number, kind: number, headerBytes: number): Buffer => {
    const bytes = Buffer.alloc(13)
    bytes.writeUInt32BE(length, 0)
    bytes[4] = kind
    bytes.writeUInt32BE(headerBytes, 9)
    return bytes
  }
  const cases: [name: string, bytes: Buffer, code: string][] = [
    ['length 0', frame(0, KIND.call, 0), 'FRAME_TOO_SHORT'],
    ['length 8', frame(8, KIND.call, 0), 'FRAME_TOO_SHORT'],
    ['length 4 GiB', frame(0xffffffff, KIND.call, 0), 'FRAME_TOO_LONG'],
    ['one above the limit', frame(MAX_FRAME_BYTES + 101, KIND.call, 0), 'FRAME_TOO_LONG'],
    ['kind 0', frame(9, 0, 0), 'UNKNOWN_KIND'],
    ['kind 200', frame(9, 200, 0), 'UNKNOWN_KIND'],
    ['header longer than the frame', frame(9, KIND.call, 1), 'HEADER_TOO_LONG'],
    ['header of 4 GiB', frame(9, KIND.call, 0xffffffff), 'HEADER_TOO_LONG'],
  ]
  for (const [name, bytes, code] of cases) {
    const { reader, seen } = collect(100)
    t.throws(() => reader.push(bytes), { name: 'ProtocolError', code }, name)
    t.equal(seen.length, 0)
    const split = collect(100).reader
    t.throws(
      () => {
        for (const byte of bytes) split.push(Buffer.from([byte]))
      },
      { code },
      `${name}, byte by byte`,
    )
  }
  for (const text of ['[]', '1', 'null', '{', 'nope']) {
    t.throws(() => parseHeader(text), { code: 'BAD_HEADER' }, `header ${text}`)
  }
  t.same(parseHeader(''), {})
})

t.test('[runtime/wire-protocol.21] a frame above the limits of its kind is refused by its first 13 bytes', async t => {
  t.same(
    limits,
    Object.entries(FRAME_LIMITS).map(([name, limit]) => ({ name, ...limit })),
    'the table for all languages is that of the gateway',
  )
  const prefix = (kind: number, headerBytes: number, bodyBytes: number): Buffer => {
    const bytes = Buffer.alloc(13)
    bytes.writeUInt32BE(9 + headerBytes + bodyBytes, 0)
    bytes[4] = kind
    bytes.writeUInt32BE(7, 5)
    bytes.writeUInt32BE(headerBytes, 9)
    return bytes
  }
  for (const { kind, name, header, body } of limits) {
    const mostBody = kind === KIND.call ? body + 100 : Math.min(body, MAX_FRAME_BYTES - 9)
    const accepted = [prefix(kind, header, 0), prefix(kind, 0, Math.min(mostBody, MAX_FRAME_BYTES - 9))]
    for (const bytes of accepted) collect(100).reader.push(bytes)
    const refused: [Buffer, string, RegExp][] = [
      [
        prefix(kind, header + 1, 0),
        'HEADER_TOO_LARGE',
        new RegExp(`^header of a ${name} frame is ${header + 1} bytes, above`),
      ],
      [prefix(kind, 15_000_000, 0), 'HEADER_TOO_LARGE', /above/],
    ]
    if (body < MAX_FRAME_BYTES)
      refused.push([
        prefix(kind, 0, body + 1),
        'BODY_TOO_LARGE',
        new RegExp(`^body of a ${name} frame is ${body + 1} bytes`),
      ])
    for (const [bytes, code, message] of refused) {
      t.throws(() => collect(100).reader.push(bytes), { code, message, id: 7 }, `${name} ${code}`)
      const split = collect(100).reader
      t.throws(
        () => {
          for (const byte of bytes) split.push(Buffer.from([byte]))
        },
        { code },
        `${name} ${code}, byte by byte`,
      )
    }
  }
})

t.test(
  '[runtime/greeting.5] frames of a peer that has not proved itself are of few kinds, and leave what follows',
  async t => {
    const frame = encodeFrame(KIND.hello, 7, '{"a":1}', Buffer.from([1]))
    const both = Buffer.concat([frame, encodeFrame(KIND.ping, 3, '', null)])
    for (let at = 0; at <= both.length; at++) {
      const reader = new FrameReader(() => t.fail('it is guarded'))
      const found: unknown[] = []
      reader.guard([KIND.hello], (kind, id, header, body) => {
        found.push({ kind, id, header, body: Buffer.from(body) })
        reader.stop()
      })
      const left: Buffer[] = []
      for (const part of [both.subarray(0, at), both.subarray(at)])
        left.push(found.length > 0 ? part : part.subarray(reader.push(part)))
      t.same(found, [{ kind: KIND.hello, id: 7, header: '{"a":1}', body: Buffer.from([1]) }], `cut at ${at}`)
      t.same(Buffer.concat(left), both.subarray(frame.length))
    }
    for (const [bytes, code] of [
      [[255, 255, 255, 255], 'FRAME_TOO_LONG'],
      [[0, 0, 16, 26], 'FRAME_TOO_LONG'],
      [[0, 0, 0, 8], 'FRAME_TOO_SHORT'],
      [[0, 0, 0, 9, KIND.start, 0, 0, 0, 0, 0, 0, 0, 0], 'UNKNOWN_KIND'],
      [[0, 0, 0, 9, 99, 0, 0, 0, 0, 0, 0, 0, 0], 'UNKNOWN_KIND'],
      [[0, 0, 0, 9, KIND.hello, 0, 0, 0, 0, 0, 0, 0, 1], 'HEADER_TOO_LONG'],
      [[0, 0, 0, 26, KIND.hello, 0, 0, 0, 0, 0, 0, 0, 0], 'BODY_TOO_LARGE'],
    ] as const) {
      const reader = new FrameReader(() => {})
      reader.guard([KIND.hello], () => {})
      t.throws(() => reader.push(Buffer.from(bytes)), { code }, bytes.join())
    }
    const two = new FrameReader(() => {})
    two.guard([KIND.hello, KIND.error], () => {})
    const long = encodeFrame(KIND.hello, 0, `"${'x'.repeat(5000)}"`, null)
    t.throws(() => two.push(long.subarray(0, 20)), { code: 'HEADER_TOO_LARGE' }, 'each kind has a limit of its own')
  },
)

t.test('[runtime/wire-protocol.3] random bytes never hang, crash or hoard memory', async t => {
  const rounds = Number(process.env.FNGW_FUZZ_FRAMES ?? 20_000)
  const random = createRandom(42)
  let errors = 0
  let frames = 0
  for (let round = 0; round < rounds; round++) {
    const bytes = Buffer.from(all)
    for (let flips = random(4); flips > 0; flips--) bytes[random(bytes.length)] = random(256)
    const reader = new FrameReader(() => frames++)
    try {
      for (let at = 0; at < bytes.length; ) {
        const next = at + 1 + random(40)
        reader.push(bytes.subarray(at, next))
        at = next
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      errors++
    }
  }
  t.ok(errors > rounds / 10 && frames > rounds, `${frames} frames, ${errors} named errors`)
})
