/**
 * The calls of an acceptor that the first process runs. For the calls it is what a worker is; the slot, the queue, the time
 * limit and the worker are all at the other end of the line. Owner: page processes/processes.
 *
 *   dispatch ─ call ─►   ◄─ started (facts), log ─   ◄─ reply ─ (◄─ chunk ─, ─ more ─►) ◄─ end ─   or ◄─ error ─
 *                                                    ─ end ─► when an answer was fetched elsewhere and the slot is free
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import type { HttpHandler } from '../http/public.ts'
import type { Admission, AdmissionCall } from '../invocation/admission.ts'
import type { Call, Invoker } from '../invocation/invoke.ts'
import type { FailedCall, Journal } from '../observe/journal.ts'
import { type CallHost, RuntimeCall } from '../runtime/call.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import { isStreamHead } from '../runtime/socket-worker.ts'
import { KIND, type Kind, parseHeader } from '../runtime/wire-protocol.ts'
import { ControlCall } from './control-relay.ts'
import { cutCall, fromErrorHeader, fromFactsHeader, joinCall, type Line, toErrorHeader, toFactsHeader } from './link.ts'

export class CallRelay {
  readonly #link: Line
  readonly #open = new Map<number, Call>()
  /** By the index of the socket that has the call. */
  readonly #hosts: CallHost[] = []
  /** Failures that the first process has logged already. */
  readonly #reported = new WeakSet<GatewayError>()

  constructor(link: Line) {
    this.#link = link
  }

  dispatch(asked: RuntimeCall): void {
    const call = asked as Call
    call.wireId = this.#link.nextId()
    call.phase = 'sent'
    call.host = this.#hostOf(1)
    this.#open.set(call.wireId, call)
    this.#link.send(KIND.call, call.wireId, joinCall(call.fn.key, call.header), call.body)
  }

  /** The call is over for the acceptor; until then the first process keeps the slot of one whose answer is fetched elsewhere. */
  leave(call: RuntimeCall): void {
    if (call.fn.policy.edge !== null && call.wireId !== 0) this.#link.send(KIND.end, call.wireId, '')
  }

  /** True for a failure that the first process has written down. */
  wasReported(error: GatewayError): boolean {
    return this.#reported.has(error)
  }

  /** @returns false for a frame of another */
  handleFrame(kind: Kind, id: number, header: string, body: Buffer): boolean {
    const call = this.#open.get(id)
    if (call === undefined) return false
    switch (kind) {
      case KIND.started: {
        const { socketIndex, ...facts } = fromFactsHeader(header)
        Object.assign(call, facts)
        call.host = this.#hostOf(socketIndex)
        break
      }
      case KIND.reply:
        if (call.phase !== 'done') this.#handleReply(call, header, body)
        break
      case KIND.chunk:
        if (call.phase === 'streaming') call.onChunk(body)
        break
      case KIND.end:
        this.#open.delete(id)
        if (call.phase !== 'streaming') break
        call.phase = 'done'
        call.onEnd(this.#toError(header))
        break
      case KIND.error:
        this.#open.delete(id)
        call.cut(this.#toError(header) ?? new GatewayError('INTERNAL', 'gateway exception'))
        break
      case KIND.log:
        if (call.phase !== 'done') call.onLog(header === 'stderr' ? 'stderr' : 'stdout', body.toString('utf8'))
        break
      default:
    }
    return true
  }

  #handleReply(call: Call, header: string, body: Buffer): void {
    const isStream = isStreamHead(header)
    if (!isStream) this.#open.delete(call.wireId)
    call.phase = isStream ? 'streaming' : 'done'
    call.onReply(header, body, isStream)
  }

  #toError(header: string): GatewayError | null {
    const error = fromErrorHeader(header)
    if (error !== null) this.#reported.add(error)
    return error
  }

  #hostOf(socketIndex: number): CallHost {
    this.#hosts[socketIndex] ??= {
      socketIndex,
      grant: (call, bytes) => this.#link.send(KIND.more, call.wireId, `{"bytes":${bytes}}`),
      abandon: call => {
        this.#open.delete(call.wireId)
        this.#link.send(KIND.cancel, call.wireId, '')
      },
    }
    return this.#hosts[socketIndex]
  }
}

// A call of an acceptor, in the first process: admitted and run like any other, its answer goes back unread.

/** Bytes of captured output in one frame: UTF-8 takes up to three bytes a character. */
const LOG_CHARS = 16 * 1024

class RelayedCall extends RuntimeCall implements AdmissionCall {
  slots: object | null = null
  queuePrevious: AdmissionCall | null = null
  queueNext: AdmissionCall | null = null
  enteredAt = 0
  refuseAt = 0
  readonly #door: AcceptorDoor
  readonly #line: number
  #queuedMs = 0

  /**
   * @param line - its id on the line
   * @param event - the handler event, JSON text
   */
  constructor(fn: FunctionVersion, door: AcceptorDoor, line: number, event: string) {
    super(fn)
    this.#door = door
    this.#line = line
    this.header = event
  }

  start(): void {
    const { admission } = this.#door.deps
    const outcome = admission.enter(this)
    if (outcome === null) this.#run()
    else if (outcome !== 'queued') this.onRefused(outcome)
  }

  onAdmitted(): void {
    this.#queuedMs = this.handedAt - this.enteredAt
    this.#run()
  }

  onRefused(error: GatewayError): void {
    this.phase = 'done'
    this.#fail(error)
  }

  /** The client left. */
  abandon(): void {
    if (this.phase !== 'queued' && this.slots !== null) this.withdraw()
    this.leave()
  }

  /** Its fate is decided at the other end too: the slot is free. */
  leave(): void {
    this.#door.deps.admission.leave(this)
    this.phase = 'done'
    this.#door.forget(this.#line)
  }

  handleFrame(kind: Kind, header: string): void {
    if (kind === KIND.cancel) this.abandon()
    else if (kind === KIND.more) this.host?.grant(this, Number(parseHeader(header).bytes) || 0)
    else if (kind === KIND.end) this.leave()
  }

  override onReply(header: string, body: Buffer, stream: boolean): void {
    this.#sendFacts(this.fn.policy.includeDebugHeaders)
    this.#door.link.send(KIND.reply, this.#line, header, body)
    // An answer may ask to be fetched elsewhere: the slot is its own until that is done.
    if (!stream && this.fn.policy.edge === null) this.leave()
  }

  override onChunk(body: Buffer): void {
    this.#door.link.sendPiece(this.#line, body)
  }

  override onEnd(error: GatewayError | null): void {
    const shown = error && this.#hide(error)
    this.#door.link.send(KIND.end, this.#line, shown === null ? '' : toErrorHeader(shown))
    if (shown !== null) this.#note(shown)
    this.leave()
  }

  override onLog(stream: 'stdout' | 'stderr', written: string): void {
    const { invoker, journal } = this.#door.deps
    const text = invoker.secrets.hide(this.fn, written)
    journal.output(this.fn, stream, text, this.#origin)
    if (!this.fn.policy.includeDebugHeaders) return
    for (let at = 0; at < text.length; at += LOG_CHARS)
      this.#door.link.send(KIND.log, this.#line, stream, Buffer.from(text.slice(at, at + LOG_CHARS)))
  }

  override onError(error: GatewayError): void {
    this.#fail(this.#hide(error))
  }

  #run(): void {
    try {
      this.#door.deps.dispatcher.setOf(this.fn).dispatch(this)
    } catch (error) {
      this.onError(toGatewayError(error))
    }
  }

  #hide(error: GatewayError): GatewayError {
    return this.#door.deps.invoker.secrets.hideIn(this.fn, error)
  }

  #fail(error: GatewayError): void {
    this.#note(error)
    this.#sendFacts()
    this.#door.link.send(KIND.error, this.#line, toErrorHeader(error))
    this.leave()
  }

  /** Sends how it reached its worker, where that is worth reporting. */
  #sendFacts(isShown = false): void {
    const { cold, loadError } = this
    const queuedMs = this.#queuedMs
    if (!isShown && !cold && queuedMs === 0 && loadError === null) return
    const socketIndex = this.host?.socketIndex ?? 1
    const facts = { cold, socketIndex, queuedMs, loadError: loadError && this.#hide(loadError) }
    this.#door.link.send(KIND.started, this.#line, toFactsHeader(facts))
  }

  /** Logged here and not where the client is: others that waited for the same failure then do not log it again. */
  #note(error: GatewayError): void {
    this.#door.deps.journal.callFailed({ fn: this.fn, ...this.#origin }, error)
  }

  /** Facts of the request from the event, read when something is logged. */
  get #origin(): Omit<FailedCall, 'fn'> {
    const { id, trace, method, path } = parseHeader(this.header)
    return { id: String(id), trace: String(trace), method: String(method), path: String(path) }
  }
}

/** Parts of the first process that calls and requests of acceptors use. */
export interface AcceptorDoorDeps {
  invoker: Pick<Invoker, 'clock' | 'secrets'>
  admission: Pick<Admission, 'enter' | 'leave'>
  dispatcher: { setOf(fn: FunctionVersion): Pick<ReturnType<Dispatcher['setOf']>, 'dispatch'> }
  journal: Pick<Journal, 'output' | 'callFailed'>
  /** Answers requests for the control plane. */
  control: HttpHandler
  /** The function of a key: of the catalog in force, or the last one that had it. */
  findFunction(key: string): FunctionVersion | null
}

/** The calls and requests of one acceptor, in the first process. */
export class AcceptorDoor {
  readonly deps: AcceptorDoorDeps
  readonly link: Line
  readonly #open = new Map<number, RelayedCall | ControlCall>()

  constructor(deps: AcceptorDoorDeps, link: Line) {
    this.deps = deps
    this.link = link
  }

  get open(): number {
    return this.#open.size
  }

  forget(id: number): void {
    this.#open.delete(id)
  }

  /** @throws Error for what no acceptor of ours sends */
  handleFrame(kind: Kind, id: number, header: string, body: Buffer): void {
    if (kind === KIND.call) this.#begin(id, header, body)
    else if (kind === KIND.start) {
      const call = new ControlCall(this.link, id, header, () => this.forget(id))
      this.#open.set(id, call)
      call.run(this.deps.control)
    } else this.#open.get(id)?.handleFrame(kind, header, body)
  }

  /** The acceptor is gone, and with it the clients of its calls. */
  close(): void {
    for (const call of [...this.#open.values()]) call.abandon()
  }

  #begin(id: number, header: string, body: Buffer): void {
    const { key, event } = cutCall(header)
    const fn = this.deps.findFunction(key)
    if (fn === null) {
      this.link.send(KIND.error, id, toErrorHeader(new GatewayError('NOT_FOUND', 'not found')))
      return
    }
    const call = new RelayedCall(fn, this, id, event)
    // It may wait for a slot, and what was read is valid during this call only.
    if (body.length > 0) call.body = Buffer.from(body)
    this.#open.set(id, call)
    call.start()
  }
}
