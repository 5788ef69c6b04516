/** What a handler prints, gathered per call and bounded. Owner: §4.2, page runtime/lua-runtime. */

import { toText } from './text.mjs'

/** Bytes of one call and stream; what follows is dropped with a note. Same figure as MAX_CAPTURED_OUTPUT_BYTES. */
const MAX_BYTES = 64 * 1024
const NOTE = '\n[output truncated]\n'

/** @typedef {'stdout' | 'stderr'} Stream */

/** @param {(stream: Stream, id: number, text: string) => void} send */
export function createOutput(send) {
  /** @type {Record<Stream, { pieces: Uint8Array[], size: number, cut: boolean }>} */
  const streams = {
    stdout: { pieces: [], size: 0, cut: false },
    stderr: { pieces: [], size: 0, cut: false },
  }
  let isEmpty = true
  return {
    /** @param {Stream} stream @param {Uint8Array} bytes */
    write: (stream, bytes) => {
      isEmpty = false
      const kept = streams[stream]
      if (kept.cut) return
      const room = MAX_BYTES - kept.size
      kept.cut = bytes.length > room
      kept.pieces.push(kept.cut ? bytes.subarray(0, room) : bytes)
      kept.size += Math.min(bytes.length, room)
    },
    /**
     * Sends what was written since the last time.
     * @param {number} id - call it belongs to, 0 for none
     * @param {boolean} isOver - false in the middle of a call, whose limit goes on
     */
    flush: (id, isOver = true) => {
      if (isEmpty) return
      isEmpty = !isOver
      for (const [stream, kept] of Object.entries(streams)) {
        if (kept.pieces.length > 0) {
          const text = toText(Buffer.concat(kept.pieces)) + (kept.cut ? NOTE : '')
          kept.pieces = []
          send(/** @type {Stream} */ (stream), id, text)
        }
        if (!isOver) continue
        kept.size = 0
        kept.cut = false
      }
    },
  }
}
