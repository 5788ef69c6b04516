/**
 * What user code prints, kept apart by call, also when many calls run at once. Pages: runtime/daemon, runtime/wire-protocol.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { Writable } from 'node:stream'
import { cutLog } from './wire.mjs'

/** Bytes of one call and stream that are passed on. */
const MAX_CAPTURED_BYTES = 64 * 1024

/**
 * The running call of the present async context.
 * @type {AsyncLocalStorage<CallOutput>}
 */
export const currentCall = new AsyncLocalStorage()

/** Output of one call, or of what runs outside calls. A call extends it. */
export class CallOutput {
  stdout = ''
  stderr = ''
  stdoutBytes = 0
  stderrBytes = 0
  /** True while a flush is planned. */
  planned = false
  /** True once the call is answered: what is printed later belongs to no call. */
  over = false

  end() {
    this.over = true
  }
}

/** Stands for `process.stdout` or `process.stderr`; cannot be closed, never full. */
class CaptureStream extends Writable {
  #name
  #outside
  #plan

  /**
   * @param {'stdout' | 'stderr'} name
   * @param {CallOutput} outside
   * @param {(output: CallOutput) => void} plan
   */
  constructor(name, outside, plan) {
    super()
    this.#name = name
    this.#outside = outside
    this.#plan = plan
    this.fd = name === 'stdout' ? 1 : 2
  }

  /**
   * @override
   * @param {any} chunk
   * @param {any} [encoding]
   * @param {any} [callback]
   */
  write(chunk, encoding, callback) {
    const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString()
    const call = currentCall.getStore()
    const output = call === undefined || call.over ? this.#outside : call
    add(output, this.#name, text)
    if (!output.planned) {
      output.planned = true
      this.#plan(output)
    }
    const done = typeof encoding === 'function' ? encoding : callback
    if (typeof done === 'function') process.nextTick(done)
    return true
  }
}

/**
 * Takes over the process's stdout and stderr; `console` goes through them. The descriptors themselves stay untouched:
 * node would make them non-blocking, and a raw write to a full one would then fail.
 * @param {CallOutput} outside - output that belongs to no call
 * @param {(output: CallOutput) => void} plan - called when an output has something new; answered by `takeOutput`
 */
export function captureOutput(outside, plan) {
  for (const name of /** @type {const} */ (['stdout', 'stderr'])) {
    const stream = new CaptureStream(name, outside, plan)
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream })
  }
}

/**
 * @param {CallOutput} output
 * @param {'stdout' | 'stderr'} name
 * @param {string} text
 */
function add(output, name, text) {
  const counter = name === 'stdout' ? 'stdoutBytes' : 'stderrBytes'
  const before = output[counter]
  output[counter] += Buffer.byteLength(text)
  if (before > MAX_CAPTURED_BYTES) return
  if (output[counter] <= MAX_CAPTURED_BYTES) output[name] += text
  else {
    const rest = Buffer.from(text)
      .subarray(0, MAX_CAPTURED_BYTES - before)
      .toString()
    output[name] += `${rest.replace(/\uFFFD+$/, '')}\n[output above ${MAX_CAPTURED_BYTES / 1024} KiB dropped]\n`
  }
}

/**
 * @param {CallOutput} output
 * @param {boolean} isOutside - belongs to no call
 * @param {(stream: 'stdout' | 'stderr', piece: Buffer) => void} send
 */
export function takeOutput(output, isOutside, send) {
  output.planned = false
  // A call has one limit for all it prints; output of no call has the same limit anew each time it is sent.
  if (isOutside) {
    output.stdoutBytes = 0
    output.stderrBytes = 0
  }
  const { stdout, stderr } = output
  output.stdout = ''
  output.stderr = ''
  for (const piece of cutLog(Buffer.from(stdout))) send('stdout', piece)
  for (const piece of cutLog(Buffer.from(stderr))) send('stderr', piece)
}
