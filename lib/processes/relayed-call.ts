/** A call of a front, in the first process: admitted and run like any other, its answer goes back unread. Owner: page processes/processes. */

import type { FunctionVersion } from '../core/catalog.ts'
import { type GatewayError, toGatewayError } from '../core/errors.ts'
import type { Admission, AdmissionCall, FunctionSlots } from '../invocation/admission.ts'
import type { Invoker } from '../invocation/invoke.ts'
import type { Journal } from '../observe/journal.ts'
import { RuntimeCall } from '../runtime/call.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import { KIND, parseHeader } from '../runtime/wire-protocol.ts'
import type { Link } from './link.ts'
import { toErrorHeader, toFactsHeader } from './link-text.ts'

/** Bytes of captured output in one frame: UTF-8 takes up to three bytes a character. */
const LOG_CHARS = 16 * 1024

/** What relayed calls need of the first process. */
export interface RelayedDeps {
  invoker: Pick<Invoker, 'clock' | 'secrets'>
  admission: Pick<Admission, 'enter' | 'leave'>
  dispatcher: { setOf(fn: FunctionVersion): Pick<ReturnType<Dispatcher['setOf']>, 'dispatch'> }
  journal: Pick<Journal, 'output' | 'callFailed'>
}

export class RelayedCall extends RuntimeCall implements AdmissionCall {
  slots: FunctionSlots | null = null
  queuePrevious: AdmissionCall | null = null
  queueNext: AdmissionCall | null = null
  queueTimer: NodeJS.Timeout | null = null
  readonly #deps: RelayedDeps
  readonly #link: Pick<Link, 'send' | 'sendPiece'>
  readonly #line: number
  readonly #onOver: (line: number) => void
  #enteredAt = 0
  #queuedMs = 0

  /**
   * @param line - its id on the line
   * @param event - the handler event, JSON text
   * @param onOver - nothing more will be said of it
   */
  constructor(
    fn: FunctionVersion,
    deps: RelayedDeps,
    link: Pick<Link, 'send' | 'sendPiece'>,
    line: number,
    event: string,
    onOver: (line: number) => void,
  ) {
    super(fn)
    this.#deps = deps
    this.#link = link
    this.#line = line
    this.header = event
    this.#onOver = onOver
  }

  start(): void {
    const outcome = this.#deps.admission.enter(this)
    if (outcome === null) this.#run()
    else if (outcome === 'queued') this.#enteredAt = this.#deps.invoker.clock.monotonic()
    else this.onRefused(outcome)
  }

  onAdmitted(): void {
    this.#queuedMs = this.#deps.invoker.clock.monotonic() - this.#enteredAt
    this.#run()
  }

  onRefused(error: GatewayError): void {
    this.phase = 'done'
    this.#tell(error)
  }

  /** Nobody waits for it any more. */
  abandon(): void {
    if (this.phase !== 'queued' && this.slots !== null) this.withdraw()
    this.leave()
  }

  /** Its fate is decided at the other end too: the slot is free. */
  leave(): void {
    this.#deps.admission.leave(this)
    this.phase = 'done'
    this.#onOver(this.#line)
  }

  grant(bytes: number): void {
    this.host?.grant(this, bytes)
  }

  override onReply(header: string, body: Buffer, stream: boolean): void {
    if (this.#hasFacts || this.fn.policy.includeDebugHeaders) this.#tellFacts()
    this.#link.send(KIND.reply, this.#line, header, body)
    // An answer may ask to be fetched elsewhere: the slot is its own until that is done.
    if (!stream && this.fn.policy.edge === null) this.leave()
  }

  override onChunk(body: Buffer): void {
    this.#link.sendPiece(this.#line, body)
  }

  override onEnd(error: GatewayError | null): void {
    const shown = error && this.#hide(error)
    this.#link.send(KIND.end, this.#line, shown === null ? '' : toErrorHeader(shown))
    if (shown !== null) this.#note(shown)
    this.leave()
  }

  override onLog(stream: 'stdout' | 'stderr', written: string): void {
    const { invoker, journal } = this.#deps
    const text = invoker.secrets.hide(this.fn, written)
    journal.output(this.fn, stream, text, this.#origin)
    if (!this.fn.policy.includeDebugHeaders) return
    for (let at = 0; at < text.length; at += LOG_CHARS)
      this.#link.send(KIND.log, this.#line, stream, Buffer.from(text.slice(at, at + LOG_CHARS)))
  }

  override onError(error: GatewayError): void {
    this.#tell(this.#hide(error))
  }

  #run(): void {
    try {
      this.#deps.dispatcher.setOf(this.fn).dispatch(this)
    } catch (error) {
      this.onError(toGatewayError(error))
    }
  }

  #hide(error: GatewayError): GatewayError {
    return this.#deps.invoker.secrets.hideIn(this.fn, error)
  }

  #tell(error: GatewayError): void {
    this.#note(error)
    if (this.#hasFacts) this.#tellFacts()
    this.#link.send(KIND.error, this.#line, toErrorHeader(error))
    this.leave()
  }

  get #hasFacts(): boolean {
    return this.cold || this.#queuedMs > 0 || this.loadError !== null
  }

  #tellFacts(): void {
    const { cold, loadError } = this
    const socketIndex = this.host?.socketIndex ?? 1
    const facts = { cold, socketIndex, queuedMs: this.#queuedMs, loadError: loadError && this.#hide(loadError) }
    this.#link.send(KIND.started, this.#line, toFactsHeader(facts))
  }

  /** Told here and not where the client is: whoever else waited for the same failure then does not tell it again. */
  #note(error: GatewayError): void {
    this.#deps.journal.callFailed({ fn: this.fn, ...this.#origin }, error)
  }

  /** What the event says of the request, read when something is to be told of it. */
  get #origin(): { id: string; trace: string; method: string; path: string } {
    const { id, trace, method, path } = parseHeader(this.header)
    return { id: String(id), trace: String(trace), method: String(method), path: String(path) }
  }
}
