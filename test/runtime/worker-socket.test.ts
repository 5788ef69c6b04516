import { once } from 'node:events'
import net from 'node:net'
import t, { type Test } from 'tap'
import { connectWorker, NO_TRUST, type PeerTrust, toWorkerHello } from '../../lib/runtime/worker-socket.ts'
import { DaemonGreeting } from '../../lib/runtime/greeting.ts'
import { encodeFrame, KIND } from '../../lib/runtime/wire-protocol.ts'
import { SECRET } from '../helpers/remote-bed.ts'
import { until } from '../helpers/worker-client.ts'

/** A daemon's side, which proves itself and then sends one frame in pieces. */
async function listen(t: Test, secret: string | null): Promise<string> {
  const server = net.createServer(socket => {
    const greeting = new DaemonGreeting({ secret, send: frame => socket.write(frame), binding: () => '' })
    socket.on('error', () => {})
    socket.on('data', chunk => {
      try {
        if (greeting.push(chunk) !== null) socket.write('and more')
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
  const memory = Buffer.alloc(100)
  const seen = { read: '', proven: null as string | null, problem: '' }
  const address = { id: 'w-7', uri, isShared: true, trust }
  const socket = connectWorker(address, secretName, {
    toReadInto: () => memory,
    onRead: length => {
      seen.read += memory.toString('utf8', 0, length)
      return true
    },
    onProven: rest => {
      seen.proven = rest.toString()
      socket.write(toWorkerHello(address))
    },
    onProblem: text => {
      seen.problem = text
    },
  })
  socket.on('error', () => {})
  t.teardown(() => socket.destroy())
  return { socket, seen, hello: toWorkerHello(address) }
}

t.test(
  '[runtime/greeting.1, runtime/greeting.10] a worker proves itself, is named, and what follows is read as ever',
  async t => {
    const { seen, hello } = connect(t, await listen(t, SECRET), { secret: SECRET, ca: null })
    await until(() => seen.read === 'and more')
    t.same(seen, { read: 'and more', proven: '', problem: '' })
    t.equal(hello.toString('utf8', 13, hello.length - 1), '{"role":"worker","worker":"w-7"}')
  },
)

t.test('[runtime/greeting.9] who does not is told of, and nothing was read from it', async t => {
  const wrong = connect(t, await listen(t, `${SECRET}!`), { secret: SECRET, ca: null })
  await until(() => wrong.seen.problem !== '')
  t.match(wrong.seen, { read: '', proven: null, problem: /^the daemon refuses: the proof is wrong/ })
})

t.test(
  '[runtime/greeting.6, runtime/greeting.7] where nobody has to prove anything, secrets are not sent over tcp',
  async t => {
    const uri = await listen(t, null)
    const { socket, seen, hello } = connect(t, uri, NO_TRUST)
    socket.write(hello)
    await until(() => seen.read === 'and more')
    t.equal(seen.proven, null)
    t.throws(() => connect(t, uri, NO_TRUST, 'API_KEY'), { message: /^its value API_KEY is secret, and not sent/ })
    t.throws(() => connect(t, 'tcp://h:99999', NO_TRUST), {
      message: /^the daemon names a worker socket that cannot be used/,
    })
  },
)
