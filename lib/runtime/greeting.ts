/**
 * Both ends of a connection prove that they know the shared secret, before anything else is said. No I/O.
 * Owner: page runtime/greeting.
 *
 *   gateway ── hello { nonce } ──► daemon      neither nonce was ever used before, so no proof can be played again
 *           ◄── hello { nonce } ──
 *           ── hello { proof } ──►             the caller proves first: a stranger who connects learns nothing
 *           ◄── hello { proof } ──
 */

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { PROTOCOL_VERSION } from '../core/limits.ts'
import { escapeUnsafe } from '../core/text.ts'
import { encodeHello, KIND, type Kind, parseHeader, ProtocolError } from './wire-protocol.ts'

/** Most bytes of a frame from a peer that has not proved itself, and of a reason why it refuses. */
const MAX_HELLO_BYTES = 4096 + 16
const MAX_REFUSAL_BYTES = 64 * 1024
const MAX_REASON_CHARS = 300
const NONCE_BYTES = 32
const NONCE = /^[A-Za-z0-9_-]{43}$/
const SCHEME = 'fngw-greeting-1'
const HELLO = new Map<number, number>([[KIND.hello, MAX_HELLO_BYTES]])
const HELLO_OR_REFUSAL = new Map<number, number>([...HELLO, [KIND.error, MAX_REFUSAL_BYTES]])

/** Why a connection ends before it began, in words for people. */
export class GreetingError extends Error {}

interface GreetingOptions {
  secret: string
  send(frame: Buffer): void
  /** A text that is unique to the encrypted connection below; '' where there is none. Asked for when the first proof is made. */
  binding(): string
}

/**
 * @param side - who proves: a proof of one is none of the other
 * @returns base64url
 */
export function toProof(
  secret: string,
  side: 'gateway' | 'daemon',
  nonces: { gateway: string; daemon: string },
  binding: string,
): string {
  const text = [SCHEME, side, nonces.gateway, nonces.daemon, binding].join('\n')
  return createHmac('sha256', secret).update(text).digest('base64url')
}

/** Constant time for texts of the right length; the length of a proof is not secret. */
function isProof(given: unknown, right: string): boolean {
  if (typeof given !== 'string') return false
  const [a, b] = [Buffer.from(given), Buffer.from(right)]
  return a.length === b.length && timingSafeEqual(a, b)
}

function toNonce(): string {
  return randomBytes(NONCE_BYTES).toString('base64url')
}

/** The gateway's end. */
export class GatewayGreeting {
  readonly #options: GreetingOptions
  readonly #reader = new OpeningReader()
  readonly #nonce = toNonce()
  /** The proof that the daemon has to send; null before its nonce is known. */
  #wanted: string | null = null

  constructor(options: GreetingOptions) {
    this.#options = options
    options.send(encodeHello({ nonce: this.#nonce }))
  }

  /**
   * @param chunk - the next bytes of the daemon
   * @returns what follows the greeting, once the daemon has proved itself; null before
   * @throws GreetingError
   */
  push(chunk: Uint8Array): Buffer | null {
    this.#reader.push(chunk)
    for (;;) {
      const frame = readHello(this.#reader, HELLO_OR_REFUSAL)
      if (frame === null) return null
      const { fields } = frame
      if (frame.kind === KIND.error) {
        const reason = typeof fields.message === 'string' ? fields.message : 'it gives no reason'
        throw new GreetingError(`the daemon refuses: ${escapeUnsafe(reason.slice(0, MAX_REASON_CHARS))}`)
      }
      if (this.#wanted === null) this.#answer(fields.nonce)
      else if (isProof(fields.proof, this.#wanted)) return this.#reader.rest()
      else throw new GreetingError('the daemon does not know FN_RUNTIME_SECRET: its proof is wrong')
    }
  }

  #answer(nonce: unknown): void {
    if (typeof nonce !== 'string' || !NONCE.test(nonce)) throw new GreetingError('the daemon sends no challenge')
    const { secret, binding, send } = this.#options
    const nonces = { gateway: this.#nonce, daemon: nonce }
    const bound = binding()
    this.#wanted = toProof(secret, 'daemon', nonces, bound)
    send(encodeHello({ proof: toProof(secret, 'gateway', nonces, bound) }))
  }
}

/** The purpose of a gateway's connection. */
export interface Role {
  role: 'control' | 'worker'
  /** Which worker; '' for the control connection. */
  worker: string
}

interface DaemonGreetingOptions extends Omit<GreetingOptions, 'secret'> {
  /** Null where who can connect may: on a unix socket, or on the loopback address. */
  secret: string | null
}

/** The daemon's end, up to the `hello` that says what the connection is for. */
export class DaemonGreeting {
  readonly #options: DaemonGreetingOptions
  readonly #reader = new OpeningReader()
  /** The proof that the gateway has to send, and the daemon's; null before its nonce is known. */
  #wanted: { gateway: string; daemon: string } | null = null
  #isProven: boolean

  constructor(options: DaemonGreetingOptions) {
    this.#options = options
    this.#isProven = options.secret === null
  }

  /**
   * @param chunk - the next bytes of the gateway
   * @returns the role, and what follows it, once both are proved; null before
   * @throws GreetingError whose text the peer may see
   */
  push(chunk: Uint8Array): (Role & { rest: Buffer }) | null {
    this.#reader.push(chunk)
    for (;;) {
      const frame = readHello(this.#reader, HELLO)
      if (frame === null) return null
      const { fields, body } = frame
      if (body[0] !== PROTOCOL_VERSION || body.length !== 1)
        throw new GreetingError(`protocol version ${body[0] ?? 'none'} is not spoken here`)
      if (this.#isProven) return { ...toRole(fields), rest: this.#reader.rest() }
      if (this.#wanted === null) this.#challenge(fields.nonce)
      else this.#check(fields.proof, this.#wanted)
    }
  }

  #challenge(nonce: unknown): void {
    if (typeof nonce !== 'string' || !NONCE.test(nonce))
      throw new GreetingError('a shared secret is needed here: set FN_RUNTIME_SECRET for the gateway')
    const { secret, binding, send } = this.#options
    const nonces = { gateway: nonce, daemon: toNonce() }
    const bound = binding()
    this.#wanted = {
      gateway: toProof(secret!, 'gateway', nonces, bound),
      daemon: toProof(secret!, 'daemon', nonces, bound),
    }
    send(encodeHello({ nonce: nonces.daemon }))
  }

  #check(proof: unknown, { gateway, daemon }: { gateway: string; daemon: string }): void {
    if (!isProof(proof, gateway))
      throw new GreetingError('the proof is wrong: FN_RUNTIME_SECRET of the gateway is not the one of the daemon')
    this.#isProven = true
    this.#options.send(encodeHello({ proof: daemon }))
  }
}

function toRole({ role, worker, nonce }: Record<string, unknown>): Role {
  if (role === 'control') return { role, worker: '' }
  if (role === 'worker' && typeof worker === 'string' && worker !== '') return { role, worker }
  throw new GreetingError(
    nonce === undefined
      ? 'hello must name the role control, or worker and which one'
      : 'no shared secret is set here: set FN_RUNTIME_SECRET for the daemon, or do not set it for the gateway',
  )
}

function readHello(
  reader: OpeningReader,
  expected: Expected,
): (OpeningFrame & { fields: Record<string, unknown> }) | null {
  try {
    const frame = reader.next(expected)
    return frame && { ...frame, fields: parseHeader(frame.header) }
  } catch (error) {
    throw new GreetingError(`protocol error: ${(error as Error).message}`)
  }
}

// The first frames of a connection: few, small, one at a time. The peer has not proved yet who it is.

/** Bytes before the header, and what of them the length word counts. */
const PREFIX_BYTES = 13
const FIXED_BYTES = 9

interface OpeningFrame {
  kind: Kind
  id: number
  header: string
  body: Buffer
}

/** Kinds that may come next, each with the most bytes of header and body together. */
type Expected = ReadonlyMap<number, number>

export class OpeningReader {
  #bytes: Buffer = Buffer.alloc(0)

  /** @param chunk - the next bytes; they are copied, so that the caller may use its memory again */
  push(chunk: Uint8Array): void {
    this.#bytes = Buffer.concat([this.#bytes, chunk])
  }

  /**
   * @returns the next frame, null while it is not whole
   * @throws ProtocolError as soon as the bytes that are here show a frame that is not expected, or too large
   */
  next(expected: Expected): OpeningFrame | null {
    const bytes = this.#bytes
    if (bytes.length < 4) return null
    const length = bytes.readUInt32BE(0)
    const most = Math.max(...expected.values())
    if (length < FIXED_BYTES)
      throw new ProtocolError('FRAME_TOO_SHORT', `frame length ${length} is below ${FIXED_BYTES}`)
    if (length > FIXED_BYTES + most) {
      throw new ProtocolError('FRAME_TOO_LONG', `frame length ${length} is above ${FIXED_BYTES + most}`)
    }
    if (bytes.length < PREFIX_BYTES) return null
    const kind = bytes[4]!
    const limit = expected.get(kind)
    if (limit === undefined) throw new ProtocolError('UNKNOWN_KIND', `frame kind ${kind} is not expected now`)
    if (length > FIXED_BYTES + limit)
      throw new ProtocolError('FRAME_TOO_LONG', `frame length ${length} is above ${FIXED_BYTES + limit}`)
    const headerBytes = bytes.readUInt32BE(9)
    if (headerBytes > length - FIXED_BYTES)
      throw new ProtocolError('HEADER_TOO_LONG', 'frame header is longer than its frame')
    if (bytes.length < 4 + length) return null
    const bodyAt = PREFIX_BYTES + headerBytes
    this.#bytes = bytes.subarray(4 + length)
    return {
      kind: kind as Kind,
      id: bytes.readUInt32BE(5),
      header: bytes.toString('utf8', PREFIX_BYTES, bodyAt),
      body: bytes.subarray(bodyAt, 4 + length),
    }
  }

  /** Takes what is left: it belongs to what comes after the opening. */
  rest(): Buffer {
    const bytes = this.#bytes
    this.#bytes = Buffer.alloc(0)
    return bytes
  }
}
