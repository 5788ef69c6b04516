/** A link to a server that can be cut: as with a network that is down nothing arrives, nothing is refused, and what was sent arrives later. */

import { spawnSync } from 'node:child_process'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { once } from 'node:events'
import type { Test } from 'tap'

export interface Link {
  /** Address of the server through this link. */
  server: string
  port: number
  /** Address for the program that uses it, and the command line that starts that. */
  host: string
  prefix: readonly string[]
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
    server: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    prefix: [],
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

/** Why no program can have a network of its own here; false where it can. */
export const WITHOUT_NAMESPACES = ((): string | false => {
  const name = `fngw-${process.pid}`
  const { error, status, stderr } = spawnSync('ip', ['netns', 'add', name], { encoding: 'utf8' })
  if (error !== undefined) return 'ip is not installed (package iproute2)'
  if (status !== 0) return `no network namespace can be made: ${stderr.trim()}`
  spawnSync('ip', ['netns', 'delete', name])
  return false
})()

const toServerAddress = (index: number): string => `10.${200 + (process.pid % 50)}.${index}.1`

/**
 * A network of its own with two cables to this machine: one to servers here, which can be pulled, and one for clients of the program
 * in it.
 */
export function startNetwork(t: Pick<Test, 'teardown'>, index: number): Omit<Link, 'port'> {
  const ip = (...words: string[]): void => {
    const { status, stderr } = spawnSync('ip', words, { encoding: 'utf8' })
    if (status !== 0) throw new Error(`ip ${words.join(' ')}: ${stderr}`)
  }
  const name = `fngw-${process.pid}-${index}`
  t.teardown(() => spawnSync('ip', ['netns', 'delete', name]))
  ip('netns', 'add', name)
  ip('-n', name, 'link', 'set', 'lo', 'up')
  const plug = (kind: string, address: string): string => {
    const near = `${kind}${process.pid % 100_000}x${index}`
    ip('link', 'add', near, 'type', 'veth', 'peer', 'name', kind, 'netns', name)
    ip('address', 'add', `${address}/30`, 'dev', near)
    ip('-n', name, 'address', 'add', `${address.replace(/1$/, '2')}/30`, 'dev', kind)
    ip('link', 'set', near, 'up')
    ip('-n', name, 'link', 'set', kind, 'up')
    return near
  }
  const cable = plug('fns', toServerAddress(index))
  const door = toServerAddress(index + 100)
  plug('fnc', door)
  return {
    server: toServerAddress(index),
    host: door.replace(/1$/, '2'),
    prefix: ['ip', 'netns', 'exec', name],
    cut: () => ip('link', 'set', cable, 'down'),
    mend: () => ip('link', 'set', cable, 'up'),
  }
}
