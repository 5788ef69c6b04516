/** Records of an acceptor: the first process logs them and passes them to its listeners. Owner: page processes/processes. */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import type { GatewayError, Warning } from '../core/errors.ts'
import { isRuntimeName, toFunctionKey } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { AccessLogFormat } from '../observe/access-log.ts'
import type { RequestRecord } from '../observe/events.ts'
import type { FailedCall } from '../observe/journal.ts'
import { MAX_LOG_LINE_BYTES, type WrittenLine } from '../observe/line-buffer.ts'
import { isFailure } from '../observe/log-line.ts'
import { KIND } from '../runtime/wire-protocol.ts'
import { type FromAcceptor, type Line, toErrorHeader } from './link.ts'

/** Milliseconds a line waits for others, and bytes of lines that leave at once: a frame takes 64 KiB. */
const WAIT_MS = 10
const MANY_BYTES = 32 * 1024
/** Records of which lines are made at once: one after the other they cost less than each between two requests. */
const MANY_RECORDS = 64
const LINE_END = 10

interface AcceptorJournalOptions {
  clock: Clock
  link: Line
  post: (message: FromAcceptor) => void
  /** True for a failure that the first process knows. */
  wasReported: (error: GatewayError) => boolean
}

export class AcceptorJournal {
  /** True while the first process has listeners for requests. */
  wantsRequests = false
  readonly #options: AcceptorJournalOptions
  readonly #reported = new WeakSet<GatewayError>()
  readonly #format = new AccessLogFormat()
  readonly #lines = Buffer.allocUnsafe(MANY_BYTES + MAX_LOG_LINE_BYTES + 1)
  #bytes = 0
  /** Of which no lines were made yet. */
  readonly #records: RequestRecord[] = []
  readonly #timer: Timer

  constructor(options: AcceptorJournalOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock)
  }

  /** Written here, so that the first process has only to copy it: most of what a line costs is making it. */
  readonly request = (record: RequestRecord): void => {
    this.#records.push(record)
    if (this.#records.length >= MANY_RECORDS) this.#write()
    if (!this.#timer.isSet) this.#timer.set(WAIT_MS, () => this.flush())
  }

  callFailed({ fn, id, trace, method, path }: FailedCall, error: GatewayError): void {
    const { post, wasReported } = this.#options
    if (!isFailure(error) || wasReported(error)) return
    this.#reported.add(error)
    post({ kind: 'failed', key: fn?.key ?? null, call: { id, trace, method, path }, error: toErrorHeader(error) })
  }

  /** A worker failed to load or ended by itself; a call that waited for it may have reported it. */
  failure(fn: FunctionVersion, error: GatewayError): void {
    if (this.#reported.has(error)) return
    this.#options.post({ kind: 'workerFailed', key: fn.key, error: toErrorHeader(error) })
  }

  log(level: 'info' | 'warn' | 'error', message: string): void {
    this.#options.post({ kind: 'log', level, message })
  }

  warn(warning: Warning): void {
    this.#options.post({ kind: 'warning', warning })
  }

  flush(): void {
    this.#timer.clear()
    this.#write()
    this.#send()
  }

  #write(): void {
    for (const record of this.#records) {
      this.#bytes = this.#format.write(record, this.#lines, this.#bytes)
      this.#lines[this.#bytes++] = LINE_END
      if (this.#bytes >= MANY_BYTES) this.#send()
    }
    this.#records.length = 0
  }

  #send(): void {
    if (this.#bytes === 0) return
    this.#options.link.send(KIND.log, 0, '', this.#lines.subarray(0, this.#bytes))
    this.#bytes = 0
  }
}

/**
 * An access line that an acceptor has written, as the record it was made of; texts from the client are as long as the line has them.
 * @param functions - by key: the handler's file is in no line
 */
export function toLineRecord(
  { bytes, from, to }: WrittenLine,
  functions: ReadonlyMap<string, FunctionVersion>,
): RequestRecord {
  const line = JSON.parse(bytes.toString('utf8', from, to))
  const { method, path, route, fn, version, runtime, status, ip, error = null } = line
  return {
    ...{ time: Date.parse(line.time), id: line.req_id, method, path, route, fn, version, runtime },
    entryFile: findEntry(functions, runtime, fn, version),
    ...{ status, durationMs: line.dur_ms, queuedMs: line.queue_ms, bytesIn: line.bytes_in, bytesOut: line.bytes_out },
    ...{ ip, userAgent: line.ua, traceId: line.trace_id, error },
  }
}

function findEntry(
  functions: ReadonlyMap<string, FunctionVersion>,
  runtime: unknown,
  name: unknown,
  version: unknown,
): string | null {
  if (typeof name !== 'string' || typeof version !== 'string' || !isRuntimeName(runtime)) return null
  const unversioned = version === DEFAULT_VERSION_LABEL ? functions.get(toFunctionKey(runtime, name, null)) : undefined
  return (unversioned ?? functions.get(toFunctionKey(runtime, name, version)))?.entryFile ?? null
}
