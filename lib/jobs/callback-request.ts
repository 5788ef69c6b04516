/**
 * One POST to the `callback_url` of a job, held to the rules of edge requests: every address of the name is checked and only
 * those are reached, redirects are not followed, certificates are always checked. Spec: page jobs/callback-sender.
 */

import { createHmac } from 'node:crypto'
import { isIP } from 'node:net'
import type { Clock } from '../core/clock.ts'
import type { EdgePolicy } from '../core/catalog.ts'
import type { EdgeLookup, OwnAddresses, ResolvedAddress } from '../edge/addresses.ts'
import { checkAddresses, type EdgeConnections, sendPinned, type UpstreamRequest } from '../edge/connections.ts'
import { toTransferError } from '../edge/transfer.ts'
import { toEdgeRequest, toEdgeRules } from '../edge/target.ts'

/** Milliseconds within which an answer must have begun. */
export const CALLBACK_TIMEOUT_MS = 10_000

/** What the edge proxy of the gateway has and callbacks share. */
export interface CallbackNetwork {
  readonly clock: Clock
  readonly own: OwnAddresses
  readonly lookup: EdgeLookup
  readonly connections: EdgeConnections
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
}

/** What a callback carries. */
interface CallbackMessage {
  readonly jobId: string
  readonly url: string
  readonly body: Buffer
  /** Key of the signature, null for none. */
  readonly secret: string | null
}

/** Where nothing else is said: every public host, nothing private. */
const PUBLIC_ONLY: EdgePolicy = { baseUrl: null, allowHosts: [], allowPrivate: false, maxResponseBytes: 1 }
const LIMITS = { policy: { timeoutMs: CALLBACK_TIMEOUT_MS } }

/**
 * @param policy - `edge` of the function: its hosts, and whether they may be private; null for none
 * @param signal - gives up
 * @returns null when the response is 2xx, else why the delivery failed and, where a setting decides, which one
 */
export async function sendCallback(
  network: CallbackNetwork,
  { jobId, url, body, secret }: CallbackMessage,
  policy: EdgePolicy | null,
  signal: AbortSignal,
): Promise<string | null> {
  const edge = policy ?? PUBLIC_ONLY
  try {
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'fngw-jobs',
      'x-job-id': jobId,
      ...(secret !== null && { 'x-fn-signature': toSignature(body, secret, network.clock.wall()) }),
    }
    const request = toEdgeRequest({ url, method: 'POST', headers }, toEdgeRules(edge), LIMITS, () => 'POST')
    const family = isIP(request.hostname)
    const found = family === 0 ? await resolve(network, request.hostname) : [{ address: request.hostname, family }]
    signal.throwIfAborted()
    const addresses = checkAddresses(found, request, edge.allowPrivate, network.own)
    const status = await post(network, request, addresses, body, signal)
    return status >= 200 && status < 300 ? null : `HTTP ${status}`
  } catch (error) {
    return toReason(error)
  }
}

/**
 * The value of `X-Fn-Signature`: `t=<seconds>,v1=<hex>`, where v1 is HMAC-SHA256 of `<seconds>.<body>`. The time is signed too, so
 * that a receiver can refuse a request that is sent again later.
 * @param wall - ms
 */
function toSignature(body: Buffer, secret: string, wall: number): string {
  const seconds = Math.floor(wall / 1000)
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex')}`
}

function resolve({ lookup }: CallbackNetwork, hostname: string): Promise<readonly ResolvedAddress[]> {
  return lookup.addresses(hostname).catch(error => {
    throw toTransferError(error)
  })
}

/** @returns the status; the body of the answer is not wanted */
function post(
  { clock, connections, ca }: CallbackNetwork,
  request: ReturnType<typeof toEdgeRequest>,
  addresses: ReturnType<typeof checkAddresses>,
  body: Buffer,
  signal: AbortSignal,
): Promise<number> {
  return new Promise((resolve, reject) => {
    let sent: UpstreamRequest | null = null
    const timer = clock.setTimeout(() => end(new Error('no answer in time')), CALLBACK_TIMEOUT_MS)
    const onAbort = () => end(new Error('given up'))
    const end = (outcome: number | Error) => {
      clock.clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      sent?.destroy()
      if (typeof outcome === 'number') resolve(outcome)
      else reject(outcome)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      sent = sendPinned({ connections, ca }, request, [], addresses, body, 'none', {
        onHead: ({ status }) => end(status === 101 ? new Error('asked for another protocol') : status),
        onPiece: () => {},
        onRead: () => {},
        onEnd: () => {},
        onError: error => end(toTransferError(error)),
      })
    } catch (error) {
      end(error as Error)
    }
  })
}

/** Refusals of the gateway that a field of the function's config allows. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [
    /^private host not allowed$/,
    'set "edge": {"allow_private": true} in the function\'s fn.config.json to allow private addresses',
  ],
  [/^host not in allowlist$/, "add the host to edge.allow_hosts in the function's fn.config.json"],
]

/** The words of edge failures, without the part that names the proxy. */
function toReason(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const reason = message
    .replace(/^edge proxy failed: (?:proxy (?:request failed|denied): )?/, '')
    .replaceAll('proxy.url', 'callback_url')
  const hint = HINTS.find(([pattern]) => pattern.test(reason))
  return hint === undefined ? reason : `${reason}: ${hint[1]}`
}
