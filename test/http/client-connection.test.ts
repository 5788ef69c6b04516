import { EventEmitter } from 'node:events'
import t from 'tap'
import { type ClientConnection, connectionOf } from '../../lib/http/client-connection.ts'
import type { Exchange, HttpSocket } from '../../lib/http/exchange.ts'

class FakeSocket extends EventEmitter implements HttpSocket {
  remoteAddress = '::ffff:10.0.0.7'
  setTimeout(): void {}
  end(): void {}
}

/** As much of an exchange as its connection looks at. */
function makeExchange(name: string, left: string[]): Exchange {
  return { nextOpen: null, onDisconnect: () => left.push(name) } as never
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
