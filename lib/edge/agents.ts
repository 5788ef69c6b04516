/** Connections to upstreams: kept for reuse, bounded, and only ever to addresses that were checked. Owner: §2.10. */

import * as http from 'node:http'
import * as https from 'node:https'

/** Connections to one upstream at once, idle ones kept, and how long they are, ms. */
const EDGE_CONNECTIONS = { max: 256, idle: 8, idleMs: 4000 } as const

/** What a request adds to node's options. */
export interface PinnedOptions extends https.RequestOptions {
  /** The checked addresses, in one order. */
  pinned: string
}

const KEPT = {
  keepAlive: true,
  maxSockets: EDGE_CONNECTIONS.max,
  maxFreeSockets: EDGE_CONNECTIONS.idle,
  timeout: EDGE_CONNECTIONS.idleMs,
} as const

/** A kept connection serves only requests whose name had the same addresses when it was checked for them. */
class PinnedHttpAgent extends http.Agent {
  override getName(options?: Parameters<http.Agent['getName']>[0]): string {
    return `${super.getName(options)}:${(options as Partial<PinnedOptions> | undefined)?.pinned ?? ''}`
  }
}

class PinnedHttpsAgent extends https.Agent {
  override getName(options?: https.RequestOptions): string {
    return `${super.getName(options)}:${(options as Partial<PinnedOptions> | undefined)?.pinned ?? ''}`
  }
}

export class EdgeAgents {
  readonly #http = { kept: new PinnedHttpAgent(KEPT), fresh: new PinnedHttpAgent() }
  readonly #https = { kept: new PinnedHttpsAgent(KEPT), fresh: new PinnedHttpsAgent() }

  /** @param isFresh - a connection of its own, closed afterwards */
  get(isTls: boolean, isFresh: boolean): http.Agent {
    return (isTls ? this.#https : this.#http)[isFresh ? 'fresh' : 'kept']
  }

  close(): void {
    for (const agents of [this.#http, this.#https]) {
      agents.kept.destroy()
      agents.fresh.destroy()
    }
  }
}
