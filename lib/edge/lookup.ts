/** Names to addresses for the edge proxy. Owner: §2.10. */

import { lookup } from 'node:dns'
import { Semaphore } from '../core/semaphore.ts'

/** Name look-ups at once: the system's resolver holds a thread of the pool that files need too. */
export const EDGE_LOOKUPS = 2

export interface ResolvedAddress {
  address: string
  family: number
}

export type Resolve = (hostname: string) => Promise<readonly ResolvedAddress[]>

/** As the system resolves names, its hosts file included. */
export const systemResolve: Resolve = hostname =>
  new Promise((resolve, reject) => {
    lookup(hostname, { all: true, order: 'verbatim' }, (error, addresses) => {
      if (error === null) resolve(addresses)
      else reject(error)
    })
  })

/**
 * Look-ups of one name at a time, and few in all: the system's resolver occupies a thread for as long as a name server
 * is silent, and the files of this gateway are read by the same few threads.
 */
export class EdgeLookup {
  readonly #resolve: Resolve
  readonly #running = new Map<string, Promise<readonly ResolvedAddress[]>>()
  readonly #slots = new Semaphore(EDGE_LOOKUPS)

  constructor(resolve: Resolve) {
    this.#resolve = resolve
  }

  addresses(hostname: string): Promise<readonly ResolvedAddress[]> {
    const running = this.#running.get(hostname)
    if (running !== undefined) return running
    const started = this.#slots.run(() => this.#resolve(hostname)).finally(() => this.#running.delete(hostname))
    this.#running.set(hostname, started)
    return started
  }
}
