/**
 * Descriptor 3: lines between a worker and its daemon, which holds the other end of the pipe. Page: runtimes/node.
 */

import { Socket } from 'node:net'

export class Lifeline {
  #socket = new Socket({ fd: 3, readable: true, writable: true })
  #text = ''
  /** @type {((line: string) => void) | null} */
  #onLine = null

  /** @param {() => void} onEnd - the daemon is gone: where nothing else tells a worker of it, this does */
  constructor(onEnd) {
    this.#socket.on('error', () => {})
    this.#socket.on('close', onEnd)
    this.#socket.on('data', bytes => {
      this.#text += bytes
      this.#take()
    })
  }

  /** @param {string} line */
  tell(line) {
    this.#socket.write(`${line}\n`)
  }

  /** Resolves with the next line. @returns {Promise<string>} */
  hear() {
    return new Promise(resolve => {
      this.#onLine = resolve
      this.#take()
    })
  }

  #take() {
    const end = this.#text.indexOf('\n')
    if (end === -1 || this.#onLine === null) return
    const line = this.#text.slice(0, end)
    this.#text = this.#text.slice(end + 1)
    const onLine = this.#onLine
    this.#onLine = null
    onLine(line)
  }
}
