/**
 * `{ proxy }`: the gateway performs the request a handler asks for and passes the answer on. Spec: §2.10.
 *
 *   directive ─► target ─► lookup ─► addresses ─► transfer ─► call.answer
 *                what is asked    which addresses   may they be       one request
 */

import type { EdgePolicy } from '../core/catalog.ts'
import { type Clock, within } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError } from '../core/errors.ts'
import type { Descriptors } from '../core/host.ts'
import type { Call, EdgeHandler } from '../invocation/invoke.ts'
import { type ListeningSocket, type Resolve, UpstreamAddresses } from './addresses.ts'
import { EdgeConnections } from './connections.ts'
import { type EdgeRequest, type EdgeRules, toEdgeRequest, toEdgeRules } from './target.ts'
import { type EdgeContext, EdgeTransfer } from './transfer.ts'

export interface EdgeOptions {
  clock: Clock
  /** The sockets this gateway listens on now. */
  listening: () => readonly ListeningSocket[]
  /** Of this process; no limit when absent. */
  descriptors?: Descriptors
  /** Names to addresses; the system's resolver by default. */
  resolve?: Resolve
  /** Addresses of this machine; its network interfaces by default. */
  interfaces?: () => readonly string[]
  /** Authorities to trust instead of the usual ones (which `NODE_EXTRA_CA_CERTS` extends), PEM. */
  ca?: string
}

/** Performs proxy directives; one per gateway. */
export class EdgeProxy implements EdgeContext {
  readonly clock: Clock
  readonly addresses: UpstreamAddresses
  readonly connections: EdgeConnections
  /** Directives so far, by outcome: `left` is one whose client went away. */
  readonly results = { answered: 0, failed: 0, refused: 0, left: 0 }
  readonly #rules = new WeakMap<EdgePolicy, EdgeRules>()
  /**
   * Transfers under way, each at its own `place`. Not a Set: the engine keeps entries of a Set that many objects pass through
   * alive after they are removed, chained from one of its old tables to the next.
   */
  readonly #transfers: EdgeTransfer[] = []
  #isClosing = false
  #onIdle: (() => void) | null = null

  constructor({ clock, listening, descriptors, resolve, interfaces, ca }: EdgeOptions) {
    this.clock = clock
    this.connections = new EdgeConnections(clock, descriptors, ca)
    this.addresses = new UpstreamAddresses(listening, resolve, interfaces)
  }

  /** Transfers under way. */
  get active(): number {
    return this.#transfers.length
  }

  readonly handle: EdgeHandler = (call, directive, body) => {
    const { edge } = call.fn.policy
    if (edge === null) throw new GatewayError('EDGE_FAILED', 'edge proxy disabled for this function')
    if (this.#isClosing) throw new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
    const rules = getOrMake(this.#rules, edge, () => toEdgeRules(edge))
    const transfer = new EdgeTransfer(this, call, this.#toRequest(call, directive, rules), Buffer.from(body))
    transfer.place = this.#transfers.push(transfer) - 1
    call.stopEdge = () => transfer.stop()
    void transfer.start(edge.allowPrivate)
  }

  #toRequest(call: Call, directive: Readonly<Record<string, unknown>>, rules: EdgeRules): EdgeRequest {
    try {
      return toEdgeRequest(directive, rules, call.fn.policy.timeoutMs, methodOf(call))
    } catch (error) {
      this.results.refused += 1
      throw error
    }
  }

  forget(transfer: EdgeTransfer): void {
    this.results[transfer.result] += 1
    const last = this.#transfers.pop()!
    if (last !== transfer) {
      this.#transfers[transfer.place] = last
      last.place = transfer.place
    }
    if (this.#transfers.length === 0) this.#onIdle?.()
  }

  /**
   * Takes no more directives, lets what runs finish, and closes every connection.
   * @param timeoutMs - after that the rest is answered 503 or cut
   */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosing = true
    const idle = new Promise<void>(resolve => (this.#onIdle = resolve))
    if (this.#transfers.length > 0 && timeoutMs > 0) await within(this.clock, timeoutMs, idle)
    for (const transfer of [...this.#transfers])
      transfer.fail(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
    this.connections.close()
  }
}

/** A call that came in another way than over HTTP has its method in the event alone. */
function methodOf(call: Call): string {
  if (call.method !== '') return call.method
  const { method } = JSON.parse(call.header) as { method?: unknown }
  return typeof method === 'string' ? method : 'GET'
}
