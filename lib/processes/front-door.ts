/** What one front asks for over its line, in the first process. Owner: page processes/processes. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import type { HttpHandler } from '../http/public.ts'
import { KIND, type Kind, parseHeader } from '../runtime/wire-protocol.ts'
import { ControlDoor } from './control-door.ts'
import type { Link } from './link.ts'
import { cutCall, toErrorHeader } from './link-text.ts'
import { RelayedCall, type RelayedDeps } from './relayed-call.ts'

export interface FrontDoorDeps extends RelayedDeps {
  /** Answers requests for the control plane. */
  control: HttpHandler
  /** The function of a key: of the catalog in force, or the last one that had it. */
  findFunction(key: string): FunctionVersion | null
}

export class FrontDoor {
  readonly #deps: FrontDoorDeps
  readonly #link: Pick<Link, 'send' | 'sendPiece'>
  readonly #control: ControlDoor
  readonly #calls = new Map<number, RelayedCall>()
  readonly #forget = (id: number): void => {
    this.#calls.delete(id)
  }

  constructor(deps: FrontDoorDeps, link: Pick<Link, 'send' | 'sendPiece'>) {
    this.#deps = deps
    this.#link = link
    this.#control = new ControlDoor(deps.control, link)
  }

  /** Calls of the front that are open here. */
  get open(): number {
    return this.#calls.size
  }

  /** @throws Error for what no front of ours sends */
  handleFrame(kind: Kind, id: number, header: string, body: Buffer): void {
    if (kind === KIND.call) this.#begin(id, header, body)
    else if (kind === KIND.start) this.#control.begin(id, header)
    else if (!this.#control.handleFrame(kind, id, header, body)) this.#handleCallFrame(kind, id, header)
  }

  /** The front is gone: nobody waits for its calls. */
  close(): void {
    this.#control.close()
    for (const call of [...this.#calls.values()]) call.abandon()
  }

  #begin(id: number, header: string, body: Buffer): void {
    const { key, event } = cutCall(header)
    const fn = this.#deps.findFunction(key)
    if (fn === null) {
      this.#link.send(KIND.error, id, toErrorHeader(new GatewayError('NOT_FOUND', 'not found')))
      return
    }
    const call = new RelayedCall(fn, this.#deps, this.#link, id, event, this.#forget)
    // It may wait for a slot, and what was read is valid during this call only.
    if (body.length > 0) call.body = Buffer.from(body)
    this.#calls.set(id, call)
    call.start()
  }

  #handleCallFrame(kind: Kind, id: number, header: string): void {
    const call = this.#calls.get(id)
    if (call === undefined) return
    if (kind === KIND.cancel) call.abandon()
    else if (kind === KIND.more) call.grant(Number(parseHeader(header).bytes) || 0)
    else if (kind === KIND.end) call.leave()
  }
}
