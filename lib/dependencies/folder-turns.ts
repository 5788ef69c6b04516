/** Work in folders: in one folder one after the other, in different ones at once. Owner: §2.16, page dependencies/install. */

interface Turn {
  end: Promise<unknown>
  /** True when it, or one before it, takes as long as a tool does. */
  isLong: boolean
}

export class FolderTurns {
  /** By full path of the folder. */
  readonly #last = new Map<string, Turn>()

  /** @param isLong - a tool works in it, rather than somebody who only looks */
  take<T>(folder: string, work: () => Promise<T>, isLong = false): Promise<T> {
    const before = this.#last.get(folder)
    const done = (before?.end ?? Promise.resolve()).then(work)
    const turn: Turn = { end: Promise.resolve(), isLong: isLong || before?.isLong === true }
    turn.end = done
      .catch(() => {})
      .then(() => {
        if (this.#last.get(folder) === turn) this.#last.delete(folder)
      })
    this.#last.set(folder, turn)
    return done
  }

  /** True when a look at the folder has to wait for a tool. */
  hasLong(folder: string): boolean {
    return this.#last.get(folder)?.isLong === true
  }
}
