import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { Admission } from '../../lib/invocation/admission.ts'
import { SecretMask } from '../../lib/observe/function-output.ts'
import { AcceptorDoor } from '../../lib/processes/call-relay.ts'
import { fromFactsHeader } from '../../lib/processes/link.ts'
import type { RuntimeCall } from '../../lib/runtime/call.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { FakeLine } from '../helpers/fake-line.ts'
import { makeFn } from '../helpers/fn.ts'

const EVENT = '{"id":"r1","trace":"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01","method":"GET","path":"/p"}'

interface Bed {
  line: FakeLine
  clock: FakeClock
  admission: Admission
  door: AcceptorDoor
  /** Calls that reached a worker. */
  running: RuntimeCall[]
  withdrawn: RuntimeCall[]
  /** Bytes that a worker may send on. */
  granted: number[]
  logged: string[]
  failed: string[]
  begin: (id: number, body?: string) => void
  /** Every call from now on finds no worker. */
  breakDown: (error: Error) => void
}

function createBed(policy: Parameters<typeof makeFn>[0] = {}): Bed {
  const line = new FakeLine()
  const clock = new FakeClock()
  const admission = new Admission(clock)
  const granted: number[] = []
  const [running, withdrawn, logged, failed] = [[], [], [], []] as [RuntimeCall[], RuntimeCall[], string[], string[]]
  const fn = makeFn(policy)
  let down: Error | null = null
  const host = {
    socketIndex: 2,
    grant: (_call: RuntimeCall, bytes: number) => void granted.push(bytes),
    abandon: (call: RuntimeCall) => void withdrawn.push(call),
  }
  const door = new AcceptorDoor(
    {
      invoker: { clock, secrets: new SecretMask() },
      admission,
      dispatcher: {
        setOf: () => ({
          dispatch: call => {
            if (down !== null) throw down
            call.phase = 'running'
            call.host = host
            running.push(call)
          },
        }),
      },
      journal: {
        output: (_fn, stream, text, call) => void logged.push(`${call?.id} ${stream} ${text}`),
        callFailed: ({ id, method, path }, error) => void failed.push(`${id} ${method} ${path} ${error.message}`),
      },
      control: () => t.fail('nothing for the control plane'),
      findFunction: key => (key === fn.key ? fn : null),
    },
    line,
  )
  const begin = (id: number, body = ''): void =>
    door.handleFrame(KIND.call, id, `${fn.key}\n${EVENT}`, Buffer.from(body))
  const breakDown = (error: Error): void => {
    down = error
  }
  return { line, clock, admission, door, running, withdrawn, granted, logged, failed, begin, breakDown }
}

const answer = (call: RuntimeCall | undefined, body: string): void => {
  call!.phase = 'done'
  call!.onReply('{"status":200}', Buffer.from(body), false)
}

t.test('[processes/processes.4] calls of fronts have slots like any other: they run, wait and are refused', async t => {
  const pool = { enabled: true, minWarm: 0, maxWorkers: 1, maxQueue: 1, queueTimeoutMs: 1000 }
  const rest = { queuePollMs: 20, idleTtlSeconds: 300, overflowStatus: 429 as const }
  const { line, admission, door, running, begin } = createBed({ policy: { workerPool: { ...pool, ...rest } } as never })
  for (const id of [1, 2, 3]) begin(id, `body ${id}`)
  t.match(line.sent.splice(0), [{ kind: 'error', id: 3, header: /"POOL_OVERFLOW"/ }])
  t.match(admission.snapshot(), [{ active: 1, queued: 1, overflows: 1 }])
  t.equal(door.open, 2)
  answer(running[0], 'one')
  t.match(line.sent.splice(0), [{ kind: 'reply', id: 1, header: '{"status":200}', body: 'one' }])
  t.equal(String(running[1]?.body), 'body 2', 'what was read may have been overwritten while it waited')
  t.equal(running[1]?.header, EVENT)
  answer(running[1], 'two')
  t.match(admission.snapshot(), [{ active: 0, queued: 0 }])
  t.equal(door.open, 0)
})

t.test('[processes/processes.8] a withdrawn call frees its slot wherever it is, and its worker is told', async t => {
  const { admission, door, running, withdrawn, begin } = createBed({ policy: { maxConcurrency: 1 } })
  begin(1)
  door.handleFrame(KIND.cancel, 1, '', Buffer.alloc(0))
  t.same(withdrawn, running)
  t.match(admission.snapshot(), [{ active: 0 }])
  door.handleFrame(KIND.cancel, 1, '', Buffer.alloc(0))
  begin(2)
  t.equal(running.length, 2)
  door.close()
  t.match(admission.snapshot(), [{ active: 0 }], 'and so does a front that is gone')
  t.equal(withdrawn.length, 2)
})

t.test(
  '[processes/processes.11] the slot of a function that may ask for another server is its own until the front is through',
  async t => {
    const edge = { baseUrl: null, allowHosts: [], allowPrivate: false, maxResponseBytes: 1 }
    const { line, admission, door, running, begin } = createBed({ policy: { edge } })
    begin(1)
    answer(running[0], '')
    t.same(line.take(), ['reply 1'])
    t.match(admission.snapshot(), [{ active: 1 }])
    door.handleFrame(KIND.end, 1, '', Buffer.alloc(0))
    t.match(admission.snapshot(), [{ active: 0 }])
  },
)

t.test('[processes/processes.7] output and failures are written down once, in the first process', async t => {
  const { line, running, logged, failed, begin } = createBed({
    policy: { includeDebugHeaders: true },
    env: { KEY: { value: 'very-secret-key', isSecret: true } },
  })
  begin(1)
  running[0]!.onLog('stdout', 'hello very-secret-key\n')
  running[0]!.phase = 'done'
  running[0]!.onError(new GatewayError('HANDLER_FAILED', 'no very-secret-key'))
  t.same(logged, ['r1 stdout hello <hidden>\n'])
  t.same(failed, ['r1 GET /p no <hidden>'])
  t.same(
    line.sent.map(({ kind }) => kind),
    ['log', 'error'],
  )
  t.notMatch(JSON.stringify(line.sent), /very-secret/)
})

t.test('[processes/processes.9] a stream is handed on piece by piece, with its end', async t => {
  const { line, running, admission, begin } = createBed()
  begin(1)
  const [call] = running
  call!.phase = 'streaming'
  call!.onReply('{"stream":true}', Buffer.from('a'), true)
  call!.onChunk(Buffer.from('b'))
  t.match(admission.snapshot(), [{ active: 1 }])
  call!.phase = 'done'
  call!.onEnd(null)
  t.same(line.take(), ['reply 1', 'chunk 1', 'end 1'])
  t.match(admission.snapshot(), [{ active: 0 }])
})

t.test(
  '[processes/processes.9] what the client took is granted to the worker, a stream that breaks says why',
  async t => {
    const { line, door, running, granted, failed, admission, begin } = createBed({
      env: { KEY: { value: 'very-secret-key', isSecret: true } },
    })
    begin(1)
    running[0]!.phase = 'streaming'
    running[0]!.onReply('{"stream":true}', Buffer.from('a'), true)
    door.handleFrame(KIND.more, 1, '{"bytes":512}', Buffer.alloc(0))
    t.same(granted, [512])
    running[0]!.phase = 'done'
    running[0]!.onEnd(new GatewayError('HANDLER_FAILED', 'no very-secret-key'))
    t.same(line.take(), ['reply 1', 'end 1'])
    t.same(failed, ['r1 GET /p no <hidden>'])
    t.match(admission.snapshot(), [{ active: 0 }])
  },
)

t.test(
  '[processes/processes.4] how long a call waited for its slot is told with its answer, or its refusal',
  async t => {
    const pool = { enabled: true, minWarm: 0, maxWorkers: 1, maxQueue: 2, queueTimeoutMs: 100 }
    const rest = { queuePollMs: 20, idleTtlSeconds: 300, overflowStatus: 503 as const }
    const { line, clock, running, failed, begin } = createBed({ policy: { workerPool: { ...pool, ...rest } } as never })
    for (const id of [1, 2, 3]) begin(id)
    clock.advance(40)
    answer(running[0], 'one')
    clock.advance(60)
    t.match(line.sent.splice(0), [
      { kind: 'reply', id: 1 },
      { kind: 'error', id: 3, header: /"POOL_/ },
    ])
    t.match(failed, [/^r1 GET \/p worker pool queue timeout/])
    answer(running[1], 'two')
    const [facts, reply] = line.sent
    t.match(facts, { kind: 'started', id: 2 })
    t.match(fromFactsHeader(facts!.header), { cold: false, socketIndex: 2, queuedMs: 40 })
    t.match(reply, { kind: 'reply', id: 2, body: 'two' })
  },
)

t.test('[processes/processes.7] a runtime that cannot take a call fails that call and gives its slot back', async t => {
  const { line, failed, admission, door, begin, breakDown } = createBed()
  breakDown(new GatewayError('RUNTIME_DOWN', 'node daemon is down'))
  begin(1)
  breakDown(new Error('anything'))
  begin(2)
  t.match(line.sent, [
    { kind: 'error', id: 1, header: /"RUNTIME_DOWN"/ },
    { kind: 'error', id: 2, header: /"INTERNAL"/ },
  ])
  t.equal(failed.length, 2)
  t.equal(door.open, 0)
  t.match(admission.snapshot(), [{ active: 0 }])
})

t.test('[processes/processes.7] long output goes to the client in frames that the line carries, and whole', async t => {
  const { line, running, begin } = createBed({ policy: { includeDebugHeaders: true } })
  begin(1)
  const text = 'é'.repeat(40_000)
  running[0]!.onLog('stderr', text)
  t.same(
    line.sent.map(({ kind, header }) => `${kind} ${header}`),
    ['log stderr', 'log stderr', 'log stderr'],
  )
  t.equal(line.sent.map(({ body }) => body).join(''), text)
})
