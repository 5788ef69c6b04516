import { createHmac, timingSafeEqual } from 'node:crypto'
import type { FnEvent } from 'fngw'

/** The only head that is accepted: the token does not choose how it is checked. */
const HEAD = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString('base64url')

/** The user of a valid token; null for none. */
export function readUser({ headers, env }: FnEvent): string | null {
  const [scheme, token = ''] = (headers.authorization ?? '').split(' ')
  const [head, claims = '', signature = ''] = token.split('.')
  if (scheme !== 'Bearer' || head !== HEAD) return null
  const expected = createHmac('sha256', env.TOKEN_SECRET!).update(`${head}.${claims}`).digest()
  const given = Buffer.from(signature, 'base64url')
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null
  const { sub, exp } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as { sub: string; exp: number }
  return exp > Date.now() / 1000 ? sub : null
}
