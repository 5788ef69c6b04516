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

const link = new Link(new Socket({ fd: LINE_FD }), {
  onFrame: (kind, id, header, body) => acceptor?.handleFrame(kind, id, header, body),
  onLost: leave,
})
let acceptor: Acceptor | null = null

function post(message: FromAcceptor): void {
  if (process.connected) process.send!(message, () => {})
}

async function handle(message: ToAcceptor): Promise<void> {
  if (message.kind === 'begin') {
    acceptor = new Acceptor({ clock: systemClock, begin: message, link, post })
    await acceptor.start()
    post({ kind: 'serving', generation: message.tree.generation })
  } else await acceptor!.handle(message)
  if (message.kind !== 'close') return
  await link.finish()
  process.disconnect()
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
