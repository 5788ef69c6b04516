import t from 'tap'
import type { HttpHandler } from '../../lib/http/public.ts'
import { AcceptorDoor, type AcceptorDoorDeps } from '../../lib/processes/call-relay.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FakeLine } from '../helpers/fake-line.ts'

const NOTHING = Buffer.alloc(0)
const ASK = { method: 'POST', url: '/_fn/x', headers: ['Host', 'a'], address: '127.0.0.1', hasBody: true }
const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

type Response = Parameters<HttpHandler>[1]

function createBed(handle: HttpHandler) {
  const line = new FakeLine()
  const door = new AcceptorDoor({ control: handle } as unknown as AcceptorDoorDeps, line)
  const frame = (kind: keyof typeof KIND, header = '', body = NOTHING) => door.handleFrame(KIND[kind], 1, header, body)
  const begin = (ask: object = ASK) => frame('start', JSON.stringify(ask))
  return { line, door, frame, begin }
}

t.test('[processes/processes.5] a body is asked for piece by piece, a short answer goes in one frame', async t => {
  const { line, door, begin, frame } = createBed((req, res) => {
    let text = ''
    req.on('data', chunk => {
      text += chunk
    })
    req.on('end', () => {
      res.writeHead(201, ['Content-Type', 'text/plain'])
      res.end(`got ${text}`)
    })
  })
  begin()
  await turn()
  t.same(line.take(), ['more 1'])
  frame('chunk', '', Buffer.from('ab'))
  await turn()
  t.same(line.take(), ['more 1'])
  frame('chunk', '', Buffer.from('cd'))
  frame('end')
  while (line.sent.at(-1)?.kind !== 'reply') await turn()
  t.match(line.sent.at(-1), { header: '{"status":201,"headers":["Content-Type","text/plain"]}', body: 'got abcd' })
  t.equal(door.open, 0, 'it is over')
})

t.test('[processes/processes.5] an answer that goes on begins at once, and waits for a slow client', async t => {
  let response: Response | null = null
  let drains = 0
  const { line, begin, frame } = createBed((_req, res) => {
    response = res
    res.writeHead(200, [])
    res.write('first')
    res.once('drain', () => {
      drains += 1
    })
  })
  begin({ ...ASK, method: 'GET', hasBody: false })
  t.same(line.take(), [])
  await turn()
  t.same(line.take(), ['loaded 1', 'chunk 1'])
  t.equal(response!.write(Buffer.alloc(200 * 1024)), true)
  t.equal(response!.write(Buffer.alloc(200 * 1024)), false, 'more than a window')
  frame('more', '{"bytes":1}')
  t.equal(drains, 0)
  frame('more', `{"bytes":${200 * 1024}}`)
  t.equal(drains, 1)
  response!.end()
  t.same(line.take(), ['chunk 1', 'chunk 1', 'end 1'])
})

t.test(
  '[processes/processes.5] an answer that breaks off is told as such, and nobody is told when the client left',
  async t => {
    let response: Response | null = null
    const left: string[] = []
    const handle: HttpHandler = (req, res) => {
      response = res
      req.socket.once('close', () => left.push('left'))
    }
    const cut = createBed(handle)
    cut.begin()
    response!.destroy()
    t.same(cut.line.take(), ['error 1'])
    const gone = createBed(handle)
    gone.begin()
    gone.frame('cancel')
    t.same(left, ['left', 'left'])
    response!.writeHead(200, [])
    response!.end('nobody')
    await turn()
    t.same(gone.line.take(), [])
  },
)
