// POST /webhook: accepts a delivery only when its HMAC signature is right.
import { createHmac, timingSafeEqual } from 'node:crypto'

interface WebhookEvent {
  id: string
  body: string | null
  headers: Record<string, string>
  env: Record<string, string>
}

interface Delivery {
  action?: string
}

function isSignatureValid(body: string, signature: string, secret: string): boolean {
  const expected = Buffer.from(`sha256=${createHmac('sha256', secret).update(body).digest('hex')}`)
  const given = Buffer.from(signature)
  return given.length === expected.length && timingSafeEqual(given, expected)
}

export async function handler(event: WebhookEvent) {
  const secret = event.env.WEBHOOK_SECRET
  if (!secret) return { status: 500, body: { error: 'WEBHOOK_SECRET is not set in fn.env.json' } }
  const body = event.body ?? ''
  if (!isSignatureValid(body, event.headers['x-signature-256'] ?? '', secret)) {
    return { status: 401, body: { error: 'signature missing or wrong' } }
  }
  let delivery: Delivery
  try {
    delivery = JSON.parse(body) as Delivery
  } catch {
    return { status: 400, body: { error: 'the body must be JSON' } }
  }
  return { status: 202, body: { accepted: event.id, action: delivery.action ?? null } }
}
