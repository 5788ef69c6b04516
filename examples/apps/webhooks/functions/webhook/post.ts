// @summary Receive a signed event
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { FnEvent } from 'fngw'

/** Older requests are refused, so that a recorded request cannot be replayed later. */
const TOLERANCE_S = 300

type Env = FnEvent['env']

/** The signature of the Standard Webhooks: HMAC-SHA256 of `id.timestamp.body`, in base64, one per active secret. */
function isSigned({ headers, body, env }: FnEvent): boolean {
  const { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': signatures = '' } = headers
  const isFresh = Math.abs(Date.now() / 1000 - Number(time)) <= TOLERANCE_S
  if (!id || !isFresh) return false
  const expected = createHmac('sha256', env.WEBHOOK_SECRET!).update(`${id}.${time}.${body}`).digest()
  return signatures.split(' ').some(signature => {
    const [version, digest = ''] = signature.split(',')
    const given = Buffer.from(digest, 'base64')
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected)
  })
}

/** The delivery's id is the idempotency key: a sender that repeats a delivery gets the same job, not a second one. */
function createJob(id: string, message: object, env: Env): Promise<Response> {
  return fetch(`${env.GATEWAY_URL}/_fn/jobs`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'Idempotency-Key': id,
      'x-fn-admin-token': env.GATEWAY_TOKEN!,
    },
    body: JSON.stringify({
      name: 'notify',
      method: 'POST',
      body: message,
      max_attempts: 6,
      retry_delay_ms: Number(env.RETRY_DELAY_MS),
      backoff: 4,
    }),
    signal: AbortSignal.timeout(2000),
  })
}

interface OrderPaid {
  type: 'order.paid'
  data: { order: string; cents: number }
}

/** Null for an event of another type or form. */
function parse(body: string): OrderPaid | null {
  try {
    const { type, data } = JSON.parse(body)
    const isValid = type === 'order.paid' && typeof data?.order === 'string' && Number.isSafeInteger(data.cents)
    return isValid ? { type, data: { order: data.order.slice(0, 40), cents: data.cents } } : null
  } catch {
    return null
  }
}

export async function handler(event: FnEvent) {
  // First of all: nothing of an unsigned body is parsed.
  if (!isSigned(event)) return { status: 401, body: { error: 'invalid signature' } }
  const id = event.headers['webhook-id']!
  const paid = parse(event.body ?? '')
  // Senders retry what is not 2xx. An event that this receiver does not know stays unknown, so it is accepted.
  if (paid === null) return { status: 202, body: { id, job: null } }
  const { order, cents } = paid.data
  const created = await createJob(id, { id, text: `Order ${order} paid: ${(cents / 100).toFixed(2)} EUR` }, event.env)
  if (created.status === 409) return { status: 409, body: { error: `${id} was sent before with another body` } }
  if (!created.ok) {
    console.error(`cannot create a job: ${created.status} ${await created.text()}`)
    return { status: 503, headers: { 'Retry-After': '10' }, body: { error: 'try again later' } }
  }
  const job = (await created.json()) as { id: string }
  return { status: 202, body: { id, job: job.id } }
}
