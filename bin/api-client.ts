/** Calls of a running gateway's `/_fn` by the commands that need one. Owner: page bin/api-client. */

import { type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { REQUEST_MARK } from '../lib/control/access.ts'
import { ADMIN_TOKEN_HEADER } from '../lib/invocation/forwarded-headers.ts'
import { CommandError } from './usage-error.ts'

/** Bytes of an answer that is read as a whole. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024

export interface ApiTarget {
  /** Such as `http://127.0.0.1:8080`, without a slash at its end. */
  url: string
  /** Admin token; null sends none. */
  token: string | null
}

interface ApiRequest {
  /** Fields that are null or undefined are left out. */
  query?: Readonly<Record<string, string | number | boolean | null | undefined>>
  /** Sent as JSON. */
  json?: unknown
  headers?: Readonly<Record<string, string>>
  signal?: AbortSignal
}

interface ApiAnswer {
  status: number
  /** Lower-case names. */
  headers: IncomingHttpHeaders
  body: Buffer
}

/** Nothing listens at the address: `fngw invoke --local` runs without a gateway. */
export class NoGatewayError extends CommandError {}

export class ApiClient {
  readonly target: ApiTarget

  constructor(target: ApiTarget) {
    this.target = target
  }

  /**
   * Asks for JSON.
   * @param path - such as `/_fn/catalog`
   * @throws CommandError for a refusal, with the gateway's reason and what to do
   */
  async json(method: string, path: string, request: ApiRequest = {}): Promise<unknown> {
    const answer = await this.send(method, path, request)
    if (answer.status >= 400) throw this.toRefusal(answer)
    return this.parse(answer)
  }

  /** The JSON of an answer. @throws CommandError when it is none */
  parse(answer: ApiAnswer): unknown {
    const value = parse(answer)
    if (value === undefined) throw this.#toStrange('no JSON')
    return value
  }

  /** Sends a request and reads its answer, whatever its status. @throws CommandError when there is none */
  async send(method: string, path: string, request: ApiRequest = {}): Promise<ApiAnswer> {
    const message = await this.#open(method, path, request)
    const chunks: Buffer[] = []
    let bytes = 0
    try {
      for await (const chunk of message) {
        bytes += (chunk as Buffer).length
        if (bytes > MAX_ANSWER_BYTES)
          throw new CommandError(`${this.target.url} sent more than ${MAX_ANSWER_BYTES} bytes to ${method} ${path}`)
        chunks.push(chunk as Buffer)
      }
    } catch (error) {
      throw this.#toCommandError(error)
    }
    return { status: message.statusCode ?? 0, headers: message.headers, body: Buffer.concat(chunks) }
  }

  /**
   * Opens an answer that goes on: pieces as they come, until its end or the signal.
   * @throws CommandError for a refusal, and when the answer breaks off
   */
  async *stream(method: string, path: string, request: ApiRequest = {}): AsyncGenerator<Buffer, void, undefined> {
    const message = await this.#open(method, path, request)
    const status = message.statusCode ?? 0
    if (status >= 400) {
      const body = await readShort(message)
      throw this.toRefusal({ status, headers: message.headers, body })
    }
    try {
      for await (const chunk of message) yield chunk as Buffer
    } catch (error) {
      if (request.signal?.aborted !== true) throw this.#toCommandError(error)
    }
  }

  /** The message printed for a response of 400 or more. */
  toRefusal(answer: ApiAnswer): CommandError {
    const { status } = answer
    const said = parse(answer) as { error?: unknown } | undefined
    if (typeof said?.error !== 'string') return this.#toStrange(`status ${status}`)
    const help = toHelp(status, said.error)
    return new CommandError(`the gateway at ${this.target.url} says ${status}: ${said.error}${help && `\n${help}`}`)
  }

  /** Resolves with the head of the answer. Redirects are not followed: they would carry the token elsewhere. */
  #open(method: string, path: string, request: ApiRequest): Promise<IncomingMessage> {
    const { url, token } = this.target
    const body = request.json === undefined ? null : Buffer.from(JSON.stringify(request.json))
    const headers: Record<string, string | number> = { ...request.headers, Accept: 'application/json, */*' }
    // What does something is refused without it, because a page could have sent the call.
    headers[REQUEST_MARK] = '1'
    if (token !== null) headers[ADMIN_TOKEN_HEADER] = token
    if (body !== null) {
      headers['Content-Type'] = 'application/json'
      headers['Content-Length'] = body.length
    }
    const target = `${url}${path}${toSearch(request.query ?? {})}`
    const open = target.startsWith('https:') ? requestHttps : requestHttp
    return new Promise((resolve, reject) => {
      const options = { method, headers, agent: false, ...(request.signal && { signal: request.signal }) }
      const outgoing = open(target, options, resolve)
      outgoing.on('error', error => reject(this.#toCommandError(error)))
      outgoing.end(body ?? undefined)
    })
  }

  #toStrange(what: string): CommandError {
    return new CommandError(
      `${this.target.url} answers, but not as this gateway does (${what}): give the gateway's address with --url`,
    )
  }

  #toCommandError(error: unknown): CommandError {
    if (error instanceof CommandError) return error
    const { url } = this.target
    const { code, message, name } = error as NodeJS.ErrnoException
    if (name === 'AbortError') return new CommandError('stopped', 130)
    if (code === 'ECONNREFUSED' || code === 'ENOENT')
      return new NoGatewayError(
        `no gateway answers at ${url}: start one with fngw dev, or pass its address with --url or --port`,
      )
    if (code === 'ENOTFOUND' || code === 'EAI_AGAIN')
      return new NoGatewayError(`cannot reach ${url}: unknown host name`)
    if (code === 'ECONNRESET' || code === 'EPIPE' || message === 'aborted')
      return new CommandError(`${url} closed the connection before its answer was complete: see the gateway's log`)
    return new CommandError(`${url} cannot be reached: ${message}`)
  }
}

/** Hint for a refusal; empty if the gateway's message contains it. */
function toHelp(status: number, reason: string): string {
  if (status === 401)
    return 'Set FN_ADMIN_TOKEN to the admin token of the gateway, or pass its file with --token-file. A gateway with FN_ISOLATION=user or FN_CONSOLE_LOGIN_API=1 requires it of local callers too; start the gateway with FN_ADMIN_TOKEN if it has none.'
  if (status === 404 && reason === 'console api disabled') return 'Start the gateway without FN_CONSOLE_API_ENABLED=0.'
  if (status === 404 && reason === 'not found')
    return 'The gateway has no such endpoint there: with --control-port they are on that port.'
  if (status !== 403) return ''
  const token = 'give its admin token (FN_ADMIN_TOKEN, or --token-file FILE)'
  if (reason.includes('write')) return `Start the gateway with FN_CONSOLE_WRITE_ENABLED=1, or ${token}.`
  return `Call it from its own machine under localhost or an address, or ${token}.`
}

function toSearch(query: NonNullable<ApiRequest['query']>): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) search.append(name, String(value))
  }
  const text = search.toString()
  return text === '' ? '' : `?${text}`
}

/** The JSON value of an answer; undefined when it is none. */
function parse({ body }: ApiAnswer): unknown {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    return undefined
  }
}

/** The beginning of a refusal. */
async function readShort(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of message) {
    chunks.push(chunk as Buffer)
    bytes += (chunk as Buffer).length
    if (bytes > 64 * 1024) break
  }
  return Buffer.concat(chunks)
}
