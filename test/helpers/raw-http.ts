import { connect, type Socket } from 'node:net'

export interface RawAnswer {
  status: number
  headers: Record<string, string>
  body: string
}

/** A connection on which a test writes bytes as it likes. */
export class RawConnection {
  readonly socket: Socket
  #bytes = Buffer.alloc(0)
  #waiting: (() => void)[] = []
  isClosed = false

  constructor(socket: Socket) {
    this.socket = socket
    socket.on('data', chunk => {
      this.#bytes = Buffer.concat([this.#bytes, chunk])
      this.#wake()
    })
    // A reset is an end like any other here.
    socket.on('error', () => {})
    socket.on('close', () => {
      this.isClosed = true
      this.#wake()
    })
  }

  static open(port: number): Promise<RawConnection> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, '127.0.0.1', () => resolve(new RawConnection(socket)))
      socket.once('error', reject)
    })
  }

  write(text: string | Buffer): void {
    this.socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text)
  }

  get text(): string {
    return this.#bytes.toString('latin1')
  }

  /** Resolves when `done` holds or the connection is closed. */
  async until(done: () => boolean): Promise<void> {
    while (!done() && !this.isClosed) await new Promise<void>(resolve => this.#waiting.push(resolve))
  }

  async closed(): Promise<void> {
    await this.until(() => false)
  }

  /** Waits for so many whole answers, or the end of the connection. */
  async answers(count: number): Promise<RawAnswer[]> {
    await this.until(() => parseAnswers(this.text).length >= count)
    return parseAnswers(this.text)
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }
}

/** Whole answers with a Content-Length or without a body; 100 Continue counts as one. */
export function parseAnswers(text: string): RawAnswer[] {
  const answers: RawAnswer[] = []
  for (let rest = text; rest !== ''; ) {
    const end = rest.indexOf('\r\n\r\n')
    if (end === -1) break
    const [statusLine = '', ...lines] = rest.slice(0, end).split('\r\n')
    const headers: Record<string, string> = {}
    for (const line of lines)
      headers[line.slice(0, line.indexOf(':')).toLowerCase()] = line.slice(line.indexOf(':') + 2)
    const length = Number(headers['content-length'] ?? 0)
    const body = rest.slice(end + 4, end + 4 + length)
    if (body.length < length) break
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1] ?? Number.NaN)
    answers.push({ status, headers, body })
    rest = rest.slice(end + 4 + length)
  }
  return answers
}
