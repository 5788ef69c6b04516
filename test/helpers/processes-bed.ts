/** A gateway of several processes, and a connection to each of them. */

import { Agent, type IncomingMessage, request } from 'node:http'
import type { Test } from 'tap'
import { createGateway, type Gateway, type GatewayOptions } from '../../lib/index.ts'
import { RawConnection } from './raw-http.ts'
import { makeTree } from './tree.ts'

export interface Answer {
  status: number
  headers: IncomingMessage['headers']
  text: string
}

/** One kept connection: whatever is asked on it goes to one process. */
export class Connection {
  readonly url: string
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 })

  constructor(url: string) {
    this.url = url
  }

  /** The head of an answer; its body follows in the message. */
  open(
    path: string,
    {
      method = 'GET',
      headers = {},
      body,
    }: { method?: string; headers?: Record<string, string>; body?: string | Buffer } = {},
  ): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const asked = request(new URL(path, this.url), { method, headers, agent: this.#agent }, resolve)
      asked.on('error', reject)
      asked.end(body)
    })
  }

  async ask(...[path, options]: Parameters<Connection['open']>): Promise<Answer> {
    const answer = await this.open(path, options)
    const chunks: Buffer[] = []
    for await (const chunk of answer) chunks.push(chunk)
    return { status: answer.statusCode ?? 0, headers: answer.headers, text: Buffer.concat(chunks).toString() }
  }

  /** Which process answers, by the ids that it gives. */
  async process(): Promise<string> {
    const { headers } = await this.ask('/_who')
    return String(headers['x-request-id']).split('-')[0] as string
  }

  close(): void {
    this.#agent.destroy()
  }
}

/** A connection to each process of a gateway: as many as there are, whoever of them takes a connection first. */
export async function connectToAll(t: Test, url: string, count: number, but: ReadonlySet<string> = new Set()) {
  const found = new Map<string, Connection>()
  while (found.size < count) {
    const connections = Array.from({ length: 2 }, () => new Connection(url))
    const names = await Promise.all(connections.map(connection => connection.process()))
    for (const [at, name] of names.entries()) {
      if (found.has(name) || but.has(name) || found.size === count) connections[at]!.close()
      else found.set(name, connections[at]!)
    }
  }
  t.teardown(() => {
    for (const connection of found.values()) connection.close()
  })
  return found
}

/** A connection on which a test writes bytes, to the process of that name; it has answered once. */
export async function openRaw(url: string, name: string): Promise<RawConnection> {
  for (;;) {
    const connection = await RawConnection.open(Number(new URL(url).port))
    connection.write('GET /_who HTTP/1.1\r\nHost: x\r\n\r\n')
    const [answer] = await connection.answers(1)
    if (answer?.headers['x-request-id']?.split('-')[0] === name) return connection
    connection.socket.destroy()
  }
}

/** What the first process calls itself: it answers without a socket, too. */
export async function nameOfFirst(gateway: Gateway): Promise<string> {
  const { headers } = await gateway.inject('/_who')
  return String(headers['x-request-id']).split('-')[0] as string
}

export interface ProcessesBed {
  root: string
  url: string
  gateway: Gateway
  /** To the first process, and to a front. */
  first: Connection
  front: Connection
  /** What the front calls itself. */
  frontName: string
}

export async function serveTwice(
  t: Test,
  files: Record<string, string>,
  options: GatewayOptions = {},
): Promise<ProcessesBed> {
  const { root, cleanup } = await makeTree(files)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, gatewayWorkers: 2, ...options })
  t.teardown(() => gateway.close())
  // Says why, when a front died that should not have.
  gateway.on('log', ({ level, message }) => {
    if (level === 'warn') t.comment(message)
  })
  const { url } = await gateway.listen({ port: 0 })
  const firstName = await nameOfFirst(gateway)
  const all = await connectToAll(t, url, 2)
  const frontName = [...all.keys()].find(name => name !== firstName) as string
  return { root, url, gateway, first: all.get(firstName)!, front: all.get(frontName)!, frontName }
}
