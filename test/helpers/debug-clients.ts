/** Debuggers of Python and PHP as an editor has them: the Debug Adapter Protocol and DBGp, as far as tests need them. */

import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'

// biome-ignore lint/suspicious/noExplicitAny: protocols of many shapes, of which tests read a field here and there
type Json = any

/** Messages that came, and who waits for one. */
class Inbox<Message> {
  readonly #messages: Message[] = []
  readonly #waiting: { fits: (message: Message) => boolean; resolve: (message: Message) => void }[] = []

  add(message: Message): void {
    const at = this.#waiting.findIndex(({ fits }) => fits(message))
    if (at === -1) this.#messages.push(message)
    else this.#waiting.splice(at, 1)[0]!.resolve(message)
  }

  /** The next that fits, which may have come already. */
  next(fits: (message: Message) => boolean): Promise<Message> {
    const at = this.#messages.findIndex(fits)
    if (at !== -1) return Promise.resolve(this.#messages.splice(at, 1)[0]!)
    return new Promise(resolve => this.#waiting.push({ fits, resolve }))
  }
}

const HEAD_END = '\r\n\r\n'

export class DapClient {
  /** Resolves when the connection has ended. */
  readonly closed: Promise<unknown>
  readonly #socket: Socket
  readonly #inbox = new Inbox<Json>()
  #bytes = Buffer.alloc(0)
  #count = 0

  constructor(port: number) {
    this.#socket = connect(port, '127.0.0.1')
    this.closed = once(this.#socket, 'close')
    this.#socket.on('data', bytes => {
      this.#bytes = Buffer.concat([this.#bytes, bytes])
      this.#read()
    })
  }

  /** @throws Error with the reason when it fails */
  async send(command: string, given: object = {}): Promise<Json> {
    const seq = ++this.#count
    const body = JSON.stringify({ seq, type: 'request', command, arguments: given })
    this.#socket.write(`Content-Length: ${Buffer.byteLength(body)}${HEAD_END}${body}`)
    const answer = await this.#inbox.next(message => message.request_seq === seq)
    if (!answer.success) throw new Error(answer.message)
    return answer.body
  }

  async event(name: string): Promise<Json> {
    return (await this.#inbox.next(message => message.event === name)).body
  }

  close(): void {
    this.#socket.destroy()
  }

  #read(): void {
    for (;;) {
      const head = this.#bytes.indexOf(HEAD_END)
      if (head === -1) return
      const length = Number(/Content-Length: (\d+)/.exec(this.#bytes.toString('latin1', 0, head))![1])
      const end = head + HEAD_END.length + length
      if (this.#bytes.length < end) return
      this.#inbox.add(JSON.parse(this.#bytes.toString('utf8', head + HEAD_END.length, end)))
      this.#bytes = this.#bytes.subarray(end)
    }
  }
}

/** One process that Xdebug has stopped before its first line. */
export class DbgpSession {
  readonly #socket: Socket
  readonly #inbox = new Inbox<string>()
  #text = ''
  #count = 0

  constructor(socket: Socket) {
    this.#socket = socket
    socket.on('error', () => {})
    socket.on('data', bytes => {
      this.#text += bytes.toString('latin1')
      // Each message is its length and its XML, both with a zero behind.
      const parts = this.#text.split('\0')
      for (; parts.length > 2; parts.splice(0, 2)) this.#inbox.add(parts[1]!)
      this.#text = parts.join('\0')
    })
  }

  /** @returns the XML of the answer, which comes when the command is done */
  send(command: string): Promise<string> {
    const [name, ...rest] = command.split(' ')
    const id = ++this.#count
    this.#socket.write(`${[name, `-i ${id}`, ...rest].join(' ')}\0`)
    return this.#inbox.next(text => text.includes(`transaction_id="${id}"`))
  }
}

/** An editor that listens for Xdebug. */
export class DbgpEditor {
  readonly #server: Server = createServer(socket => {
    this.#sockets.add(socket)
    this.#sessions.add(new DbgpSession(socket))
  })
  readonly #sockets = new Set<Socket>()
  readonly #sessions = new Inbox<DbgpSession>()

  /** @returns the port */
  async listen(): Promise<number> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return (this.#server.address() as { port: number }).port
  }

  session(): Promise<DbgpSession> {
    return this.#sessions.next(() => true)
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}
