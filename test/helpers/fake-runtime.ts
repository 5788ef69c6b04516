import { GatewayError } from '../../lib/core/errors.ts'
import type { RuntimeName } from '../../lib/core/identity.ts'
import type { Runtime, RuntimeCall, RuntimeHealth } from '../../lib/runtime/call.ts'

/** A runtime in memory: `answer` decides what becomes of a call. Calls it does not answer stay in `open`. */
export class FakeRuntime implements Runtime {
  readonly name: RuntimeName = 'node'
  readonly calls: RuntimeCall[] = []
  readonly open = new Set<RuntimeCall>()
  readonly abandoned: RuntimeCall[] = []
  answer: (call: RuntimeCall, runtime: FakeRuntime) => void = (call, runtime) => runtime.reply(call, 200, {}, 'ok')

  start(): Promise<void> {
    return Promise.resolve()
  }

  health(): RuntimeHealth {
    return { routing: 'single', up: true, reason: 'ok', sockets: [] }
  }

  dispatch(call: RuntimeCall): void {
    this.calls.push(call)
    this.open.add(call)
    this.answer(call, this)
  }

  abandon(call: RuntimeCall): void {
    this.abandoned.push(call)
    this.open.delete(call)
  }

  reply(call: RuntimeCall, status: unknown, headers: unknown = {}, body: string | Buffer = ''): void {
    this.replyText(call, JSON.stringify({ status, headers }), body)
  }

  /** A reply whose header is any text. */
  replyText(call: RuntimeCall, header: string, body: string | Buffer = ''): void {
    if (!this.open.delete(call)) return
    call.onReply(header, Buffer.from(body), false)
  }

  /** Begins a stream; the call stays open until `end` or `fail`. */
  stream(call: RuntimeCall, head: Record<string, unknown>): void {
    if (this.open.has(call)) call.onReply(JSON.stringify({ headers: {}, status: 200, ...head }), Buffer.alloc(0), true)
  }

  end(call: RuntimeCall, error: GatewayError | null = null): void {
    if (this.open.delete(call)) call.onEnd(error)
  }

  fail(call: RuntimeCall, error = new GatewayError('WORKER_DIED', 'worker died')): void {
    if (this.open.delete(call)) call.onError(error)
  }

  warm(): void {}
  retain(): void {}

  workerCount(): number {
    return 1
  }

  close(): Promise<void> {
    return Promise.resolve()
  }
}

/** What a call's `call` header says. */
export function headerOfCall(call: RuntimeCall): Record<string, unknown> {
  return JSON.parse(call.wholeHeader)
}
