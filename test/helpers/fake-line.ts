/** A line that keeps what is sent over it, and one that hands it on to the other end at once. */

import { type Kind, KIND } from '../../lib/runtime/wire-protocol.ts'

export interface Sent {
  kind: keyof typeof KIND
  id: number
  header: string
  body: string
}

const NAMES = new Map(Object.entries(KIND).map(([name, kind]) => [kind, name as keyof typeof KIND]))

export class FakeLine {
  readonly sent: Sent[] = []
  #lastId = 0

  /** Of what was asked last. */
  get lastId(): number {
    return this.#lastId
  }

  nextId(): number {
    this.#lastId += 1
    return this.#lastId
  }

  send(kind: Kind, id: number, header: string, body: Buffer | null = null): void {
    this.sent.push({ kind: NAMES.get(kind)!, id, header, body: body?.toString() ?? '' })
  }

  sendPiece(id: number, piece: Buffer): void {
    this.send(KIND.chunk, id, '', piece)
  }

  /** What was sent since the last look, each as `kind id`. */
  take(): string[] {
    return this.sent.splice(0).map(({ kind, id }) => `${kind} ${id}`)
  }
}
