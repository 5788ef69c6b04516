import type { GatewayError } from '../../lib/core/errors.ts'
import { RuntimeCall } from '../../lib/runtime/call.ts'
import { Worker } from '../../lib/runtime/worker.ts'

/** A call that writes down what it is told. */
export class SeenCall extends RuntimeCall {
  readonly seen: string[] = []

  override onReply(header: string, _body: Buffer, stream: boolean): void {
    this.seen.push(`${stream ? 'stream' : 'reply'} ${header}`)
  }

  override onChunk(body: Buffer): void {
    this.seen.push(`chunk ${body.length}`)
  }

  override onEnd(error: GatewayError | null): void {
    this.seen.push(`end ${error?.status ?? 'ok'}`)
  }

  override onLog(stream: string, text: string): void {
    this.seen.push(`${stream} ${text}`)
  }

  override onError(error: GatewayError): void {
    this.seen.push(`error ${error.status} ${error.message}`)
  }
}

/** A worker in memory: it does what the test tells it. */
export class FakeWorker extends Worker {
  readonly log: string[] = []
  readonly sent: RuntimeCall[] = []
  process: number | null = null

  override get pid(): number | null {
    return this.process
  }

  protected override sendCall(call: RuntimeCall): void {
    this.sent.push(call)
  }

  protected override sendCancel(call: RuntimeCall): void {
    this.log.push(`cancel ${this.sent.indexOf(call)}`)
  }

  protected override sendMore(call: RuntimeCall, bytes: number): void {
    this.log.push(`more ${this.sent.indexOf(call)} ${bytes}`)
  }

  protected override sendPing(): void {
    this.log.push('ping')
  }

  protected override endNow(): void {
    this.log.push('kill')
  }

  protected override endGracefully(): void {
    this.log.push('stop')
  }

  /** Answers the call that was sent as the n-th, from 0. */
  reply(at: number): void {
    this.handleReply(this.sent[at]!.wireId, `r${at}`, Buffer.alloc(0), false)
  }

  /** Its process ended as it was told. */
  end(): void {
    this.handleClosed({ reason: 'stopped', unexpected: false, complete: true })
  }
}
