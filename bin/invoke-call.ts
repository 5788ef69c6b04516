/** What `fngw invoke` was asked on the command line, as the fields of `POST /_fn/invoke`. Owner: page bin/invoke. */

import { isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { UsageError } from './usage-error.ts'

export interface InvokeFlags {
  method?: string
  data?: string
  header?: string[]
  query?: string[]
  version?: string
  runtime?: string
  context?: string
  route?: string
  param?: string[]
}

/**
 * @param stdin - read for `-d @-`
 * @throws UsageError for a flag that cannot be read
 */
export async function toCall(name: string, flags: InvokeFlags, stdin: Readable): Promise<Record<string, unknown>> {
  const body = flags.data === undefined ? null : await readData(flags.data, stdin)
  const headers = toHeaders(flags.header ?? [])
  if (body !== null && isJson(body)) headers['content-type'] ??= 'application/json'
  return {
    name,
    // As curl does.
    method: flags.method ?? (body === null ? 'GET' : 'POST'),
    ...(flags.version !== undefined && { version: flags.version }),
    ...(flags.runtime !== undefined && { runtime: flags.runtime }),
    ...(flags.route !== undefined && { route: flags.route }),
    ...(flags.param !== undefined && { params: toSingle('--param', flags.param) }),
    ...(flags.query !== undefined && { query: toQuery(flags.query) }),
    ...(flags.context !== undefined && { context: readContext(flags.context) }),
    ...(Object.keys(headers).length > 0 && { headers }),
    ...toBody(body),
  }
}

/** Text as it is, `@file`, or `@-` for what comes on standard input. */
async function readData(text: string, stdin: Readable): Promise<Buffer> {
  if (!text.startsWith('@')) return Buffer.from(text)
  if (text !== '@-') return readFile('-d', text.slice(1))
  const chunks: Buffer[] = []
  for await (const chunk of stdin) chunks.push(Buffer.from(chunk))
  return Buffer.concat(chunks)
}

function readFile(flag: string, path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new UsageError(`${flag} ${JSON.stringify(`@${path}`)} cannot be read: ${(error as Error).message}`)
  }
}

function toBody(body: Buffer | null): Record<string, unknown> {
  if (body === null) return {}
  return isUtf8(body) ? { body: body.toString('utf8') } : { is_base64: true, body_base64: body.toString('base64') }
}

function isJson(body: Buffer): boolean {
  if (!/^\s*[[{]/.test(body.toString('utf8', 0, 64))) return false
  try {
    JSON.parse(body.toString('utf8'))
    return true
  } catch {
    return false
  }
}

/** `Name: value` lines with lower-case names; one that comes again is a list. */
function toHeaders(lines: readonly string[]): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = Object.create(null)
  for (const line of lines) {
    const colon = line.indexOf(':')
    const name = line.slice(0, colon).trim().toLowerCase()
    if (colon === -1 || name === '') throw new UsageError(`-H must be "Name: value", got ${JSON.stringify(line)}`)
    const value = line.slice(colon + 1).trim()
    headers[name] = name in headers ? [headers[name]!, value].flat() : value
  }
  return headers
}

function toQuery(pairs: readonly string[]): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = Object.create(null)
  for (const [name, value] of toPairs('--query', pairs))
    query[name] = name in query ? [query[name]!, value].flat() : value
  return query
}

function toSingle(flag: string, pairs: readonly string[]): Record<string, string> {
  const record: Record<string, string> = Object.create(null)
  for (const [name, value] of toPairs(flag, pairs)) {
    if (name in record) throw new UsageError(`${flag} ${name} is given twice`)
    record[name] = value
  }
  return record
}

function toPairs(flag: string, pairs: readonly string[]): [name: string, value: string][] {
  return pairs.map(pair => {
    const equals = pair.indexOf('=')
    if (equals < 1) throw new UsageError(`${flag} must be name=value, got ${JSON.stringify(pair)}`)
    return [pair.slice(0, equals), pair.slice(equals + 1)]
  })
}

/** JSON as it is, or `@file`. */
function readContext(text: string): unknown {
  const json = text.startsWith('@') ? readFile('--context', text.slice(1)).toString('utf8') : text
  try {
    return JSON.parse(json)
  } catch (error) {
    throw new UsageError(`--context must be a JSON object: ${(error as Error).message}`)
  }
}
