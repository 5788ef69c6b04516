import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { type CallHost, type CallPhase, RuntimeCall } from '../../lib/runtime/call.ts'
import { makeFn } from '../helpers/fn.ts'

/** A call that notes what it is told. */
class NotedCall extends RuntimeCall {
  readonly notes: string[] = []
  onReply(): void {
    this.notes.push('reply')
  }
  onChunk(): void {
    this.notes.push('chunk')
  }
  onEnd(error: GatewayError | null): void {
    this.notes.push(`end ${error?.message}`)
  }
  onLog(): void {
    this.notes.push('log')
  }
  onError(error: GatewayError): void {
    this.notes.push(`error ${error.message}`)
  }
}

const PHASES: readonly CallPhase[] = [
  'new',
  'queued',
  'admitted',
  'waiting',
  'sent',
  'running',
  'streaming',
  'upstream',
  'done',
]

function makeCall(phase: CallPhase) {
  const call = new NotedCall(makeFn())
  const abandoned: RuntimeCall[] = []
  const host: CallHost = { socketIndex: 1, grant: () => {}, abandon: given => abandoned.push(given) }
  call.phase = phase
  call.host = host
  return { call, abandoned }
}

t.test(
  '[invocation/admission.7] a call that nobody waits for tells its worker, where it has one, and is told nothing',
  async t => {
    for (const phase of PHASES) {
      const { call, abandoned } = makeCall(phase)
      call.withdraw()
      t.equal(call.phase, 'done', phase)
      t.equal(abandoned.length, ['sent', 'running', 'streaming'].includes(phase) ? 1 : 0, `${phase}: its worker`)
      call.withdraw()
      call.cut(new GatewayError('TIMEOUT', 'late'))
      t.same(call.notes, [], `${phase}: no callback follows`)
    }
  },
)

t.test(
  '[invocation/admission.8] a call that is cut fails once: before its answer as an error, after it as an end',
  async t => {
    for (const phase of PHASES) {
      const { call } = makeCall(phase)
      call.cut(new GatewayError('WORKER_DIED', 'worker died'))
      call.cut(new GatewayError('TIMEOUT', 'late'))
      const expected = phase === 'done' ? [] : phase === 'streaming' ? ['end worker died'] : ['error worker died']
      t.same(call.notes, expected, phase)
      t.equal(call.phase, 'done')
    }
  },
)
