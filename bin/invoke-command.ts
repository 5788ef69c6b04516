/** `fngw invoke`: runs a function by its name, in the running gateway or in a temporary one. Owner: page bin/invoke. */

import { STATUS_CODES } from 'node:http'
import type { Readable } from 'node:stream'
import { escapeUnsafe } from '../lib/core/text.ts'
import type { GatewayOptions } from '../lib/index.ts'
import { type ApiClient, NoGatewayError } from './api-client.ts'
import { toNameHint } from './function-names.ts'
import { type InvokeFlags, toCall } from './invoke-call.ts'
import { invokeLocally } from './invoke-local.ts'
import type { Output } from './output.ts'
import { CommandError } from './usage-error.ts'

export interface InvokeCommandFlags extends InvokeFlags {
  include?: boolean
  json?: boolean
  local?: boolean
}

interface InvokeSurroundings {
  output: Output
  stdin: Readable
  /** Made when it is needed: with `--local` no address matters. */
  api: () => ApiClient
  /** Settings of the gateway for `--local`. */
  gateway: GatewayOptions
}

/** What `POST /_fn/invoke` answers. */
interface InvokeRecord {
  status: number
  headers: Record<string, string | string[]>
  body?: string
  body_base64?: string
  stdout: string
  stderr: string
}

/**
 * @returns the exit code: 1 when the function answers with 400 or more
 * @throws CommandError, UsageError
 */
export async function runInvoke(
  name: string,
  { include, json, local, ...flags }: InvokeCommandFlags,
  { output, stdin, api, gateway }: InvokeSurroundings,
): Promise<number> {
  const call = await toCall(name, flags, stdin)
  const answer = local === true ? await invokeLocally(gateway, call, output) : await invokeThere(api(), call)
  const record = answer as unknown as InvokeRecord
  if (json === true) output.result(JSON.stringify(record, null, 2))
  else show(record, include === true, output)
  return record.status >= 400 ? 1 : 0
}

async function invokeThere(api: ApiClient, call: Readonly<Record<string, unknown>>): Promise<unknown> {
  try {
    const answer = await api.send('POST', '/_fn/invoke', { json: call })
    if (answer.status < 400) return api.parse(answer)
    const refusal = api.toRefusal(answer)
    if (!/unknown function or version$/.test(refusal.message)) throw refusal
    const hint = toNameHint(String(call.name), await api.json('GET', '/_fn/catalog'))
    throw new CommandError(`${refusal.message}: ${hint}`)
  } catch (error) {
    if (!(error instanceof NoGatewayError)) throw error
    throw new CommandError(`${error.message}; --local runs the function without one`)
  }
}

/** The body on standard output, everything else for the person on standard error. */
function show(record: InvokeRecord, include: boolean, output: Output): void {
  for (const stream of ['stdout', 'stderr'] as const) {
    for (const line of record[stream].split('\n')) {
      if (line !== '') output.note(output.style('dim', `[${stream}] ${output.clean(line)}`))
    }
  }
  if (include) {
    output.note(toStatusText(record.status))
    for (const [name, value] of Object.entries(record.headers)) {
      for (const text of [value].flat()) output.note(`${output.clean(name)}: ${output.clean(text)}`)
    }
  } else if (record.status >= 400) output.note(toStatusText(record.status))
  showBody(record, output)
}

function showBody({ body, body_base64 }: InvokeRecord, output: Output): void {
  const bytes = body === undefined ? Buffer.from(body_base64 ?? '', 'base64') : Buffer.from(body)
  if (bytes.length === 0) return
  if (!output.isTerminal) {
    output.stdout.write(bytes)
  } else if (body === undefined) {
    output.note(`${bytes.length} bytes that are no text: write them to a file with > FILE`)
  } else {
    // Line breaks and tabs are harmless; what steers the terminal is not.
    const text = escapeUnsafe(body, character => (/[\n\r\t]/.test(character) ? character : output.clean(character)))
    output.stdout.write(text.endsWith('\n') ? text : `${text}\n`)
  }
}

function toStatusText(status: number): string {
  return `${status} ${STATUS_CODES[status] ?? ''}`.trimEnd()
}
