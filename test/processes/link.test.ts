import { once } from 'node:events'
import net from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Link } from '../../lib/processes/link.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { makeTree } from '../helpers/tree.ts'

/** Two sockets that are connected to each other. */
async function pair(t: Test): Promise<[net.Socket, net.Socket]> {
  const { root, cleanup } = makeTree()
  const server = net.createServer().listen(join(root, 'line.sock'))
  await once(server, 'listening')
  const near = net.connect(join(root, 'line.sock'))
  const [far] = (await once(server, 'connection')) as [net.Socket]
  t.teardown(() => {
    near.destroy()
    far.destroy()
    server.close()
    cleanup()
  })
  return [near, far]
}

const SIZES = [0, 1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 16 * 1024 + 1, 64 * 1024, 64 * 1024, 1024 * 1024 + 1]

t.test(
  '[processes/processes.10] frames of every size arrive whole and in order, and their memory may be used again at once',
  async t => {
    const [near, far] = await pair(t)
    const got: [number, string, number, number | undefined][] = []
    let all: () => void = () => {}
    const isAll = new Promise<void>(resolve => {
      all = resolve
    })
    new Link(far, {
      onFrame: (_kind, id, header, body) => {
        got.push([id, header, body.length, body.at(-1)])
        if (got.length === SIZES.length) all()
      },
      onLost: () => {},
    })
    const link = new Link(near, { onFrame: () => {}, onLost: () => {} })
    for (const [at, size] of SIZES.entries()) {
      const body = Buffer.alloc(size, at + 1)
      // In pieces as a request's body may be.
      const pieces = [body.subarray(0, size >> 1), body.subarray(size >> 1)]
      link.send(KIND.reply, at + 1, `{"size":${size}}`, at % 2 === 0 ? body : pieces)
      body.fill(255)
    }
    await isAll
    t.same(
      got,
      SIZES.map((size, at) => [at + 1, `{"size":${size}}`, size, size === 0 ? undefined : at + 1]),
    )
  },
)

t.test('[processes/processes.10] a long piece goes in frames that the other side takes', async t => {
  const [near, far] = await pair(t)
  const sizes: number[] = []
  let bytes = 0
  const whole = new Promise<void>(resolve => {
    new Link(far, {
      onFrame: (_kind, _id, _header, body) => {
        sizes.push(body.length)
        bytes += body.length
        if (bytes === 300 * 1024 + 1) resolve()
      },
      onLost: () => {},
    })
  })
  new Link(near, { onFrame: () => {}, onLost: () => {} }).sendPiece(7, Buffer.alloc(300 * 1024 + 1))
  await whole
  t.same(sizes, [128 * 1024, 128 * 1024, 44 * 1024 + 1])
})

t.test('[processes/processes.10] the end of the other side and bytes that are no frame are told once', async t => {
  for (const [what, act, reason] of [
    ['end', (socket: net.Socket) => socket.destroy(), /^connection closed$/],
    ['noise', (socket: net.Socket) => socket.write('GET / HTTP/1.1\r\n\r\n'), /^protocol error: /],
  ] as const) {
    const [near, far] = await pair(t)
    const told: string[] = []
    const lost = new Promise<void>(resolve => {
      const link = new Link(near, {
        onFrame: () => t.fail('no frame was sent'),
        onLost: why => {
          told.push(why)
          t.ok(link.isOver)
          resolve()
        },
      })
    })
    act(far)
    await lost
    await new Promise(resolve => setImmediate(resolve))
    t.equal(told.length, 1, what)
    t.match(told[0], reason)
  }
})

t.test('[processes/processes.10] what was sent before a finish arrives', async t => {
  const [near, far] = await pair(t)
  const ids: number[] = []
  const ended = new Promise<void>(resolve => {
    new Link(far, { onFrame: (_kind, id) => ids.push(id), onLost: () => resolve() })
  })
  const link = new Link(near, { onFrame: () => {}, onLost: () => {} })
  for (let id = 1; id <= 20; id++) link.send(KIND.end, id, '')
  await link.finish()
  link.send(KIND.end, 21, '')
  await ended
  t.same(
    ids,
    Array.from({ length: 20 }, (_, at) => at + 1),
  )
})
