import t from 'tap'
import { Admission } from '../../lib/invocation/admission.ts'
import { SecretMask } from '../../lib/observe/function-output.ts'
import { AcceptorDoor, type AcceptorDoorDeps } from '../../lib/processes/call-relay.ts'
import type { RuntimeCall } from '../../lib/runtime/call.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { FakeLine } from '../helpers/fake-line.ts'
import { makeFn } from '../helpers/fn.ts'

const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))
const NOTHING = Buffer.alloc(0)

function createDoor(control: AcceptorDoorDeps['control'] = () => {}): { line: FakeLine; door: AcceptorDoor } {
  const line = new FakeLine()
  const door = new AcceptorDoor({ control, findFunction: () => null } as unknown as AcceptorDoorDeps, line)
  return { line, door }
}

t.test(
  '[processes/processes.10] a call of a function that never was is refused, frames of nobody are dropped',
  async t => {
    const { line, door } = createDoor()
    door.handleFrame(KIND.call, 1, 'node/gone@default\n{}', NOTHING)
    t.match(line.sent, [{ kind: 'error', id: 1, header: /"NOT_FOUND"/ }])
    for (const kind of [KIND.cancel, KIND.more, KIND.end, KIND.chunk, KIND.pong]) door.handleFrame(kind, 9, '', NOTHING)
    t.equal(line.sent.length, 1)
    t.throws(() => door.handleFrame(KIND.call, 2, '{}', NOTHING), /call without a key/)
  },
)

t.test(
  '[processes/processes.5] requests for the control plane go to its handler, which hears of the end of the front',
  async t => {
    const left: string[] = []
    const { door } = createDoor(req => {
      req.socket.once('close', () => left.push(`${req.method} ${req.url} of ${req.socket.remoteAddress}`))
    })
    const ask = { method: 'GET', url: '/_fn/health', headers: ['Host', 'x'], address: '10.0.0.7', hasBody: false }
    door.handleFrame(KIND.start, 1, JSON.stringify(ask), NOTHING)
    t.same(left, [])
    door.close()
    t.same(left, ['GET /_fn/health of 10.0.0.7'])
  },
)

/** A door with one function, whose calls run until the test says what becomes of them. */
function createBed() {
  const line = new FakeLine()
  const fn = makeFn()
  const clock = new FakeClock()
  const admission = new Admission(clock)
  const running: RuntimeCall[] = []
  const granted: string[] = []
  const withdrawn: RuntimeCall[] = []
  const host = {
    socketIndex: 1,
    grant: (call: RuntimeCall, bytes: number) => void granted.push(`${running.indexOf(call)} ${bytes}`),
    abandon: (call: RuntimeCall) => void withdrawn.push(call),
  }
  const dispatch = (call: RuntimeCall): void => {
    call.phase = 'running'
    call.host = host
    running.push(call)
  }
  const answered: string[] = []
  const door = new AcceptorDoor(
    {
      invoker: { clock, secrets: new SecretMask() },
      admission,
      dispatcher: { setOf: () => ({ dispatch }) },
      journal: { output: () => {}, callFailed: () => {} },
      control: (req, res) => {
        req.on('data', bytes => answered.push(String(bytes)))
        req.on('end', () => {
          res.writeHead(200, [])
          res.end(answered.join('|'))
        })
      },
      findFunction: key => (key === fn.key ? fn : null),
    },
    line,
  )
  const frame = (kind: keyof typeof KIND, id: number, header = '', body = ''): void =>
    door.handleFrame(KIND[kind], id, header, Buffer.from(body))
  return { line, door, admission, running, granted, withdrawn, frame, call: `${fn.key}\n{}` }
}

t.test(
  '[processes/processes.9, processes/processes.10] frames reach the call of their number and no other',
  async t => {
    const { line, door, running, granted, withdrawn, frame, call, admission } = createBed()
    frame('call', 1, call, 'one')
    frame('call', 2, call)
    t.same([String(running[0]!.body), running[1]!.body, door.open], ['one', null, 2])
    frame('more', 2, '{"bytes":4096}')
    frame('more', 1, '{"bytes":"many"}')
    t.same(granted, ['1 4096', '0 0'])
    frame('cancel', 1)
    t.same(withdrawn, [running[0]])
    frame('more', 1, '{"bytes":1}')
    t.equal(granted.length, 2, 'it is over')
    running[1]!.phase = 'done'
    frame('end', 2)
    t.equal(door.open, 0)
    t.match(admission.snapshot(), [{ active: 0 }])
    t.same(line.sent, [])
    frame('call', 4, call)
    t.throws(() => frame('more', 4, '{'), 'a front sends JSON')
  },
)

t.test('[processes/processes.5] a request for the control plane and a call may go on at once', async t => {
  const { line, door, running, frame, call, withdrawn } = createBed()
  const ask = { method: 'POST', url: '/_fn/x', headers: ['Host', 'x'], address: '127.0.0.1', hasBody: true }
  frame('start', 1, JSON.stringify(ask))
  frame('call', 2, call)
  while (line.sent.length === 0) await turn()
  t.same(line.take(), ['more 1'])
  frame('chunk', 1, '', 'ab')
  frame('chunk', 2, '', 'not a body')
  frame('end', 1)
  while (!line.sent.some(({ kind }) => kind === 'reply')) await turn()
  t.match(line.sent.at(-1), { kind: 'reply', id: 1, body: 'ab' })
  running[0]!.phase = 'done'
  running[0]!.onReply('{"status":200}', Buffer.from('x'), false)
  t.match(line.sent.at(-1), { kind: 'reply', id: 2, body: 'x' })
  frame('call', 3, call)
  door.close()
  t.same([door.open, withdrawn.length], [0, 1], 'a front that is gone waits for nothing')
})
