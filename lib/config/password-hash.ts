/** Password hashes: a slow hash with its salt and its costs. Owner: §2.15, page control/session. */

import { randomBytes, scryptSync } from 'node:crypto'

/** A hash that can be checked: by scrypt, or by PBKDF2 as other gateways of this kind write it. */
export type PasswordHash =
  | { kind: 'scrypt'; cost: number; blockSize: number; parallel: number; salt: Buffer; digest: Buffer }
  | { kind: 'pbkdf2'; iterations: number; salt: Buffer; digest: Buffer }

const HEX = '((?:[0-9a-f]{2}){16,64})'
const SCRYPT = new RegExp(`^scrypt:(\\d{4,6}):(\\d{1,2}):(\\d):${HEX}:${HEX}$`, 'i')
const PBKDF2 = /^pbkdf2-sha256:(\d{6,7}):((?:[0-9a-f]{2}){8,64}):((?:[0-9a-f]{2}){32})$/i

/** Checking one password may take this much memory, bytes. */
export const MAX_SCRYPT_BYTES = 128 * 1024 * 1024
const MIN_COST = 16_384
/** OWASP's lowest figure for PBKDF2 is higher; this one keeps hashes that are in use. */
const MIN_ITERATIONS = 100_000

/**
 * Reads `scrypt:<N>:<r>:<p>:<salt hex>:<digest hex>` or `pbkdf2-sha256:<iterations>:<salt hex>:<digest hex>`.
 * @returns null when it is neither, too weak to keep a password, or too expensive to check
 */
export function parsePasswordHash(text: string): PasswordHash | null {
  const scrypt = SCRYPT.exec(text)
  if (scrypt !== null) {
    const [cost, blockSize, parallel] = [Number(scrypt[1]), Number(scrypt[2]), Number(scrypt[3])]
    const isPower = Number.isInteger(Math.log2(cost))
    const isSane = cost >= MIN_COST && isPower && blockSize >= 1 && parallel >= 1
    if (!isSane || 128 * cost * blockSize * parallel > MAX_SCRYPT_BYTES) return null
    return { kind: 'scrypt', cost, blockSize, parallel, salt: fromHex(scrypt[4]), digest: fromHex(scrypt[5]) }
  }
  const pbkdf2 = PBKDF2.exec(text)
  const iterations = Number(pbkdf2?.[1])
  if (pbkdf2 === null || iterations < MIN_ITERATIONS || iterations > 5_000_000) return null
  return { kind: 'pbkdf2', iterations, salt: fromHex(pbkdf2[2]), digest: fromHex(pbkdf2[3]) }
}

/** Costs of new passwords: some 50 ms and 32 MiB to check. */
const NEW = { cost: 32_768, blockSize: 8, parallel: 1, saltBytes: 16, digestBytes: 32 } as const

/** A hash with a new salt, as `parsePasswordHash` reads it. */
export function toPasswordHash(password: string): string {
  const { cost, blockSize, parallel, saltBytes, digestBytes } = NEW
  const salt = randomBytes(saltBytes)
  const costs = { N: cost, r: blockSize, p: parallel, maxmem: 2 * MAX_SCRYPT_BYTES }
  const digest = scryptSync(password, salt, digestBytes, costs)
  return ['scrypt', cost, blockSize, parallel, salt.toString('hex'), digest.toString('hex')].join(':')
}

function fromHex(text: string | undefined): Buffer {
  return Buffer.from(text ?? '', 'hex')
}
