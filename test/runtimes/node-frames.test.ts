import type { Socket } from 'node:net'
import t from 'tap'
import { FrameReader, FrameWriter, KIND, toWaitWritten, toWrite } from '../../runtimes/node/wire.mjs'

/** A socket that has given nothing to the system yet: it holds what it was given, and reads it when it is drained. */
class HeldSocket {
  readonly held: Buffer[] = []
  /** Called when everything that was given before is with the system. */
  readonly waiting: (() => void)[] = []
  destroyed = false
  /** False while everything is with the system at once. */
  holds = true
  sent = Buffer.alloc(0)
  get writableLength(): number {
    return this.held.length
  }
  write(bytes: Buffer, onWritten?: () => void): boolean {
    if (onWritten !== undefined) this.waiting.push(onWritten)
    if (this.holds) this.held.push(bytes)
    else this.sent = Buffer.concat([this.sent, bytes])
    // As node says while less than its mark waits.
    return true
  }
  cork(): void {}
  uncork(): void {}
  drain(): void {
    this.sent = Buffer.concat([this.sent, ...this.held.splice(0)])
    for (const tell of this.waiting.splice(0)) tell()
  }
}

t.test('[runtimes/node.24] frames are as they were, however long the socket holds them', async t => {
  const bodies: (string | Buffer | null)[] = [null, 'a', Buffer.from('b')]
  for (const size of [16_383, 16_384, 16_385, 70_000, 300_000]) {
    bodies.push('\u00e9'.repeat(size), Buffer.alloc(size, 'c'), 'd'.repeat(size))
  }
  for (const holds of [true, false]) {
    const socket = new HeldSocket()
    socket.holds = holds
    const writer = new FrameWriter(toWrite(socket as unknown as Socket), toWaitWritten(socket as unknown as Socket))
    const waits: Promise<void>[] = []
    for (let round = 0; round < 3; round++) {
      for (const [at, body] of bodies.entries()) writer.add(KIND.reply, at + 1, `{"round":${round}}`, body)
      const changing = Buffer.alloc(40_000, round)
      const written = writer.add(KIND.chunk, 1000, '', changing)
      t.equal(written !== null, holds, 'waits only for a socket that holds it')
      if (written === null) changing.fill(9)
      else waits.push(written.then(() => void changing.fill(9)))
      if (round === 1) socket.drain()
    }
    writer.flush()
    socket.drain()
    await Promise.all(waits)
    const seen: [number, string, Buffer][] = []
    const reader = new FrameReader((_kind, id, header, body) => seen.push([id, header, Buffer.from(body)]))
    for (let at = 0; at < socket.sent.length; at += 60_000) reader.push(socket.sent.subarray(at, at + 60_000))
    t.equal(seen.length, 3 * (bodies.length + 1))
    for (const [index, [id, header, body]] of seen.entries()) {
      const round = Math.floor(index / (bodies.length + 1))
      if (id === 1000) {
        t.ok(body.length === 40_000 && body.every(byte => byte === round), 'with the system before it changed')
        continue
      }
      const given = bodies[id - 1]
      t.equal(header, `{"round":${round}}`)
      t.ok(body.equals(Buffer.from(given ?? '')), `frame ${id}, round ${round}`)
    }
  }
})
