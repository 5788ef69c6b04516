/**
 * What a worker and its children write to descriptors 1 and 2: read all the time, passed on within a budget.
 * Page: runtimes/node.
 */

import { StringDecoder } from 'node:string_decoder'

/** Output bytes of one stream that are passed on per second; the rest is dropped with a note. */
const OUTPUT_BYTES_PER_SECOND = 256 * 1024
/** Output bytes of one stream that are read per second: a flood slows its writer, not the daemon. */
const READ_BYTES_PER_SECOND = 32 * 1024 * 1024
const WINDOW_MS = 100
const NOTE_AT = Math.round((OUTPUT_BYTES_PER_SECOND * WINDOW_MS) / 1000)
const PAUSE_AT = Math.round((READ_BYTES_PER_SECOND * WINDOW_MS) / 1000)

/**
 * @param {import('node:stream').Readable} pipe
 * @param {(text: string) => void} pass
 * @returns {Promise<void>} settles when the stream has ended
 */
export function followOutput(pipe, pass) {
  const decoder = new StringDecoder('utf8')
  let windowBytes = 0
  let dropped = 0
  /** @type {NodeJS.Timeout | null} */
  let window = null
  const note = () => {
    if (dropped > 0) pass(`[${dropped} bytes of output dropped]\n`)
    dropped = 0
  }
  const onWindow = () => {
    window = null
    windowBytes = 0
    note()
    pipe.resume()
  }
  return new Promise(resolve => {
    pipe.on('data', bytes => {
      window ??= setTimeout(onWindow, WINDOW_MS)
      windowBytes += bytes.length
      if (windowBytes <= NOTE_AT) pass(decoder.write(bytes))
      else dropped += bytes.length
      if (windowBytes >= PAUSE_AT) pipe.pause()
    })
    pipe.on('error', () => {})
    pipe.once('close', () => {
      if (window !== null) clearTimeout(window)
      note()
      resolve()
    })
  })
}
