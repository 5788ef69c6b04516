/** One request to the server under test, byte for byte as a case has it. Owner: page bin/conformance. */

import { Agent, type IncomingMessage, request } from 'node:http'
import { Agent as SecureAgent, request as secureRequest } from 'node:https'

export interface SendOptions {
  method?: string
  /** Request target. */
  path: string
  headers?: Record<string, string | string[]>
  body?: string | Buffer
}

export interface Answer {
  status: number
  /** As the client library joins them; `set-cookie` is a list. */
  headers: IncomingMessage['headers']
  /** Names and values in turn. */
  rawHeaders: string[]
  body: Buffer
  text: string
}

/** Where requests go; connections are used again. */
export interface HttpTarget {
  readonly isSecure: boolean
  readonly address: { agent: Agent; hostname: string; port: number | undefined; timeout: number }
  close(): void
}

/** Milliseconds without a byte after which an answer is none. */
const SILENCE_MS = 60_000

/** @param url - scheme, host and port count */
export function toHttpTarget(url: URL): HttpTarget {
  const isSecure = url.protocol === 'https:'
  const agent = isSecure ? new SecureAgent({ keepAlive: true }) : new Agent({ keepAlive: true })
  const hostname = url.hostname.replace(/^\[|\]$/g, '')
  const port = url.port === '' ? undefined : Number(url.port)
  return { isSecure, address: { agent, hostname, port, timeout: SILENCE_MS }, close: () => agent.destroy() }
}

export function send(server: HttpTarget, { method = 'GET', path, headers = {}, body }: SendOptions): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = (server.isSecure ? secureRequest : request)(
      { ...server.address, method, path, headers },
      incoming => {
        const chunks: Buffer[] = []
        incoming.on('data', chunk => chunks.push(chunk))
        incoming.on('error', reject)
        incoming.on('end', () => {
          const bytes = Buffer.concat(chunks)
          resolve({
            status: incoming.statusCode ?? 0,
            headers: incoming.headers,
            rawHeaders: incoming.rawHeaders,
            body: bytes,
            text: bytes.toString('utf8'),
          })
        })
      },
    )
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no byte within ${SILENCE_MS / 1000} s`)))
    outgoing.on('error', reject)
    // As bytes: text would make node write the header block in the encoding of the text.
    outgoing.end(body === undefined ? undefined : Buffer.from(body))
  })
}
