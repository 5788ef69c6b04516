import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import type { CallHost, RuntimeCall } from '../../lib/runtime/call.ts'

/** Workers in memory: `answer` decides what becomes of a call. Calls it does not answer stay in `open`. */
export class FakeRuntime implements CallHost {
  readonly socketIndex = 1
  readonly calls: RuntimeCall[] = []
  readonly open = new Set<RuntimeCall>()
  readonly abandoned: RuntimeCall[] = []
  /** Stream bytes that were taken. */
  granted = 0
  answer: (call: RuntimeCall, runtime: FakeRuntime) => void = (call, runtime) => runtime.reply(call, 200, {}, 'ok')

  /** As a dispatcher of a gateway where php is not enabled: it serves every other function. */
  setOf({ runtime }: Pick<FunctionVersion, 'runtime'>): FakeRuntime {
    if (runtime === 'php') throw new GatewayError('RUNTIME_DOWN', 'runtime down: php is not enabled')
    return this
  }

  dispatch(call: RuntimeCall): void {
    call.phase = 'running'
    call.host = this
    this.calls.push(call)
    this.open.add(call)
    this.answer(call, this)
  }

  abandon(call: RuntimeCall): void {
    this.abandoned.push(call)
    this.open.delete(call)
  }

  grant(_call: RuntimeCall, bytes: number): void {
    this.granted += bytes
  }

  reply(call: RuntimeCall, status: unknown, headers: unknown = {}, body: string | Buffer = ''): void {
    this.replyText(call, JSON.stringify({ status, headers }), body)
  }

  /** A reply whose header is any text. */
  replyText(call: RuntimeCall, header: string, body: string | Buffer = ''): void {
    if (!this.open.delete(call)) return
    call.phase = 'done'
    call.onReply(header, Buffer.from(body), false)
  }

  /** Begins a stream; the call stays open until `end` or `fail`. */
  stream(call: RuntimeCall, head: Record<string, unknown>): void {
    if (!this.open.has(call)) return
    call.phase = 'streaming'
    call.onReply(JSON.stringify({ headers: {}, status: 200, ...head }), Buffer.alloc(0), true)
  }

  end(call: RuntimeCall, error: GatewayError | null = null): void {
    if (!this.open.delete(call)) return
    call.phase = 'done'
    call.onEnd(error)
  }

  fail(call: RuntimeCall, error = new GatewayError('WORKER_DIED', 'worker died')): void {
    if (!this.open.delete(call)) return
    call.phase = 'done'
    call.onError(error)
  }
}

/** What a call's `call` header says. */
export function headerOfCall(call: RuntimeCall): Record<string, unknown> {
  return JSON.parse(call.header)
}
