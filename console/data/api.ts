/** Calls of `/_fn/*`. Owner: page console/console. */

import { signal } from '@preact/signals'
import { gatewayUrl } from '../router.ts'

/** A response that is not a success, or no response. */
export class ApiError extends Error {
  /** 0 when there was no answer. */
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>

  constructor(status: number, message: string, body: Readonly<Record<string, unknown>> = {}) {
    super(message)
    this.status = status
    this.body = body
  }
}

/** True when the gateway requires a login. */
export const isLoginWanted = signal(false)

export type Query = Readonly<Record<string, string | number | boolean | null | undefined>>

/** Address of an endpoint. Fields that are null, undefined or '' are left out. */
export function toUrl(path: string, query: Query = {}): string {
  const url = new URL(path.replace(/^\//, ''), gatewayUrl)
  for (const [name, value] of Object.entries(query))
    if (value !== null && value !== undefined && value !== '') url.searchParams.set(name, String(value))
  return url.href
}

interface SendOptions {
  headers?: Readonly<Record<string, string>>
  signal?: AbortSignal
}

/** @throws ApiError */
export async function request(
  method: string,
  url: string,
  body?: unknown,
  options: SendOptions = {},
): Promise<Response> {
  const headers: Record<string, string> = { 'X-Fngw-Request': '1', Accept: 'application/json', ...options.headers }
  if (body !== undefined) headers['Content-Type'] = 'application/json'
  let answer: Response
  try {
    answer = await fetch(url, {
      method,
      headers,
      credentials: 'same-origin',
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(options.signal !== undefined && { signal: options.signal }),
    })
  } catch (error) {
    if ((error as Error).name === 'AbortError') throw error
    throw new ApiError(0, 'The gateway does not respond.')
  }
  if (answer.ok) return answer
  throw await toError(answer)
}

async function toError(answer: Response): Promise<ApiError> {
  const text = await answer.text().catch(() => '')
  let body: Record<string, unknown> = {}
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null) body = value as Record<string, unknown>
  } catch {
    // Not the gateway's own answer: a proxy's page, say.
  }
  const message = typeof body.error === 'string' ? body.error : `${answer.status} ${answer.statusText}`.trim()
  if (answer.status === 401) isLoginWanted.value = true
  return new ApiError(answer.status, message, body)
}

/** @throws ApiError */
export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  const answer = await request('GET', toUrl(path, query), undefined, signal === undefined ? {} : { signal })
  return (await answer.json()) as T
}

/** @throws ApiError */
export async function send<T>(
  method: string,
  path: string,
  body?: unknown,
  query: Query = {},
  options: SendOptions = {},
): Promise<T> {
  const answer = await request(method, toUrl(path, query), body, options)
  return (await answer.json()) as T
}
