import { EventEmitter } from 'node:events'
import t from 'tap'
import {
  type ClientConnection,
  connectionOf,
  type Exchange,
  type HttpSocket,
  MAX_OPEN_EXCHANGES,
  REQUESTS_PER_TURN,
} from '../../lib/http/exchange.ts'

class FakeSocket extends EventEmitter implements HttpSocket {
  remoteAddress = '::ffff:10.0.0.7'
  readonly seen: string[] = []
  setTimeout(): void {}
  end(): void {}
  pause(): void {
    this.seen.push('pause')
  }
  resume(): void {
    this.seen.push('resume')
    this.emit('resume')
  }
}

/** As much of an exchange as its connection looks at. */
function makeExchange(name: string, left: string[]): Exchange {
  return { req: { complete: true }, previousOpen: null, nextOpen: null, onDisconnect: () => left.push(name) } as never
}

function listOpen(connection: ClientConnection, names: ReadonlyMap<Exchange, string>): string[] {
  const open: string[] = []
  for (let one = connection.first; one !== null; one = one.nextOpen) open.push(names.get(one)!)
  return open
}

t.test('[http/public.19] open exchanges of a connection, in order, and what becomes of them when it ends', async t => {
  const socket = new FakeSocket()
  const connection = connectionOf(socket)
  t.equal(connectionOf(socket), connection, 'one for a socket')
  t.equal(connection.address, '10.0.0.7')
  t.equal(socket.listenerCount('close'), 1, 'one listener, however many requests')
  const left: string[] = []
  const names = new Map<Exchange, string>()
  for (const name of ['a', 'b', 'c', 'd']) {
    const exchange = makeExchange(name, left)
    names.set(exchange, name)
    connection.add(exchange)
  }
  const [a, b, , d] = [...names.keys()] as [Exchange, Exchange, Exchange, Exchange]
  t.same(listOpen(connection, names), ['a', 'b', 'c', 'd'])
  connection.remove(b)
  t.same(listOpen(connection, names), ['a', 'c', 'd'], 'from the middle')
  connection.remove(b)
  t.same(listOpen(connection, names), ['a', 'c', 'd'], 'again changes nothing')
  connection.remove(d)
  t.same(listOpen(connection, names), ['a', 'c'], 'the last one')
  t.equal(connection.latest, d, 'which began last all the same')
  connection.add(b)
  connection.remove(a)
  t.same(listOpen(connection, names), ['c', 'b'], 'the first one')
  socket.emit('close')
  t.same(left, ['c', 'b'], 'those that are open are told, oldest first')
  t.equal(connection.first, null)
})

function openMany(connection: ClientConnection, count: number): Exchange[] {
  const exchanges = Array.from({ length: count }, (_, i) => makeExchange(String(i), []))
  for (const exchange of exchanges) connection.add(exchange)
  return exchanges
}

t.test('[http/public.31] nothing is read while many are open, whoever wants to read', async t => {
  const socket = new FakeSocket()
  const connection = connectionOf(socket)
  const open = openMany(connection, MAX_OPEN_EXCHANGES - 1)
  t.same(socket.seen, [])
  open.push(...openMany(connection, 1))
  t.same(socket.seen, ['pause'])
  socket.resume()
  t.same(socket.seen.splice(0), ['pause', 'resume', 'pause'], 'a request that begins to read its body')
  for (const exchange of open.splice(0, MAX_OPEN_EXCHANGES / 2 - 1)) connection.remove(exchange)
  t.same(socket.seen, [], 'not yet')
  connection.remove(open[0]!)
  connection.remove(open[0]!)
  t.same(socket.seen.splice(0), ['resume'], 'half of them were answered')
  openMany(connection, MAX_OPEN_EXCHANGES / 2)
  t.same(socket.seen, ['pause'], 'again')
  t.equal(socket.listenerCount('resume'), 1, 'one listener')
})

t.test('[http/public.31] a client whose requests are answered at once gives others their turn', async t => {
  const socket = new FakeSocket()
  const connection = connectionOf(socket)
  const answerMany = (count: number) => {
    for (const exchange of openMany(connection, count)) connection.remove(exchange)
  }
  const turn = () => new Promise(setImmediate)
  for (let i = 0; i < REQUESTS_PER_TURN - 1; i++) answerMany(1)
  t.same(socket.seen, [])
  answerMany(1)
  t.same(socket.seen, ['pause'])
  await turn()
  t.same(socket.seen.splice(0), ['pause', 'resume'])
  answerMany(1)
  t.same(socket.seen, [])
  const open = openMany(connection, REQUESTS_PER_TURN)
  await turn()
  t.notMatch(socket.seen, ['resume'], 'not while many are open')
  for (const exchange of open) connection.remove(exchange)
  t.equal(socket.seen.at(-1), 'resume')
  t.same(listOpen(connection, new Map()), [])
})

t.test(
  '[http/public.31] requests of a packet that are too many wait, in order, and end with the connection',
  async t => {
    const socket = new FakeSocket()
    const connection = connectionOf(socket)
    const turn = () => new Promise(setImmediate)
    const open = openMany(connection, MAX_OPEN_EXCHANGES)
    const begun: number[] = []
    for (let i = 0; i < 200; i++) {
      t.ok(connection.isFull)
      connection.wait(() => {
        begun.push(i)
        open.push(...openMany(connection, 1))
      })
    }
    t.ok(connection.hasWaiting)
    await turn()
    t.same(begun, [], 'nothing was answered yet')
    for (const exchange of open.splice(0, MAX_OPEN_EXCHANGES / 2)) connection.remove(exchange)
    t.same(begun, [], 'not inside the answer of another')
    await turn()
    t.equal(begun.length, MAX_OPEN_EXCHANGES / 2, 'as many as there is room for')
    while (begun.length < 200) {
      for (const exchange of open.splice(0)) connection.remove(exchange)
      await turn()
    }
    t.same(begun, [...begun.keys()], 'in order, each once')
    for (const exchange of open.splice(0)) connection.remove(exchange)
    await turn()
    t.notOk(connection.isFull)
    t.equal(socket.seen.at(-1), 'resume')
    openMany(connection, MAX_OPEN_EXCHANGES)
    connection.wait(() => t.fail('begun after the end'))
    socket.emit('close')
    await turn()
    t.notOk(connection.hasWaiting)
  },
)

t.test('[http/public.31] requests that are answered at once are begun in turns', async t => {
  const connection = connectionOf(new FakeSocket())
  const open = openMany(connection, MAX_OPEN_EXCHANGES)
  let begun = 0
  let most = 0
  for (let i = 0; i < 1000; i++) {
    connection.wait(() => {
      begun += 1
      for (const exchange of openMany(connection, 1)) connection.remove(exchange)
    })
  }
  for (const exchange of open) connection.remove(exchange)
  while (connection.hasWaiting) {
    const before = begun
    await new Promise(setImmediate)
    most = Math.max(most, begun - before)
  }
  t.equal(begun, 1000)
  t.ok(most <= 2 * REQUESTS_PER_TURN, `${most} in one turn`)
})
