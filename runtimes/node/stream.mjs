/**
 * Bodies that go out in pieces: what a handler yields, and what is too large for one frame. Page: runtime/wire-protocol.
 */

import { ContractError, show, toBytes, typeStream } from './envelope.mjs'
import { toFailure } from './failure.mjs'
import { KIND, MAX_REPLY_BODY_BYTES, STREAM_WINDOW_BYTES } from './wire.mjs'

// Captured before user code can patch it.
const { stringify } = JSON

/** @typedef {import('./call.mjs').Call} Call */
/** @typedef {import('./envelope.mjs').Reply} Reply */

/** The sending side of one call's stream: at most STREAM_WINDOW_BYTES are under way. */
export class Window {
  #credit = STREAM_WINDOW_BYTES
  /** @type {(() => void) | null} */
  #resume = null

  /** @param {number} bytes - granted by a `more` frame */
  grant(bytes) {
    this.#credit += bytes
    this.wake()
  }

  /** Ends a wait: credit came, or the call is over. */
  wake() {
    const resume = this.#resume
    this.#resume = null
    resume?.()
  }

  /**
   * Sends all of `bytes` from where they are, waiting for credit; when it is resolved they may change. Stops early when the
   * call is over, or nobody waits for its answer.
   * @param {Call} call
   * @param {Uint8Array} bytes
   */
  async send(call, bytes) {
    for (let at = 0; at < bytes.length && !call.over && !call.canceled; ) {
      if (this.#credit <= 0) {
        await /** @type {Promise<void>} */ (new Promise(resolve => (this.#resume = resolve)))
        continue
      }
      const end = Math.min(bytes.length, at + Math.min(this.#credit, STREAM_WINDOW_BYTES))
      const written = call.send(KIND.chunk, '', bytes.subarray(at, end))
      this.#credit -= end - at
      at = end
      if (written !== null) await written
    }
  }
}

/**
 * A body of known length that is too large for one frame.
 * @param {Call} call
 * @param {string} fields
 * @param {Uint8Array | string} given
 */
export async function sendLarge(call, fields, given) {
  const body = typeof given === 'string' ? Buffer.from(given) : given
  const window = new Window()
  call.window = window
  call.send(KIND.reply, `{${fields},"stream":true,"length":${body.length}}`)
  await window.send(call, body)
  if (call.canceled) call.finishCanceled()
  else call.finish(KIND.end, '')
}

/**
 * A body that comes piece by piece. The header waits for the first piece, so that its type is known and an early failure
 * is still an error; a body that is complete within one tick goes out as a whole.
 * @param {Call} call
 * @param {Reply} reply
 */
export async function sendStream(call, reply) {
  const window = new Window()
  const iterator = toIterator(reply.stream)
  call.window = window
  call.stopStream = () => {
    window.wake()
    // A generator runs its `finally` blocks; a stream is destroyed.
    return iterator.return?.()
  }
  const held = /** @type {Uint8Array[]} */ ([])
  let heldBytes = 0
  /** @type {Promise<void> | null} */
  let begun = null
  let tickOver = false
  const begin = async () => {
    call.send(KIND.reply, `{${reply.fields},"stream":true}`)
    for (const bytes of held) await window.send(call, bytes)
  }
  setImmediate(() => {
    tickOver = true
    if (begun !== null || call.over) return
    // Whoever listens to events wants to know at once that the connection stands.
    if (held.length > 0 || reply.fields.includes('text/event-stream')) begun = begin()
  })
  try {
    for (;;) {
      const step = await iterator.next()
      if (call.over || call.canceled) break
      if (step.done) break
      if (reply.fields === '') typeStream(reply, step.value)
      const piece = toPiece(step.value)
      if (begun !== null) {
        await begun
        await window.send(call, piece)
      } else {
        // A copy: the handler may use its buffer again.
        const bytes = Buffer.from(piece)
        held.push(bytes)
        heldBytes += bytes.length
        if (tickOver || heldBytes > STREAM_WINDOW_BYTES) {
          begun = begin()
          await begun
        }
      }
    }
  } catch (error) {
    if (call.canceled) call.finishCanceled()
    else if (begun === null) call.fail(error)
    else {
      call.finish(KIND.end, stringify({ error: `stream broke: ${toFailure('exception', error).message}` }))
      await iterator.return?.()
    }
    return
  }
  if (call.canceled) call.finishCanceled()
  else if (begun !== null) call.finish(KIND.end, '')
  else {
    if (reply.fields === '') typeStream(reply, '')
    const body = held.length === 1 ? /** @type {Uint8Array} */ (held[0]) : Buffer.concat(held, heldBytes)
    if (body.length > MAX_REPLY_BODY_BYTES) await sendLarge(call, reply.fields, body)
    else call.finish(KIND.reply, `{${reply.fields}}`, body)
  }
}

/**
 * @param {any} stream - async iterable, web stream or generator
 * @returns {AsyncIterator<unknown> | Iterator<unknown>}
 */
function toIterator(stream) {
  if (typeof stream[Symbol.asyncIterator] === 'function') return stream[Symbol.asyncIterator]()
  if (typeof stream.getReader !== 'function') return stream[Symbol.iterator]()
  const reader = stream.getReader()
  return { next: () => reader.read(), return: () => reader.cancel() }
}

/** @param {any} piece @returns {Uint8Array} a view: the handler may use its buffer again when it is asked for the next piece */
function toPiece(piece) {
  if (typeof piece === 'string') return Buffer.from(piece)
  if (piece instanceof ArrayBuffer || ArrayBuffer.isView(piece)) return toBytes(piece)
  throw new ContractError(`a piece of a streamed body must be text or bytes, got ${show(piece)}`)
}
