import t from 'tap'
import { FrontDoor } from '../../lib/processes/front-door.ts'
import type { FrontDoorDeps } from '../../lib/processes/front-door.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FakeLine } from '../helpers/fake-line.ts'

const NOTHING = Buffer.alloc(0)

function createDoor(control: FrontDoorDeps['control'] = () => {}): { line: FakeLine; door: FrontDoor } {
  const line = new FakeLine()
  const door = new FrontDoor({ control, findFunction: () => null } as unknown as FrontDoorDeps, line)
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
