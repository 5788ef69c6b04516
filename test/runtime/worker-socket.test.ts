import { once } from 'node:events'
import net from 'node:net'
import t, { type Test } from 'tap'
import { greetGateway, toProblem } from '../../lib/runtime/greeting.ts'
import { encodeFrame, FrameReader, KIND } from '../../lib/runtime/wire-protocol.ts'
import { dialWorker, greet, NO_TRUST, type PeerTrust } from '../../lib/runtime/worker-socket.ts'
import { makeFn } from '../helpers/fn.ts'
import { SECRET } from '../helpers/remote-bed.ts'
import { until } from '../helpers/worker-client.ts'

const HELLO = encodeFrame(KIND.hello, 0, '{"role":"worker","worker":"w-7"}', Buffer.from([1]))

/** A daemon's side, which proves itself and then sends one frame. */
async function listen(t: Test, secret: string | null): Promise<string> {
  const server = net.createServer(socket => {
    const reader = new FrameReader(() => {})
    greetGateway(reader, { secret, send: frame => socket.write(frame), binding: () => '' }, () =>
      socket.write(encodeFrame(KIND.ready, 0, '{}', null)),
    )
    socket.on('error', () => {})
    socket.on('data', chunk => {
      try {
        reader.push(chunk)
      } catch (error) {
        socket.end(encodeFrame(KIND.error, 0, JSON.stringify({ message: (error as Error).message }), null))
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return `tcp://127.0.0.1:${(server.address() as net.AddressInfo).port}`
}

function connect(t: Test, uri: string, trust: PeerTrust, secretName: string | null = null) {
  const memory = Buffer.alloc(1000)
  const seen = { kinds: [] as number[], isOpen: false, problem: '' }
  const fn = makeFn({ env: secretName === null ? {} : { [secretName]: { value: 'x', isSecret: true } } })
  const address = { id: 'w-7', uri, isShared: true, trust }
  const reader = new FrameReader(kind => seen.kinds.push(kind))
  const socket = dialWorker(address, fn, {
    buffer: () => memory,
    callback: length => {
      try {
        reader.push(memory, length)
      } catch (error) {
        seen.problem = toProblem(error)
      }
      return true
    },
  })
  socket.on('error', () => {})
  t.teardown(() => socket.destroy())
  greet(socket, address, reader, () => {
    seen.isOpen = true
    socket.write(HELLO)
  })
  return { socket, seen }
}

t.test('[runtime/greeting.1] a worker proves itself, and what follows is read as ever', async t => {
  const { seen } = connect(t, await listen(t, SECRET), { secret: SECRET, ca: null })
  t.notOk(seen.isOpen, 'nothing is sent before')
  await until(() => seen.kinds.length > 0)
  t.same(seen, { kinds: [KIND.ready], isOpen: true, problem: '' })
})

t.test('[runtime/greeting.9] a daemon that cannot prove itself is named, and nothing is read from it', async t => {
  const { seen } = connect(t, await listen(t, `${SECRET}!`), { secret: SECRET, ca: null })
  await until(() => seen.problem !== '')
  t.match(seen, { kinds: [], isOpen: false, problem: /^the daemon refuses: the proof is wrong/ })
})

t.test(
  '[runtime/greeting.6, runtime/greeting.7] where no proof is required, secrets are not sent over tcp',
  async t => {
    const uri = await listen(t, null)
    const { seen } = connect(t, uri, NO_TRUST)
    t.ok(seen.isOpen)
    await until(() => seen.kinds.length > 0)
    t.throws(() => connect(t, uri, NO_TRUST, 'API_KEY'), { message: /^its value API_KEY is secret, and not sent/ })
    t.throws(() => connect(t, 'tcp://h:99999', NO_TRUST), {
      message: /^the daemon names a worker socket that cannot be used/,
    })
  },
)
