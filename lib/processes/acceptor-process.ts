/**
 * One acceptor as the first process has it: a process of its own, its line, what it was told and has confirmed.
 * Owner: page processes/processes.
 *
 *   starting ─ serving ─►  serving  ─ (killed, or asked to close) ─►  gone
 */

import { type ChildProcess, fork } from 'node:child_process'
import type { Socket } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { MAX_BODY_BYTES } from '../core/limits.ts'
import { AcceptorDoor, type AcceptorDoorDeps } from './call-relay.ts'
import { type AdoptMessage, type FromAcceptor, Link, type ToAcceptor } from './link.ts'

/** Descriptors of an acceptor: its messages, its line, then the sockets to listen on. */
export const LINE_FD = 4
const FIRST_SOCKET_FD = 5
/** Milliseconds an acceptor has to put a tree in force: one that is stuck is replaced, so that a reload comes to its end. */
const ADOPT_TIMEOUT_MS = 10_000
/** Milliseconds beyond its own limit that an acceptor has to close. */
const CLOSE_GRACE_MS = 1000
const MAX_REASON_CHARS = 300

type Begin = Omit<Extract<ToAcceptor, { kind: 'begin' }>, 'kind' | 'fds'>

export interface AcceptorProcessOptions {
  clock: Clock
  door: AcceptorDoorDeps
  /** Program of an acceptor. */
  entry: string
  /** Descriptors, in this process, of the sockets to listen on. */
  sockets: readonly number[]
  begin: Begin
  onServing(): void
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
  /** What waits for an answer, and is settled when the acceptor is gone. */
  readonly #adopting = new Map<number, () => void>()
  readonly #counting = new Map<number, () => void>()
  #questions = 0
  #isClosing = false
  #isGone = false
  #lastLine = ''
  #ended: () => void = () => {}
  readonly #end = new Promise<void>(resolve => {
    this.#ended = resolve
  })

  constructor(options: AcceptorProcessOptions) {
    this.#options = options
    const { entry, sockets, begin } = options
    this.#child = fork(entry, [], {
      serialization: 'advanced',
      // A group of its own: Ctrl-C in the terminal is for the first process, which lets requests finish.
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe', 'ipc', 'pipe', ...sockets],
    })
    this.#child.stderr?.on('data', bytes => this.#note(String(bytes)))
    this.#child.on('message', message => this.#take(message as FromAcceptor))
    // A message that cannot be sent any more: the end follows.
    this.#child.on('error', error => this.#finish(error.message))
    this.#child.once('exit', (code, signal) => {
      const end = signal === null ? `exited with code ${code}` : `ended by ${signal}`
      this.#finish(this.#lastLine === '' ? end : `${end}: ${this.#lastLine}`)
    })
    const events = {
      onFrame: (kind: Parameters<AcceptorDoor['handleFrame']>[0], id: number, header: string, body: Buffer) => {
        if (id === 0) options.onLines(body)
        else this.#door.handleFrame(kind, id, header, body)
      },
      // One that closes ends its line first, and may still have something to tell.
      onLost: () => {
        if (!this.#isClosing) this.kill()
      },
    }
    this.#link = new Link(this.#child.stdio[LINE_FD] as Socket, events, MAX_BODY_BYTES)
    this.#door = new AcceptorDoor(options.door, this.#link)
    const fds = sockets.map((_, at) => FIRST_SOCKET_FD + at)
    this.tell({ kind: 'begin', ...begin, fds })
  }

  get pid(): number | null {
    return this.#child.pid ?? null
  }

  tell(message: ToAcceptor): void {
    if (!this.#isGone && this.#child.connected) this.#child.send(message, () => {})
  }

  /** Resolves when the tree is in force there, or nobody is there any more. */
  adopt(tree: AdoptMessage): Promise<void> {
    if (this.#isGone) return Promise.resolve()
    const { clock } = this.#options
    return new Promise(resolve => {
      const timer = clock.setTimeout(() => this.kill(), ADOPT_TIMEOUT_MS)
      this.#adopting.set(tree.generation, () => {
        clock.clearTimeout(timer)
        resolve()
      })
      this.tell(tree)
    })
  }

  /** Resolves when what it has counted so far was told. */
  count(): Promise<void> {
    if (this.#isGone || !this.isServing) return Promise.resolve()
    this.#questions += 1
    const id = this.#questions
    return new Promise(resolve => {
      this.#counting.set(id, resolve)
      this.tell({ kind: 'count', id })
    })
  }

  /** Lets it finish its requests. Resolves when it is gone. */
  close(timeoutMs: number): Promise<void> {
    this.#isClosing = true
    if (this.#isGone) return Promise.resolve()
    this.tell({ kind: 'close', timeoutMs })
    const { clock } = this.#options
    const timer = clock.setTimeout(() => this.kill(), timeoutMs + CLOSE_GRACE_MS)
    return this.#end.finally(() => clock.clearTimeout(timer))
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }

  /** One that says what nobody understands breaks the protocol, as on its line. */
  #take(message: FromAcceptor): void {
    try {
      this.#handle(message)
    } catch (error) {
      this.#lastLine = (error as Error).message.slice(0, MAX_REASON_CHARS)
      this.kill()
    }
  }

  #handle(message: FromAcceptor): void {
    const { onServing, onMessage } = this.#options
    if (message.kind === 'serving') {
      this.isServing = true
      onServing()
    } else if (message.kind === 'adopted') {
      settle(this.#adopting, message.generation)
    } else {
      onMessage(message)
      if (message.kind === 'counts') settle(this.#counting, message.id)
    }
  }

  #finish(reason: string): void {
    if (this.#isGone) return
    this.#isGone = true
    this.isServing = false
    this.#link.close()
    this.#door.close()
    for (const waiting of [this.#adopting, this.#counting]) for (const id of [...waiting.keys()]) settle(waiting, id)
    this.#options.onEnd(this.#isClosing ? null : reason)
    this.#ended()
  }

  /** Of a failure the line that says which. */
  #note(text: string): void {
    const lines = text.split('\n').map(line => line.trim())
    const line = lines.findLast(one => one !== '' && !one.startsWith('at ') && !one.startsWith('Node.js v'))
    if (line !== undefined) this.#lastLine = line.slice(0, MAX_REASON_CHARS)
  }
}

function settle(waiting: Map<number, () => void>, id: number): void {
  const resolve = waiting.get(id)
  waiting.delete(id)
  resolve?.()
}
