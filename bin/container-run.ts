/**
 * One container of container mode, from its making to its end. Page: bin/container.
 *
 *   create ──► start, attached ──► ends by itself ─────────────────► remove
 *                 │ stop(): its standard input ends, it drains ──────^
 *                 └ kill(): at once ─────────────────────────────────^
 *
 * Its standard input is a pipe of this process. However this process ends, the pipe ends with it, and so does the gateway inside.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { type Env, runClient } from './container-client.ts'
import { CommandError } from './usage-error.ts'

interface ContainerOptions {
  /** Client program. */
  program: string
  name: string
  /** Of the client's processes. */
  env: Env
  stdout: Writable
  stderr: Writable
  /** A line of its standard output. */
  onLine: (line: string) => void
  /** Milliseconds from `stop` on after which it is ended by force. */
  graceMs: number
}

/** Characters of a line that is looked at. */
const MAX_LINE = 4096

export class DevContainer {
  readonly #options: ContainerOptions
  #client: ChildProcess | null = null
  #isStopping = false
  #timer: NodeJS.Timeout | null = null

  constructor(options: ContainerOptions) {
    this.#options = options
  }

  /**
   * Creates it; the client pulls a missing image and reports that.
   * @param args - of `<client> create`
   * @throws CommandError
   */
  async create(args: readonly string[]): Promise<void> {
    const { program, stderr } = this.#options
    let last: string | null = null
    const code = await this.#run(['create', ...args], child => {
      // The printed id is not needed.
      child.stdout!.resume()
      followLines(child.stderr!, line => {
        if (last !== null) stderr.write(`${last}\n`)
        last = line
      })
    })
    if (code === 0 || this.#isStopping) return
    throw new CommandError(`${program} cannot make a container: ${last ?? `create ended with ${code}`}`)
  }

  /** Runs it. @returns its exit code, once it has ended */
  async start(): Promise<number> {
    const { name, stdout, stderr, onLine } = this.#options
    if (this.#isStopping) return 0
    const code = await this.#run(['start', '--attach', '--interactive', name], child => {
      forward(child.stdout!, stdout)
      forward(child.stderr!, stderr)
      followLines(child.stdout!, onLine)
    })
    return code ?? 1
  }

  /** A key for the program in it. */
  send(key: string): void {
    if (!this.#isStopping) this.#client?.stdin?.write(key)
  }

  /** It finishes what runs, and ends. */
  stop(): void {
    if (this.#isStopping) return
    this.#isStopping = true
    // What is not started yet ends with its client.
    if (this.#client?.stdin == null) this.#client?.kill('SIGTERM')
    else this.#client.stdin.end()
    this.#timer = setTimeout(() => void this.kill(), this.#options.graceMs)
  }

  /** It ends at once and is gone. */
  async kill(): Promise<void> {
    this.#isStopping = true
    const { program, name, env } = this.#options
    await runClient(program, ['kill', '--signal', 'KILL', name], env)
    await this.remove()
  }

  /** It is gone, whether it ever was. */
  async remove(): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer)
    const { program, name, env } = this.#options
    await runClient(program, ['rm', '--force', name], env)
  }

  /** Runs the client in a separate session: signals of the terminal reach only this process, which forwards them. */
  #run(args: readonly string[], use: (child: ChildProcess) => void): Promise<number | null> {
    const { program, env } = this.#options
    return new Promise((resolve, reject) => {
      const stdin = args[0] === 'start' ? 'pipe' : 'ignore'
      const child = spawn(program, args, { env, stdio: [stdin, 'pipe', 'pipe'], detached: true })
      this.#client = child
      // It may have ended before its input.
      child.stdin?.on('error', () => {})
      use(child)
      child.once('error', error => reject(new CommandError(`cannot run ${program}: ${error.message}`)))
      child.once('close', code => resolve(code))
    })
  }
}

/** Forwards at the pace of the reader; a reader that is gone does not stop the gateway. */
function forward(from: Readable, to: Writable): void {
  const drain = (): void => {
    from.unpipe(to)
    from.resume()
  }
  if (to.destroyed) drain()
  else from.pipe(to, { end: false })
  to.once('error', drain)
  to.once('close', drain)
  from.once('close', () => {
    to.off('error', drain)
    to.off('close', drain)
  })
}

function followLines(from: Readable, onLine: (line: string) => void): void {
  let rest = ''
  from.on('data', chunk => {
    const lines = (rest + String(chunk)).split('\n')
    rest = lines.pop()!.slice(0, MAX_LINE)
    for (const line of lines) onLine(line)
  })
  from.once('close', () => {
    if (rest !== '') onLine(rest)
  })
}
