/** The program of an acceptor: started by the first process of a gateway, and ends with it. Owner: page processes/processes. */

import { Socket } from 'node:net'
import { enableYoungCollection } from '../core/byte-pool.ts'
import { systemClock } from '../core/clock.ts'
import { keepTickShape } from '../core/host.ts'
import { LINE_FD } from './acceptor-process.ts'
import { Acceptor } from './acceptor.ts'
import { type FromAcceptor, Link, type ToAcceptor } from './link.ts'

/** Without the first process there is nothing to serve with. */
const leave = (): never => process.exit(0)

let [acceptor, link] = [null, null] as [Acceptor | null, Link | null]
function post(message: FromAcceptor): void {
  if (process.connected) process.send!(message, () => {})
}

async function begin(message: Extract<ToAcceptor, { kind: 'begin' }>): Promise<void> {
  link = new Link(new Socket({ fd: LINE_FD }), {
    onFrame: (kind, id, header, body) => acceptor?.handleFrame(kind, id, header, body),
    onLost: leave,
  })
  acceptor = new Acceptor({ clock: systemClock, begin: message, link: () => link!, post })
  await acceptor.start()
  post({ kind: 'serving', generation: message.tree.generation })
}

async function handle(message: ToAcceptor): Promise<void> {
  if (message.kind === 'begin') await begin(message)
  else if (message.kind === 'adopt') {
    await acceptor!.adopt(message)
    post({ kind: 'adopted', generation: message.generation })
  } else if (message.kind === 'wants') acceptor!.wantsRequests = message.requests
  else if (message.kind === 'count') acceptor!.count(message.id)
  else if (message.kind === 'drain') acceptor!.drain()
  else if (message.kind === 'shed') acceptor!.shed(message.kept)
  else if (message.kind !== 'close') acceptor!.handleLease(message)
  else {
    await acceptor!.close(message.timeoutMs)
    await link!.finish()
    process.disconnect()
  }
}

keepTickShape()
enableYoungCollection()
// The first process decides when it ends.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {})
process.on('disconnect', leave)
// One after the other: a tree is in force before the next one comes.
let last = Promise.resolve()
process.on('message', message => {
  last = last.then(() => handle(message as ToAcceptor))
  // An acceptor that cannot go on is replaced.
  last.catch(error => {
    process.stderr.write(`${String((error as Error).stack ?? error)}\n`, () => process.exit(1))
  })
})
