/**
 * The calls of a front that the first process runs. For the calls it is what a worker is; the slot, the queue, the time
 * limit and the worker are all at the other end of the line. Owner: page processes/processes.
 *
 *   dispatch ─ call ─►   ◄─ started (facts), log ─   ◄─ reply ─ (◄─ chunk ─, ─ more ─►) ◄─ end ─   or ◄─ error ─
 *                                                    ─ end ─► when an answer was fetched elsewhere and the slot is free
 */

import { GatewayError } from '../core/errors.ts'
import type { Call } from '../invocation/invoke.ts'
import type { CallHost, RuntimeCall } from '../runtime/call.ts'
import { isStreamHead } from '../runtime/socket-worker.ts'
import { KIND, type Kind } from '../runtime/wire-protocol.ts'
import type { Link } from './link.ts'
import { fromErrorHeader, fromFactsHeader, toCallTag } from './link-text.ts'

export class CallRelay {
  readonly #link: () => Pick<Link, 'send'>
  readonly #nextId: () => number
  readonly #open = new Map<number, Call>()
  /** By the index of the socket that has the call. */
  readonly #hosts: CallHost[] = []
  /** Failures that the first process has told of already. */
  readonly #told = new WeakSet<GatewayError>()

  /** @param nextId - ids of the line, shared with whoever else asks over it */
  constructor(link: () => Pick<Link, 'send'>, nextId: () => number) {
    this.#link = link
    this.#nextId = nextId
  }

  readonly dispatch = (asked: RuntimeCall): void => {
    const call = asked as Call
    const id = this.#nextId()
    call.wireId = id
    call.phase = 'sent'
    call.host = this.#hostOf(1)
    this.#open.set(id, call)
    this.#link().send(KIND.call, id, toCallTag(call.fn.key) + call.header, call.body)
  }

  /** The call is over for the front; until then the first process keeps the slot of one whose answer is fetched elsewhere. */
  leave(call: RuntimeCall): void {
    if (call.fn.policy.edge !== null && call.wireId !== 0) this.#link().send(KIND.end, call.wireId, '')
  }

  /** True for a failure that the first process has written down. */
  wasTold(error: GatewayError): boolean {
    return this.#told.has(error)
  }

  /** @returns false for a frame of somebody else */
  handleFrame(kind: Kind, id: number, header: string, body: Buffer): boolean {
    const call = this.#open.get(id)
    if (call === undefined) return false
    switch (kind) {
      case KIND.started: {
        const { cold, socketIndex, queuedMs, loadError } = fromFactsHeader(header)
        call.cold = cold
        call.loadError = loadError
        call.queuedMs = queuedMs
        call.host = this.#hostOf(socketIndex)
        return true
      }
      case KIND.reply:
        this.#handleReply(call, header, body)
        return true
      case KIND.chunk:
        if (call.phase === 'streaming') call.onChunk(body)
        return true
      case KIND.end: {
        this.#open.delete(id)
        if (call.phase !== 'streaming') return true
        call.phase = 'done'
        call.onEnd(this.#toError(header))
        return true
      }
      case KIND.error:
        this.#open.delete(id)
        call.cut(this.#toError(header) ?? new GatewayError('INTERNAL', 'gateway exception'))
        return true
      case KIND.log:
        if (call.phase !== 'done') call.onLog(header === 'stderr' ? 'stderr' : 'stdout', body.toString('utf8'))
        return true
      default:
        return true
    }
  }

  #handleReply(call: Call, header: string, body: Buffer): void {
    if (call.phase === 'done') return
    if (isStreamHead(header)) {
      call.phase = 'streaming'
      call.onReply(header, body, true)
      return
    }
    this.#open.delete(call.wireId)
    call.phase = 'done'
    call.onReply(header, body, false)
  }

  #toError(header: string): GatewayError | null {
    const error = fromErrorHeader(header)
    if (error !== null) this.#told.add(error)
    return error
  }

  #hostOf(socketIndex: number): CallHost {
    this.#hosts[socketIndex] ??= {
      socketIndex,
      grant: (call, bytes) => this.#link().send(KIND.more, call.wireId, `{"bytes":${bytes}}`),
      abandon: call => {
        this.#open.delete(call.wireId)
        this.#link().send(KIND.cancel, call.wireId, '')
      },
    }
    return this.#hosts[socketIndex]
  }
}
