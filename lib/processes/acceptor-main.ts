/** The program of a front: started by the first process of a gateway, and ends with it. Owner: page processes/processes. */

import { Socket } from 'node:net'
import { systemClock } from '../core/clock.ts'
import { keepTickShape } from '../core/host.ts'
import { Front } from './acceptor.ts'
import { LINE_FD } from './front-process.ts'
import { Link } from './link.ts'
import type { FromFront, ToFront } from './messages.ts'

let [front, link] = [null, null] as [Front | null, Link | null]
function tell(message: FromFront): void {
  if (process.connected) process.send!(message, () => {})
}

async function begin(message: Extract<ToFront, { kind: 'begin' }>): Promise<void> {
  link = new Link(new Socket({ fd: LINE_FD }), {
    onFrame: (kind, id, header, body) => front?.handleFrame(kind, id, header, body),
    onLost: leave,
  })
  front = new Front({ clock: systemClock, begin: message, link: () => link!, tell })
  await front.start()
  tell({ kind: 'serving', generation: message.tree.generation })
}

async function handle(message: ToFront): Promise<void> {
  if (message.kind === 'begin') await begin(message)
  else if (message.kind === 'adopt') {
    await front!.adopt(message)
    tell({ kind: 'adopted', generation: message.generation })
  } else if (message.kind === 'wants') front!.wantsRequests = message.requests
  else if (message.kind === 'count') front!.count(message.id)
  else if (message.kind === 'drain') front!.drain()
  else if (message.kind === 'shed') front!.shed(message.kept)
  else if (message.kind !== 'close') front!.handleLease(message)
  else {
    await front!.close(message.timeoutMs)
    await link!.finish()
    process.disconnect()
  }
}

/** Without the first process there is nothing to serve with. */
function leave(): void {
  process.exit(0)
}

keepTickShape()
// The first process decides when it ends.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {})
process.on('disconnect', leave)
// One after the other: a tree is in force before the next one comes.
let last = Promise.resolve()
process.on('message', message => {
  last = last.then(() => handle(message as ToFront))
  // A front that cannot go on is replaced.
  last.catch(error => {
    process.stderr.write(`${String((error as Error).stack ?? error)}\n`, () => process.exit(1))
  })
})
