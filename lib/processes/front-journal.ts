/** What a front has to say: the first process writes it down and tells its listeners. Owner: page processes/processes. */

import type { Clock } from '../core/clock.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError, Warning } from '../core/errors.ts'
import type { RequestRecord } from '../observe/events.ts'
import { isFailure } from '../observe/failure-text.ts'
import { KIND } from '../runtime/wire-protocol.ts'
import type { Link } from './link.ts'
import { toErrorHeader } from './link-text.ts'
import type { FromFront } from './messages.ts'

/** Header of the frames that carry records of requests, a JSON list. */
export const REQUESTS = 'requests'
/** Milliseconds a record waits for others. */
const WAIT_MS = 10
/** Bytes of records that leave at once, and of one record beyond which its texts are cut to so many characters: a frame takes 64 KiB. */
const MANY_BYTES = 12 * 1024
const MAX_RECORD_BYTES = 48 * 1024
const CUT_CHARS = 1024

interface FrontJournalOptions {
  clock: Clock
  link: () => Pick<Link, 'send'>
  tell: (message: FromFront) => void
  /** True for a failure that the first process knows. */
  wasTold: (error: GatewayError) => boolean
}

type FailedCall = { fn: FunctionVersion | null; id: string; trace: string; method: string; path: string }

export class FrontJournal {
  /** True while somebody wants to know of requests. */
  wantsRequests = false
  readonly #options: FrontJournalOptions
  #records = ''
  #timer: NodeJS.Timeout | null = null

  constructor(options: FrontJournalOptions) {
    this.#options = options
  }

  readonly request = (record: RequestRecord): void => {
    let text = JSON.stringify(record)
    if (text.length * 3 > MAX_RECORD_BYTES && Buffer.byteLength(text) > MAX_RECORD_BYTES) text = toShortText(record)
    this.#records += `${this.#records === '' ? '[' : ','}${text}`
    if (this.#records.length >= MANY_BYTES / 3) this.flush()
    else this.#timer ??= this.#options.clock.setTimeout(() => this.flush(), WAIT_MS)
  }

  callFailed({ fn, id, trace, method, path }: FailedCall, error: GatewayError): void {
    const { tell, wasTold } = this.#options
    if (!isFailure(error) || wasTold(error)) return
    tell({ kind: 'failed', key: fn?.key ?? null, call: { id, trace, method, path }, error: toErrorHeader(error) })
  }

  log(level: 'info' | 'warn' | 'error', message: string): void {
    this.#options.tell({ kind: 'log', level, message })
  }

  warn(warning: Warning): void {
    this.#options.tell({ kind: 'warning', warning })
  }

  flush(): void {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
    if (this.#records === '') return
    this.#options.link().send(KIND.log, 0, REQUESTS, Buffer.from(`${this.#records}]`))
    this.#records = ''
  }
}

/** The access log shows no more of a text either. */
function toShortText(record: RequestRecord): string {
  return JSON.stringify(record, (_name, value) => (typeof value === 'string' ? value.slice(0, CUT_CHARS) : value))
}
