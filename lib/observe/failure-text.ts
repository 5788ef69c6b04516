/** A failed call or start in words: where, what, by which frames of the user's code. Owner: page observe/log-store. */

import type { ErrorCode, ErrorDetail, GatewayError } from '../core/errors.ts'

/** Failures that somebody has to look at; refusals (limits, wrong requests, a stop) are part of normal service. */
const FAILURES: ReadonlySet<ErrorCode> = new Set([
  'HANDLER_FAILED',
  'LOAD_FAILED',
  'INTERNAL',
  'CONTRACT_BROKEN',
  'EDGE_FAILED',
  'RUNTIME_DOWN',
  'CONFIG_BROKEN',
  'WORKER_DIED',
  'TIMEOUT',
])

export function isFailure(error: GatewayError): boolean {
  return FAILURES.has(error.code)
}

/** What is known beyond the message; of an exception of the gateway itself its own frames. */
export function toFailureDetail({ code, detail, cause }: GatewayError): ErrorDetail {
  if (detail !== undefined) return detail
  // The gateway's own frames help where the gateway is at fault, and nowhere else.
  return code === 'INTERNAL' && cause instanceof Error && cause.stack !== undefined ? { stack: cause.stack } : {}
}

interface FailureText {
  /** `users/[id].js:3: TypeError: x is undefined`: file and line stand there once. */
  headline: string
  /** The frames, without the line that repeats the message. */
  frames: readonly string[]
  hint: string | null
}

/**
 * @param message - may hold the file already
 * @param entryFile - handler file, named when nothing better is known
 */
export function toFailureText(message: string, entryFile: string | null, detail: ErrorDetail): FailureText {
  const lines = linesOf(detail.stack ?? '')
  // Stacks begin (python: end) with the message and the kind of exception, which the message alone does not tell.
  const [first = '', ...rest] = message.split('\n')
  const titled = first === '' ? -1 : lines.findIndex(line => /^[\w.\\]+: /.test(line) && line.endsWith(`: ${first}`))
  const title = titled === -1 ? first : lines[titled]!
  const others = lines.filter((_, index) => index !== titled)
  // What a tool or an interpreter says in several lines, unless the stack repeats it.
  const frames = [...linesOf(rest.join('\n')).filter(line => !others.includes(line)), ...others]
  const file = detail.file ?? entryFile
  const where = detail.line === undefined ? file : `${file}:${detail.line}`
  const headline = file === null || title.includes(file) ? title : `${where}: ${title}`
  return { headline, frames, hint: detail.hint ?? null }
}

function linesOf(text: string): string[] {
  return text.split('\n').filter(line => line.trim() !== '')
}
