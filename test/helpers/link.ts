/** A link to a server that can be cut: as with a network that is down nothing arrives, nothing is refused, and what was sent arrives later. */

import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { once } from 'node:events'
import type { Test } from 'tap'

export interface Link {
  port: number
  cut(): void
  mend(): void
}

/** @param port - of a server on this machine */
export async function startLink(t: Pick<Test, 'teardown'>, port: number): Promise<Link> {
  const sockets = new Set<Socket>()
  /** Their other ends closed while the link was cut. */
  const left = new Set<Socket>()
  let isCut = false
  const join = (from: Socket, to: Socket): void => {
    sockets.add(from)
    if (isCut) from.pause()
    from.on('data', bytes => to.write(bytes))
    from.on('end', () => to.end())
    from.on('error', () => {})
    from.on('close', () => {
      sockets.delete(from)
      if (isCut) left.add(to)
      else to.destroy()
    })
  }
  const server = createServer(near => {
    const far = connect(port, '127.0.0.1')
    join(near, far)
    join(far, near)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return {
    port: (server.address() as AddressInfo).port,
    cut: () => {
      isCut = true
      for (const socket of sockets) socket.pause()
    },
    mend: () => {
      isCut = false
      for (const socket of sockets) socket.resume()
      for (const socket of left) socket.end()
      left.clear()
    },
  }
}
