// @summary The user who is logged in (TypeScript)
import type { FnEvent } from 'fngw'
import { readUser } from './_token'

export function handler(event: FnEvent) {
  const user = readUser(event)
  if (user === null) return { status: 401, headers: { 'WWW-Authenticate': 'Bearer' }, body: { error: 'log in first' } }
  return { user }
}
