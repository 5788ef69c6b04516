// The least that a front process and a worker must do: node:http sends the event as JSON over a socket, the worker answers. Batched in
// both directions; no routes, limits, log lines, timeouts or checks. Bodies go as bytes and come back. Prints its port.
import { fork } from 'node:child_process'
import { rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect, createServer as listen } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

// A frame: length of the body, length of the head, number of the call, head, body.
const START = 12

/** @param {import('node:net').Socket} socket @param {(id: number, head: string, body: Buffer) => void} onFrame */
function readFrames(socket, onFrame) {
  let chunks = /** @type {Buffer[]} */ ([])
  let size = 0
  let needed = START
  socket.on('data', chunk => {
    chunks.push(chunk)
    size += chunk.length
    if (size < needed) return
    const bytes = chunks.length === 1 ? chunk : Buffer.concat(chunks, size)
    let at = 0
    needed = START
    while (size - at >= START) {
      const headEnd = at + START + bytes.readUInt32LE(at + 4)
      const end = headEnd + bytes.readUInt32LE(at)
      if (end > size) {
        needed = end - at
        break
      }
      onFrame(bytes.readUInt32LE(at + 8), bytes.utf8Slice(at + START, headEnd), bytes.subarray(headEnd, end))
      at = end
    }
    size -= at
    chunks = size === 0 ? [] : [bytes.subarray(at)]
  })
}

/** @param {import('node:net').Socket} socket @returns {(id: number, head: string, body: Buffer) => void} */
function createSender(socket) {
  let isCorked = false
  return (id, head, body) => {
    if (!isCorked) {
      isCorked = true
      socket.cork()
      setImmediate(() => {
        isCorked = false
        socket.uncork()
      })
    }
    const length = Buffer.byteLength(head)
    const start = Buffer.allocUnsafe(START + length)
    start.writeUInt32LE(body.length, 0)
    start.writeUInt32LE(length, 4)
    start.writeUInt32LE(id, 8)
    start.utf8Write(head, START)
    socket.write(start)
    if (body.length > 0) socket.write(body)
  }
}

/** @param {string} path */
function runWorker(path) {
  const socket = connect(path)
  const send = createSender(socket)
  const handler = () => ({ message: 'hello' })
  readFrames(socket, (id, head, body) => {
    const event = JSON.parse(head)
    if (event.method === 'POST' && event.path === '/echo') send(id, '', body)
    else send(id, JSON.stringify(handler()), Buffer.alloc(0))
  })
  socket.on('close', () => process.exit(0))
}

/** @param {string} path */
function runFront(path) {
  /** @type {Map<number, import('node:http').ServerResponse>} */
  const open = new Map()
  let last = 0
  const workers = listen(socket => {
    const send = createSender(socket)
    readFrames(socket, (id, head, body) => {
      const res = open.get(id)
      open.delete(id)
      const answer = head === '' ? Buffer.from(body) : head
      const type = head === '' ? 'application/octet-stream' : 'application/json'
      res?.writeHead(200, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(answer) })
      res?.end(answer)
    })
    const server = createServer((req, res) => {
      const { method, url = '/', headers } = req
      const call = (/** @type {Buffer} */ body) => {
        const cut = url.indexOf('?')
        last = (last + 1) >>> 0
        open.set(last, res)
        const [path, query] = cut === -1 ? [url, ''] : [url.slice(0, cut), url.slice(cut + 1)]
        send(last, JSON.stringify({ method, path, query, headers }), body)
      }
      if (method === 'GET') return call(Buffer.alloc(0))
      /** @type {Buffer[]} */
      const chunks = []
      req.on('data', chunk => chunks.push(chunk))
      req.on('end', () => call(chunks.length === 1 ? /** @type {Buffer} */ (chunks[0]) : Buffer.concat(chunks)))
    })
    server.listen(0, '127.0.0.1', () =>
      process.stdout.write(`${/** @type {import('node:net').AddressInfo} */ (server.address()).port}\n`),
    )
  })
  workers.listen(path, () => fork(fileURLToPath(import.meta.url), [path]))
  process.on('SIGTERM', () => {
    rmSync(path, { force: true })
    process.exit(0)
  })
}

const [, , path] = process.argv
if (path === undefined) runFront(join(tmpdir(), `fngw-bench-pair-${process.pid}.sock`))
else runWorker(path)
