/** Ends what a function's user left behind when one of its workers has ended. Owner: page runtime/isolation. */

import { endOrphans } from '../files/user-signals.ts'

export class UserProcesses {
  /** By user id: what goes on, and whether it is done once more. */
  readonly #ending = new Map<number, { isAsked: boolean; done: Promise<void> }>()
  readonly #end: (uid: number) => Promise<void>

  /** @param end - ends orphans of a user; never rejects */
  constructor(end: (uid: number) => Promise<void> = endOrphans) {
    this.#end = end
  }

  /** A worker has ended. */
  leave(uid: number): void {
    const ending = this.#ending.get(uid)
    if (ending !== undefined) ending.isAsked = true
    else {
      const turn = { isAsked: true, done: Promise.resolve() }
      this.#ending.set(uid, turn)
      turn.done = this.#run(uid, turn)
    }
  }

  /** Those that end while it goes on share one more turn. */
  async #run(uid: number, turn: { isAsked: boolean }): Promise<void> {
    while (turn.isAsked) {
      turn.isAsked = false
      await this.#end(uid)
    }
    this.#ending.delete(uid)
  }

  /** Resolves when nothing is being ended. */
  async settle(): Promise<void> {
    await Promise.all([...this.#ending.values()].map(({ done }) => done))
  }
}
