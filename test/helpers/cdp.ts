/** The Chrome DevTools Protocol over a WebSocket: as much of both as a debugger's test needs. */

import { randomBytes } from 'node:crypto'
import { SourceMap } from 'node:module'
import { connect, type Socket } from 'node:net'

// biome-ignore lint/suspicious/noExplicitAny: a protocol of a hundred shapes, of which tests read a field here and there
type Json = any

interface Message {
  id?: number
  method?: string
  params?: Json
  result?: Json
  error?: { message: string }
}

const OPCODE_TEXT = 1
const OPCODE_CLOSE = 8

export class CdpClient {
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>
  readonly #socket: Socket
  readonly #answers = new Map<number, { resolve: (result: Json) => void; reject: (error: Error) => void }>()
  readonly #events: Message[] = []
  readonly #waiting: { method: string; fits: (params: Json) => boolean; resolve: (params: Json) => void }[] = []
  #bytes = Buffer.alloc(0)
  #text = ''
  #count = 0

  private constructor(socket: Socket) {
    this.#socket = socket
    this.closed = new Promise(resolve => socket.once('close', () => resolve()))
    socket.on('data', bytes => {
      this.#bytes = Buffer.concat([this.#bytes, bytes])
      this.#read()
    })
  }

  /** @throws Error with the status line when the upgrade is refused */
  static open(url: string, headers: Record<string, string> = {}): Promise<CdpClient> {
    const { hostname, port, host, pathname } = new URL(url)
    const socket = connect(Number(port), hostname)
    const lines = Object.entries({ Host: host, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.write(
      `GET ${pathname} HTTP/1.1\r\n${lines.join('')}Upgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\nSec-WebSocket-Version: 13\r\n\r\n`,
    )
    return new Promise((resolve, reject) => {
      let head = Buffer.alloc(0)
      const read = (bytes: Buffer) => {
        head = Buffer.concat([head, bytes])
        const end = head.indexOf('\r\n\r\n')
        if (end === -1) return
        socket.off('data', read)
        const [status = ''] = head.toString('latin1').split('\r\n')
        if (!status.includes(' 101 ')) {
          socket.destroy()
          reject(new Error(status))
          return
        }
        const client = new CdpClient(socket)
        socket.emit('data', head.subarray(end + 4))
        resolve(client)
      }
      socket.on('data', read)
      socket.on('error', reject)
    })
  }

  send(method: string, params: object = {}): Promise<Json> {
    const id = ++this.#count
    this.#write(OPCODE_TEXT, JSON.stringify({ id, method, params }))
    return new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject }))
  }

  /** The next event of the name that fits, which may have come already. */
  event(method: string, fits: (params: Json) => boolean = () => true): Promise<Json> {
    const at = this.#events.findIndex(event => event.method === method && fits(event.params))
    if (at !== -1) return Promise.resolve(this.#events.splice(at, 1)[0]!.params)
    return new Promise(resolve => this.#waiting.push({ method, fits, resolve }))
  }

  close(): void {
    this.#socket.destroy()
  }

  #read(): void {
    for (;;) {
      const bytes = this.#bytes
      if (bytes.length < 2) return
      const [first, second] = [bytes[0]!, bytes[1]! & 0x7f]
      const headLength = second < 126 ? 2 : second === 126 ? 4 : 10
      if (bytes.length < headLength) return
      const length = second < 126 ? second : second === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
      if (bytes.length < headLength + length) return
      this.#bytes = bytes.subarray(headLength + length)
      if ((first & 0x0f) === OPCODE_CLOSE) this.#socket.destroy()
      else this.#text += bytes.toString('utf8', headLength, headLength + length)
      if ((first & 0x80) === 0 || this.#text === '') continue
      const message = JSON.parse(this.#text) as Message
      this.#text = ''
      this.#handle(message)
    }
  }

  #handle(message: Message): void {
    if (message.id !== undefined) {
      const { resolve, reject } = this.#answers.get(message.id)!
      if (message.error === undefined) resolve(message.result)
      else reject(new Error(message.error.message))
      return
    }
    const at = this.#waiting.findIndex(({ method, fits }) => method === message.method && fits(message.params))
    if (at === -1) this.#events.push(message)
    else this.#waiting.splice(at, 1)[0]!.resolve(message.params)
  }

  #write(opcode: number, text: string): void {
    const body = Buffer.from(text)
    const mask = randomBytes(4)
    const head =
      body.length < 126
        ? Buffer.from([0x80 | opcode, 0x80 | body.length])
        : Buffer.from([0x80 | opcode, 0x80 | 126, body.length >> 8, body.length & 0xff])
    this.#socket.write(Buffer.concat([head, mask, body.map((byte, i) => byte ^ mask[i % 4]!)]))
  }
}

/** A source map as a debugger reads it: positions count from 0. */
export class ScriptMap {
  readonly #map: SourceMap
  readonly #script: string

  /** @param script - compiled code with its map inline */
  constructor(script: string) {
    const data = /sourceMappingURL=data:[^,]*,([\w+/=]+)\s*$/.exec(script)![1]!
    this.#map = new SourceMap(JSON.parse(Buffer.from(data, 'base64').toString()))
    this.#script = script
  }

  get sourcesContent(): readonly string[] {
    return (this.#map.payload as unknown as { sourcesContent: string[] }).sourcesContent
  }

  /** The first place of the compiled code that stands for a line of the file. */
  toCompiled(line: number): { lineNumber: number; columnNumber: number } {
    for (const [lineNumber, text] of this.#script.split('\n').entries())
      for (let columnNumber = 0; columnNumber < text.length; columnNumber++)
        if (this.toOriginal(lineNumber, columnNumber).line === line) return { lineNumber, columnNumber }
    throw new Error(`no code stands for line ${line + 1}`)
  }

  toOriginal(line: number, column: number): { file: string | null; line: number | null } {
    const entry = this.#map.findEntry(line, column) as { originalSource?: string; originalLine?: number }
    return { file: entry.originalSource ?? null, line: entry.originalLine ?? null }
  }
}
