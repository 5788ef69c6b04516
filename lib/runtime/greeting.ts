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
import { encodeHello, type FrameReader, KIND, parseHeader } from './wire-protocol.ts'

const MAX_REASON_CHARS = 300
const NONCE_BYTES = 32
const NONCE = /^[A-Za-z0-9_-]{43}$/
const SCHEME = 'fngw-greeting-1'

/** Why a connection ends before it began, in words for people. */
class GreetingError extends Error {}

/** Why a connection ends, from what its reader threw. */
export function toProblem(error: unknown): string {
  const { message } = error as Error
  return error instanceof GreetingError ? message : `protocol error: ${message}`
}

interface GreetingOptions {
  /** For the daemon's end null where who can connect may: on a unix socket, or on the loopback address. */
  secret: string | null
  send(frame: Buffer): void
  /** A text that is unique to the encrypted connection below; '' where there is none. Asked for when the first proof is made. */
  binding(): string
}

interface Nonces {
  gateway: string
  daemon: string
}

/**
 * @param side - who proves: a proof of one is none of the other
 * @returns base64url
 */
export function toProof(secret: string, side: keyof Nonces, nonces: Nonces, binding: string): string {
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

/** @throws GreetingError with `problem` for anything but a nonce */
function checkNonce(nonce: unknown, problem: string): string {
  if (typeof nonce !== 'string' || !NONCE.test(nonce)) throw new GreetingError(problem)
  return nonce
}

/**
 * The gateway's end. `reader.push` throws GreetingError when the daemon does not prove itself.
 * @param reader - of the connection; it takes frames as usual once the daemon has proved itself
 */
export function greetDaemon(
  reader: FrameReader,
  { secret, send, binding }: GreetingOptions & { secret: string },
  onProven: () => void,
): void {
  const nonce = toNonce()
  let proofOf: ((side: keyof Nonces) => string) | null = null
  reader.guard([KIND.hello, KIND.error], (kind, _id, header) => {
    const fields = parseHeader(header)
    if (kind === KIND.error) {
      const reason = typeof fields.message === 'string' ? fields.message : 'it gives no reason'
      throw new GreetingError(`the daemon refuses: ${escapeUnsafe(reason.slice(0, MAX_REASON_CHARS))}`)
    }
    if (proofOf === null) {
      const nonces = { gateway: nonce, daemon: checkNonce(fields.nonce, 'the daemon sends no challenge') }
      const bound = binding()
      proofOf = side => toProof(secret, side, nonces, bound)
      send(encodeHello({ proof: proofOf('gateway') }))
    } else if (isProof(fields.proof, proofOf('daemon'))) {
      reader.open()
      onProven()
    } else throw new GreetingError('the daemon does not know FN_RUNTIME_SECRET: its proof is wrong')
  })
  send(encodeHello({ nonce }))
}

/** The purpose of a gateway's connection. */
export interface Role {
  role: 'control' | 'worker'
  /** Which worker; '' for the control connection. */
  worker: string
}

/**
 * The daemon's end, up to the `hello` that says what the connection is for. `reader.push` throws GreetingError, whose text the peer
 * may see.
 * @param onRole - called once; `reader` stops there
 */
export function greetGateway(
  reader: FrameReader,
  { secret, send, binding }: GreetingOptions,
  onRole: (role: Role) => void,
): void {
  let isProven = secret === null
  let proofOf: ((side: keyof Nonces) => string) | null = null
  reader.guard([KIND.hello], (_kind, _id, header, body) => {
    const fields = parseHeader(header)
    if (body[0] !== PROTOCOL_VERSION || body.length !== 1)
      throw new GreetingError(`protocol version ${body[0] ?? 'none'} is not spoken here`)
    if (isProven) {
      const role = toRole(fields)
      reader.stop()
      onRole(role)
    } else if (proofOf === null) {
      const problem = 'a shared secret is needed here: set FN_RUNTIME_SECRET for the gateway'
      const nonces = { gateway: checkNonce(fields.nonce, problem), daemon: toNonce() }
      const bound = binding()
      proofOf = side => toProof(secret!, side, nonces, bound)
      send(encodeHello({ nonce: nonces.daemon }))
    } else if (isProof(fields.proof, proofOf('gateway'))) {
      isProven = true
      send(encodeHello({ proof: proofOf('daemon') }))
    } else throw new GreetingError('the proof is wrong: FN_RUNTIME_SECRET of the gateway is not the one of the daemon')
  })
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
