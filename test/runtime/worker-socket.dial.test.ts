import net from 'node:net'
import t from 'tap'
import { FrameReader } from '../../lib/runtime/wire-protocol.ts'
import { dial, greet, isTrusted, NO_TRUST, parseSocketUri } from '../../lib/runtime/worker-socket.ts'

t.test('[runtime/greeting.1] addresses as the settings name them', async t => {
  t.same(parseSocketUri('unix:/tmp/a b.sock'), { path: '/tmp/a b.sock' })
  t.same(parseSocketUri('tcp://127.0.0.1:9001'), { host: '127.0.0.1', port: 9001 })
  t.same(parseSocketUri('tls://[::1]:9001'), { host: '::1', port: 9001 })
  t.throws(() => dial('tcp://h:99999', NO_TRUST), /port|URL/i)
})

t.test('[runtime/greeting.6, runtime/greeting.7] who has to prove something, and who may get secrets', async t => {
  const trust = { secret: 's'.repeat(32), ca: null }
  for (const [uri, given, proof, secrets] of [
    ['unix:/a', NO_TRUST, false, true],
    ['unix:/a', trust, false, true],
    ['tcp://127.0.0.1:1', NO_TRUST, false, false],
    ['tls://127.0.0.1:1', NO_TRUST, false, false],
    ['tcp://127.0.0.1:1', trust, true, true],
    ['tls://127.0.0.1:1', trust, true, true],
  ] as const) {
    let isOpen = false
    const socket = new net.Socket()
    socket.on('error', () => {})
    greet(socket, { uri, trust: given }, new FrameReader(() => {}), () => {
      isOpen = true
    })
    t.same([!isOpen, isTrusted(uri, given)], [proof, secrets], `${uri} ${given.secret}`)
  }
})
