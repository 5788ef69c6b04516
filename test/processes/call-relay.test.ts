import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import type { Call } from '../../lib/invocation/invoke.ts'
import { CallRelay } from '../../lib/processes/call-relay.ts'
import { toErrorHeader, toFactsHeader } from '../../lib/processes/link.ts'
import { RuntimeCall } from '../../lib/runtime/call.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FakeLine } from '../helpers/fake-line.ts'
import { makeFn } from '../helpers/fn.ts'

/** A call that writes down what it is told. */
class ToldCall extends RuntimeCall {
  readonly told: string[] = []
  queuedMs = 0

  override onReply(header: string, body: Buffer, stream: boolean): void {
    this.told.push(`${stream ? 'stream' : 'reply'} ${header} ${body}`)
  }
  override onChunk(body: Buffer): void {
    this.told.push(`chunk ${body}`)
  }
  override onEnd(error: GatewayError | null): void {
    this.told.push(`end ${error?.message ?? 'good'}`)
  }
  override onLog(stream: string, text: string): void {
    this.told.push(`${stream} ${text}`)
  }
  override onError(error: GatewayError): void {
    this.told.push(`error ${error.status} ${error.message}`)
  }
}

function createBed(): { line: FakeLine; relay: CallRelay; call: () => ToldCall } {
  const line = new FakeLine()
  const relay = new CallRelay(line)
  const call = () => {
    const made = new ToldCall(makeFn({}))
    made.header = '{"id":"r"}'
    relay.dispatch(made)
    return made
  }
  return { line, relay, call }
}

const frame = (relay: CallRelay, kind: keyof typeof KIND, id: number, header = '', body = ''): boolean =>
  relay.handleFrame(KIND[kind], id, header, Buffer.from(body))

t.test(
  '[processes/processes.4] a call goes to the first process with its function, and its answer comes back',
  async t => {
    const { line, relay, call } = createBed()
    const one = call()
    t.match(line.sent, [{ kind: 'call', id: 1, header: `${one.fn.key}\n{"id":"r"}`, body: '' }])
    t.equal(one.phase, 'sent')
    frame(relay, 'started', 1, toFactsHeader({ cold: true, socketIndex: 2, queuedMs: 5, loadError: null }))
    frame(relay, 'log', 1, 'stderr', 'oops')
    frame(relay, 'reply', 1, '{"status":200}', 'hi')
    t.same(one.told, ['stderr oops', 'reply {"status":200} hi'])
    t.same([one.phase, one.cold, one.queuedMs, one.host?.socketIndex], ['done', true, 5, 2])
    t.equal(frame(relay, 'reply', 1, '{}', 'again'), false, 'nobody waits for a second answer')
  },
)

t.test('[processes/processes.9] a stream goes on until its end, and what the client took is granted', async t => {
  const { line, relay, call } = createBed()
  const one = call()
  line.take()
  frame(relay, 'chunk', 1, '', 'too early')
  frame(relay, 'reply', 1, '{"stream":true}', 'a')
  frame(relay, 'chunk', 1, '', 'b')
  one.host!.grant(one, 2)
  frame(relay, 'end', 1, toErrorHeader(new GatewayError('HANDLER_FAILED', 'broke')))
  frame(relay, 'chunk', 1, '', 'too late')
  t.same(one.told, ['stream {"stream":true} a', 'chunk b', 'end broke'])
  t.match(line.sent, [{ kind: 'more', id: 1, header: '{"bytes":2}' }])
})

t.test('[processes/processes.8] a client that leaves withdraws its call, and hears nothing more', async t => {
  const { line, relay, call } = createBed()
  const one = call()
  line.take()
  one.withdraw()
  t.same(line.take(), ['cancel 1'])
  t.equal(frame(relay, 'reply', 1, '{}', 'late'), false)
  t.same(one.told, [])
})

t.test('[processes/processes.4] a refusal arrives as it was, and is known to be written down', async t => {
  const { relay, call } = createBed()
  const one = call()
  const told: GatewayError[] = []
  one.onError = error => told.push(error)
  frame(relay, 'error', 1, toErrorHeader(new GatewayError('POOL_OVERFLOW', 'worker pool overflow', { status: 503 })))
  t.match(told, [{ code: 'POOL_OVERFLOW', status: 503 }])
  t.ok(relay.wasReported(told[0]!))
  t.notOk(relay.wasReported(new GatewayError('INTERNAL', 'x')))
})

t.test(
  '[processes/processes.11] the slot of an answer that is fetched elsewhere is given back when that is over',
  async t => {
    const { line, relay, call } = createBed()
    const plain = call()
    relay.leave(plain)
    t.same(line.take(), ['call 1'], 'the first process knows')
    const edge = { baseUrl: null, allowHosts: [], allowPrivate: false, maxResponseBytes: 1 }
    const proxied = new ToldCall(makeFn({ policy: { ...plain.fn.policy, edge } }))
    relay.dispatch(proxied as unknown as Call)
    frame(relay, 'reply', 2, '{"proxy":{}}')
    relay.leave(proxied)
    t.same(line.take(), ['call 2', 'end 2'])
  },
)
