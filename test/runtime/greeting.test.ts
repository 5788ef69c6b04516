import t from 'tap'
import { greetDaemon, greetGateway, type Role, toProblem, toProof } from '../../lib/runtime/greeting.ts'
import { encodeFrame, FrameReader, KIND, parseHeader } from '../../lib/runtime/wire-protocol.ts'

const SECRET = '0123456789abcdef0123456789abcdef'

/** One end of a connection. */
interface End {
  /** Takes bytes of the other end. @returns those behind the greeting, null before its end; throws the reason why it ends */
  push: (bytes: Buffer) => Buffer | null
  role: Role | null
}

interface Ends {
  /** What each sent, not delivered yet. */
  toDaemon: Buffer[]
  toGateway: Buffer[]
  gateway: End
  daemon: End
}

function makeEnd(begin: (reader: FrameReader, end: End, onDone: () => void) => void): End {
  const rest: Buffer[] = []
  const reader = new FrameReader((kind, id, header, body) => rest.push(encodeFrame(kind, id, header, body)))
  let isDone = false
  const push = (bytes: Buffer): Buffer | null => {
    let taken: number
    try {
      taken = reader.push(bytes)
    } catch (error) {
      throw new Error(toProblem(error))
    }
    return isDone ? Buffer.concat([...rest.splice(0), bytes.subarray(taken)]) : null
  }
  const end: End = { push, role: null }
  begin(reader, end, () => {
    isDone = true
  })
  return end
}

function makeEnds(secrets: { gateway?: string; daemon?: string | null } = {}, bindings = ['', '']): Ends {
  const toDaemon: Buffer[] = []
  const toGateway: Buffer[] = []
  const { gateway = SECRET, daemon = SECRET } = secrets
  return {
    toDaemon,
    toGateway,
    daemon: makeEnd((reader, end, onDone) => {
      const options = { secret: daemon, send: (frame: Buffer) => toGateway.push(frame), binding: () => bindings[1]! }
      greetGateway(reader, options, role => {
        end.role = role
        onDone()
      })
    }),
    gateway: makeEnd((reader, _end, onDone) => {
      const options = { secret: gateway, send: (frame: Buffer) => toDaemon.push(frame), binding: () => bindings[0]! }
      greetDaemon(reader, options, onDone)
    }),
  }
}

const take = (frames: Buffer[]): Buffer => Buffer.concat(frames.splice(0))
const hello = (fields: object): Buffer => encodeFrame(KIND.hello, 0, JSON.stringify(fields), Buffer.from([1]))

function read(bytes: Buffer): Record<string, unknown>[] {
  const all: Record<string, unknown>[] = []
  new FrameReader((_kind, _id, header) => all.push(parseHeader(header))).push(bytes)
  return all
}

t.test('[runtime/greeting.1] four hellos, then what the connection is for', async t => {
  const { gateway, daemon, toDaemon, toGateway } = makeEnds()
  t.same(read(Buffer.concat(toDaemon)).map(Object.keys), [['nonce']])
  t.equal(daemon.push(take(toDaemon)), null)
  t.same(read(Buffer.concat(toGateway)).map(Object.keys), [['nonce']])
  t.equal(gateway.push(take(toGateway)), null)
  t.same(read(Buffer.concat(toDaemon)).map(Object.keys), [['proof']])
  const role = hello({ role: 'worker', worker: 'w-1' })
  const behind = daemon.push(Buffer.concat([take(toDaemon), role, Buffer.from('rest')]))
  t.same([daemon.role, behind], [{ role: 'worker', worker: 'w-1' }, Buffer.from('rest')])
  const ready = encodeFrame(KIND.ready, 0, '{}', null)
  t.same(gateway.push(Buffer.concat([take(toGateway), ready])), ready, 'what follows is taken as usual')
})

t.test('[runtime/greeting.2] a proof is the HMAC of both nonces, of the side and of the connection', async t => {
  const nonces = { gateway: 'g'.repeat(43), daemon: 'd'.repeat(43) }
  // openssl dgst -sha256 -hmac of the lines, as base64url.
  t.equal(toProof(SECRET, 'gateway', nonces, ''), 'BQ7PCl52-SFQc7kaNacOmEv1tv92Uh2l9jFwxj2kgVE')
  t.equal(toProof(SECRET, 'daemon', nonces, 'bound'), 'QsZGIOEGGSaeDfhMvg1Trfy--lWZX59m8OojJFEBJXo')
})

t.test('[runtime/greeting.3] nothing that was heard before proves anything', async t => {
  const first = makeEnds()
  const nonceFrame = take(first.toDaemon)
  first.daemon.push(nonceFrame)
  const challenge = take(first.toGateway)
  first.gateway.push(challenge)
  const proofFrame = take(first.toDaemon)
  first.daemon.push(proofFrame)
  const answer = take(first.toGateway)

  const replayed = makeEnds()
  replayed.daemon.push(nonceFrame)
  t.throws(() => replayed.daemon.push(proofFrame), /the proof is wrong/, 'the proof of a gateway, played again')
  t.throws(() => makeEnds().gateway.push(Buffer.concat([challenge, answer])), /its proof is wrong/, 'and of a daemon')

  // A daemon that knows nothing sends back what it gets.
  const mirror = makeEnds()
  mirror.gateway.push(take(mirror.toDaemon))
  t.throws(() => mirror.gateway.push(take(mirror.toDaemon)), /its proof is wrong/, 'a reflected proof')

  // Somebody in between speaks TLS with both and hands everything on.
  const between = makeEnds({}, ['one', 'other'])
  between.daemon.push(take(between.toDaemon))
  between.gateway.push(take(between.toGateway))
  t.throws(() => between.daemon.push(take(between.toDaemon)), /the proof is wrong/, 'of another connection')
})

t.test('[runtime/greeting.4] a stranger who connects gets no proof, and one proof is as long as another', async t => {
  const { daemon, toGateway } = makeEnds()
  daemon.push(hello({ nonce: 'A'.repeat(43) }))
  const [challenge] = read(take(toGateway))
  t.same(Object.keys(challenge!), ['nonce'], 'no proof before the gateway gave one')
  for (const proof of ['', 'x', 'A'.repeat(43), 'A'.repeat(4000), 5, null, { length: 43 }, ['A']]) {
    const one = makeEnds()
    one.daemon.push(hello({ nonce: 'A'.repeat(43) }))
    t.throws(() => one.daemon.push(hello({ proof })), /the proof is wrong/, JSON.stringify(proof)?.slice(0, 20))
    t.same(read(take(one.toGateway)).length, 1)
  }
})

t.test('[runtime/greeting.5] before the proof there are small hellos, and nothing else', async t => {
  const cases: [Buffer, RegExp][] = [
    [Buffer.from('GET / HTTP/1.1\r\nHost: a\r\n\r\n'), /frame length/],
    [Buffer.from([255, 255, 255, 255]), /frame length 4294967295 is above/],
    [encodeFrame(KIND.start, 1, '{}', null), /kind 3 is not expected/],
    [encodeFrame(KIND.hello, 0, '[]', Buffer.from([1])), /not a JSON object/],
    [encodeFrame(KIND.hello, 0, '{', Buffer.from([1])), /not JSON/],
    [encodeFrame(KIND.hello, 0, '{}', Buffer.from([2])), /protocol version 2 is not spoken/],
    [encodeFrame(KIND.hello, 0, '{}', null), /protocol version none/],
    [hello({ nonce: 'short' }), /a shared secret is needed here/],
    [hello({ nonce: `${'A'.repeat(42)}=` }), /a shared secret is needed here/],
    [hello({ role: 'control' }), /set FN_RUNTIME_SECRET for the gateway/],
  ]
  for (const [bytes, reason] of cases) t.throws(() => makeEnds().daemon.push(bytes), reason, String(reason))
  const { gateway } = makeEnds()
  t.throws(() => gateway.push(encodeFrame(KIND.ready, 0, '{}', null)), /kind 2 is not expected/)
  const long = encodeFrame(KIND.error, 0, JSON.stringify({ message: `\u001b[2Jno${'!'.repeat(999)}` }), null)
  t.throws(() => makeEnds().gateway.push(long), /^the daemon refuses: \\u001b\[2Jno!{1,300}$/)
})

t.test('[runtime/greeting.9] each side says which of them lacks the secret, or that they differ', async t => {
  const differs = makeEnds({ daemon: SECRET.replace('0', '1') })
  differs.daemon.push(take(differs.toDaemon))
  differs.gateway.push(take(differs.toGateway))
  t.throws(() => differs.daemon.push(take(differs.toDaemon)), /FN_RUNTIME_SECRET of the gateway is not the one/)
  const without = makeEnds({ daemon: null })
  t.throws(() => without.daemon.push(take(without.toDaemon)), /no shared secret is set here/)
  t.throws(() => makeEnds().gateway.push(hello({ role: 'control' })), /the daemon sends no challenge/)
})

t.test('[runtime/greeting.6] without a secret the first hello is the one that was always the first', async t => {
  const { daemon } = makeEnds({ daemon: null })
  t.same(daemon.push(hello({ role: 'control' })), Buffer.alloc(0))
  t.same(daemon.role, { role: 'control', worker: '' })
  t.throws(() => makeEnds({ daemon: null }).daemon.push(hello({ role: 'worker' })), /and which one/)
})
