/**
 * One call of a worker from its frame to its answer. Page: runtime/wire-protocol.
 */

import { CallOutput } from './capture.mjs'
import { ContractError } from './envelope.mjs'
import { toFailure } from './failure.mjs'
import { KIND } from './wire.mjs'

// Captured before user code can patch it.
const { stringify } = JSON
const CANCELED = '{"canceled":true}'

/**
 * What a call needs of its worker.
 * @typedef {object} CallHost
 * @property {(kind: number, id: number, header: string, body: Uint8Array | string | null) => Promise<void> | null} send - as of a FrameWriter's `add`
 * @property {(bytes: Uint8Array) => Uint8Array} keep - bytes of the handler that it may change at once; short ones are copied when they are sent
 * @property {(bytes: Uint8Array) => void} reclaim - memory of `keep`, or of a call's body, that nobody looks into any more
 * @property {(call: Call) => void} sendOutput
 * @property {(call: Call) => void} handleEnd - the call's last frame has been sent
 * @property {(settled: Promise<unknown>) => void} addBackground - the worker ends in good order only after it
 */

/**
 * The sending side of a stream, as the frames for it need it.
 * @typedef {object} CreditWindow
 * @property {(bytes: number) => void} grant
 * @property {() => void} wake
 */

export class Call extends CallOutput {
  /** @type {number} */
  id
  /** Nobody waits for the answer any more. */
  canceled = false
  startedAt = performance.now()
  /** @type {CreditWindow | null} */
  window = null
  /** @type {(() => unknown) | null} */
  stopStream = null
  /** @type {AbortController | null} */
  controller = null
  /** A long body that the handler was given, and is likely to give back. @type {import('./event.mjs').GivenBody | null} */
  given = null
  #host

  /** @param {number} id @param {CallHost} host */
  constructor(id, host) {
    super()
    this.id = id
    this.#host = host
  }

  get signal() {
    if (this.controller === null) {
      this.controller = new AbortController()
      if (this.canceled) this.controller.abort(new Error('nobody waits for the answer any more'))
    }
    return this.controller.signal
  }

  /**
   * @param {number} kind
   * @param {string} header
   * @param {Uint8Array | string | null} [body]
   * @returns {Promise<void> | null} until when the body's bytes must stay as they are; null when they may change at once
   */
  send(kind, header, body = null) {
    return this.over ? null : this.#host.send(kind, this.id, header, body)
  }

  /**
   * The last frame of the call; output captured so far goes out before it.
   * @param {number} kind
   * @param {string} header
   * @param {Uint8Array | string | null} [body]
   * @param {Uint8Array | null} [kept] - the body, where it lies in memory of `keep`
   */
  finish(kind, header, body = null, kept = null) {
    if (this.over) return
    this.#host.sendOutput(this)
    this.end()
    const written = this.#host.send(kind, this.id, header, body)
    if (kept !== null) this.#reclaim(kept, written)
    // Pieces of a stream, which ends with another kind, may still leave from there.
    if (kind === KIND.reply) {
      this.#reclaim(this.given?.release() ?? null, written)
      this.given = null
    }
    this.#host.handleEnd(this)
  }

  /**
   * The whole answer.
   * @param {import('./envelope.mjs').Reply} reply
   */
  reply({ fields, body, isTheirs }) {
    const kept = isTheirs ? this.#host.keep(/** @type {Uint8Array} */ (body)) : null
    this.finish(KIND.reply, `{${fields}}`, kept ?? body, kept)
  }

  /**
   * @param {Uint8Array | null} bytes
   * @param {Promise<void> | null} written - until when the answer, which may be these bytes, must stay as it is
   */
  #reclaim(bytes, written) {
    if (bytes === null) return
    if (written === null) this.#host.reclaim(bytes)
    else written.then(() => this.#host.reclaim(bytes))
  }

  finishCanceled() {
    this.finish(KIND.end, CANCELED)
  }

  /**
   * @param {unknown} error
   * @param {boolean} [ends] - the worker ends with this call
   */
  fail(error, ends = false) {
    if (this.over) return
    if (this.canceled) {
      this.finishCanceled()
      return
    }
    const failure = toFailure(error instanceof ContractError ? 'contract' : 'exception', error)
    this.finish(KIND.error, stringify(ends ? { ...failure, ends } : failure))
  }

  cancel() {
    if (this.canceled || this.over) return
    this.canceled = true
    this.controller?.abort(new Error('nobody waits for the answer any more'))
    this.window?.wake()
    if (this.stopStream === null) return
    // A stream that can be stopped is over as soon as its own clean-up is.
    const stop = async () => this.stopStream?.()
    const finish = () => this.finishCanceled()
    stop().then(finish, finish)
  }

  /** @param {Promise<unknown>} settled - never rejects */
  background(settled) {
    this.#host.addBackground(settled)
  }
}
