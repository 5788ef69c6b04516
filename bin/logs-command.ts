/** `fngw logs`: the logs of the running gateway, and what is added to them. Owner: page bin/logs. */

import { once } from 'node:events'
import { StringDecoder } from 'node:string_decoder'
import type { ApiClient } from './api-client.ts'
import { toJsonLine, toShownLine } from './log-lines.ts'
import type { Output } from './output.ts'

export interface LogsFlags {
  file?: string
  lines?: string
  follow?: boolean
  fn?: string
  version?: string
  runtime?: string
  stream?: string
  json?: boolean
  raw?: boolean
}

/** @throws CommandError for a refusal, and when there is no response */
export async function runLogs(flags: LogsFlags, api: ApiClient, output: Output): Promise<void> {
  // One by one: beside these a command has the flags of settings.
  const { json, raw, follow, lines, fn, version, runtime, stream } = flags
  const { stdout } = output
  const stopped = new AbortController()
  const onGone = (): void => stopped.abort()
  // A reader who went away (`| head`) wants no more.
  stdout.once('error', onGone)
  stdout.once('close', onGone)
  const show = (line: string): string => {
    if (json === true) return toJsonLine(line)
    // The gateway escapes control characters, but another server may respond.
    const clean = output.clean(line)
    return raw === true ? clean : toShownLine(clean, output.styleResult)
  }
  // Output of one stream is in the runtime log alone.
  const file = flags.file ?? (stream === undefined ? 'all' : 'runtime')
  const query = { file, lines, fn, version, runtime, stream, follow: follow === true ? 1 : null }
  try {
    for await (const some of readLines(api.stream('GET', '/_fn/logs', { query, signal: stopped.signal }))) {
      if (stdout.write(some.map(line => `${show(line)}\n`).join(''))) continue
      // The gateway then counts what it leaves out, instead of this program keeping it.
      await Promise.race([once(stdout, 'drain', { signal: stopped.signal }), once(stopped.signal, 'abort')]).catch(
        () => {},
      )
      if (stopped.signal.aborted) return
    }
    if (follow === true && !stopped.signal.aborted) output.note('the gateway ended the log')
  } finally {
    stdout.off('error', onGone)
    stdout.off('close', onGone)
  }
}

/** Whole lines, those of one piece together. */
async function* readLines(pieces: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  const decoder = new StringDecoder('utf8')
  let rest = ''
  for await (const piece of pieces) {
    const lines = (rest + decoder.write(piece)).split('\n')
    rest = lines.pop()!
    if (lines.length > 0) yield lines
  }
  if (rest !== '') yield [rest]
}
