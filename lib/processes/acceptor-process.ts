/**
 * One acceptor as the first process has it: a separate process, its line, the messages it got and has confirmed.
 * Owner: page processes/processes.
 *
 *   starting ─ serving ─►  serving  ─ (killed, or asked to close) ─►  gone
 */

import { type ChildProcess, fork } from 'node:child_process'
import type { Socket } from 'node:net'
import { type Clock, within } from '../core/clock.ts'
import { MAX_BODY_BYTES } from '../core/limits.ts'
import { AcceptorDoor, type AcceptorDoorDeps } from './call-relay.ts'
import {
  type AdoptMessage,
  type BeginMessage,
  type FromAcceptor,
  Link,
  type LinkEvents,
  type ToAcceptor,
} from './link.ts'

/** Descriptors of an acceptor: its messages, its line, then the sockets to listen on. */
export const LINE_FD = 4
const FIRST_SOCKET_FD = 5
/** Milliseconds an acceptor has to put a tree in force: one that is stuck is replaced, so that a reload comes to its end. */
const ADOPT_TIMEOUT_MS = 10_000
/** Milliseconds beyond its own limit that an acceptor has to close. */
const CLOSE_GRACE_MS = 1000
const MAX_REASON_CHARS = 300

export interface AcceptorProcessOptions {
  clock: Clock
  door: AcceptorDoorDeps
  entry: string
  /** Descriptors, in this process, of the sockets to listen on. */
  sockets: readonly number[]
  begin: Omit<BeginMessage, 'kind' | 'fds'>
  /** Access lines, each with a line end; valid during the call only. */
  onLines(bytes: Buffer): void
  onMessage(message: FromAcceptor): void
  /** It is gone. @param reason - null when it was asked to go */
  onEnd(reason: string | null): void
}

export class AcceptorProcess {
  isServing = false
  readonly #options: AcceptorProcessOptions
  readonly #child: ChildProcess
  readonly #link: Link
  readonly #door: AcceptorDoor
  /** Questions that wait for an answer, settled when the acceptor is gone. */
  readonly #waiting = new Map<string, (isAnswered: true) => void>()
  #questions = 0
  #isClosing = false
  #isGone = false
  #lastLine = ''

  constructor(options: AcceptorProcessOptions) {
    this.#options = options
    const { entry, sockets, begin } = options
    this.#child = fork(entry, [], {
      serialization: 'advanced',
      // A separate group: Ctrl-C in the terminal is for the first process, which lets requests finish.
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe', 'ipc', 'pipe', ...sockets],
    })
    this.#child.stderr?.on('data', bytes => this.#note(String(bytes)))
    this.#child.on('message', message => this.#handle(message as FromAcceptor))
    // A message that cannot be sent any more: the end follows.
    this.#child.on('error', error => this.#finish(error.message))
    this.#child.once('exit', (code, signal) => {
      const end = signal === null ? `exited with code ${code}` : `ended by ${signal}`
      this.#finish(this.#lastLine === '' ? end : `${end}: ${this.#lastLine}`)
    })
    const events: LinkEvents = {
      onFrame: (kind, id, header, body) => {
        if (id === 0) options.onLines(body)
        else this.#door.handleFrame(kind, id, header, body)
      },
      // One that closes ends its line first, and may still send messages.
      onLost: () => {
        if (!this.#isClosing) this.kill()
      },
    }
    this.#link = new Link(this.#child.stdio[LINE_FD] as Socket, events, MAX_BODY_BYTES)
    this.#door = new AcceptorDoor(options.door, this.#link)
    const fds = sockets.map((_, at) => FIRST_SOCKET_FD + at)
    this.post({ kind: 'begin', ...begin, fds })
  }

  get pid(): number | null {
    return this.#child.pid ?? null
  }

  post(message: ToAcceptor): void {
    if (!this.#isGone && this.#child.connected) this.#child.send(message, () => {})
  }

  /** Resolves when the tree is in force there, or the acceptor is gone. */
  async adopt(tree: AdoptMessage): Promise<void> {
    if (this.#isGone) return
    await this.#limit(ADOPT_TIMEOUT_MS, this.#ask(`adopted ${tree.generation}`, tree))
  }

  /** Resolves when its counts so far are here. */
  async count(): Promise<void> {
    if (this.#isGone || !this.isServing) return
    this.#questions += 1
    await this.#ask(`counts ${this.#questions}`, { kind: 'count', id: this.#questions })
  }

  /** Lets it finish its requests. Resolves when it is gone. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosing = true
    if (!this.#isGone) await this.#limit(timeoutMs + CLOSE_GRACE_MS, this.#ask('end', { kind: 'close', timeoutMs }))
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }

  /** Resolves when it has answered, or is gone. */
  #ask(answer: string, message: ToAcceptor): Promise<true> {
    return new Promise(resolve => {
      this.#waiting.set(answer, resolve)
      this.post(message)
    })
  }

  #settle(answer: string): void {
    this.#waiting.get(answer)?.(true)
    this.#waiting.delete(answer)
  }

  /** Kills it when it takes longer. */
  async #limit(ms: number, answered: Promise<true>): Promise<void> {
    if ((await within(this.#options.clock, ms, answered)) === null) this.kill()
    await answered
  }

  #handle(message: FromAcceptor): void {
    if (message.kind === 'serving') this.isServing = true
    try {
      this.#options.onMessage(message)
    } catch (error) {
      // An unknown message breaks the protocol, as on its line.
      this.#lastLine = (error as Error).message.slice(0, MAX_REASON_CHARS)
      this.kill()
    }
    if (message.kind === 'adopted') this.#settle(`adopted ${message.generation}`)
    else if (message.kind === 'counts') this.#settle(`counts ${message.id}`)
  }

  #finish(reason: string): void {
    if (this.#isGone) return
    this.#isGone = true
    this.isServing = false
    this.#link.close()
    this.#door.close()
    this.#options.onEnd(this.#isClosing ? null : reason)
    for (const answer of this.#waiting.keys()) this.#settle(answer)
  }

  /** Of a failure the line that says which. */
  #note(text: string): void {
    const lines = text.split('\n').map(line => line.trim())
    const line = lines.findLast(one => one !== '' && !one.startsWith('at ') && !one.startsWith('Node.js v'))
    if (line !== undefined) this.#lastLine = line.slice(0, MAX_REASON_CHARS)
  }
}
