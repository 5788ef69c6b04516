/** The connection to a worker: dialled, and where it lies elsewhere, proved before anything is sent. Owner: page runtime/greeting. */

import type net from 'node:net'
import type { FunctionVersion } from '../core/catalog.ts'
import { PROTOCOL_VERSION } from '../core/limits.ts'
import { dial, isTrusted, needsProof, type PeerTrust, toBinding } from './dial.ts'
import { GatewayGreeting } from './greeting.ts'
import { encodeFrame, KIND } from './wire-protocol.ts'

/** Where a worker is reached. */
export interface WorkerAddress {
  id: string
  /** `unix:/path`, `tcp://host:port` or `tls://host:port`. */
  uri: string
  /** True when that is the socket of its daemon, who has to be told which worker is meant. */
  isShared: boolean
  trust: PeerTrust
}

export interface WorkerSocketEvents {
  /** Memory for the next read. */
  toReadInto(): Buffer
  /** So many bytes of it were read. @returns true */
  onRead(length: number): boolean
  /** The peer has proved itself; `rest` is what it sent behind that. Only where `needsProof` says so. */
  onProven(rest: Buffer): void
  onProblem(text: string): void
}

const NO_BYTES = Buffer.alloc(0)
const VERSION_BODY = Buffer.from([PROTOCOL_VERSION])

/**
 * @param secretName - a value of the function that nobody but its worker may get; null when it has none
 * @throws Error with a reason
 */
export function connectWorker(
  { uri, trust }: WorkerAddress,
  secretName: string | null,
  { toReadInto, onRead, onProven, onProblem }: WorkerSocketEvents,
): net.Socket {
  if (secretName !== null && !isTrusted(uri, trust)) {
    const remedy = 'set FN_RUNTIME_SECRET on both sides'
    throw new Error(`its value ${secretName} is secret, and not sent to a daemon that proves nothing: ${remedy}`)
  }
  const { secret } = trust
  if (secret === null || !needsProof(uri, trust))
    return dialWorker(uri, trust, { buffer: toReadInto, callback: onRead })
  let into: Buffer = NO_BYTES
  let greeting: GatewayGreeting | null = null
  const buffer = (): Buffer => {
    into = toReadInto()
    return into
  }
  const callback = (length: number): boolean => {
    if (greeting === null) return onRead(length)
    try {
      const rest = greeting.push(into.subarray(0, length))
      if (rest === null) return true
      greeting = null
      onProven(rest)
    } catch (error) {
      onProblem((error as Error).message)
    }
    return true
  }
  const socket = dialWorker(uri, trust, { buffer, callback })
  const send = (frame: Buffer): void => void socket.write(frame)
  greeting = new GatewayGreeting({ secret, send, binding: () => toBinding(socket) })
  return socket
}

/** The address was told by the daemon, which may be anybody's. */
function dialWorker(uri: string, trust: PeerTrust, onread: Parameters<typeof dial>[2]): net.Socket {
  try {
    return dial(uri, trust, onread)
  } catch (error) {
    throw new Error(`the daemon names a worker socket that cannot be used: ${(error as Error).message}`)
  }
}

/** The name of a value that nobody but its worker may get; null when the function has none. */
export function findSecret({ env }: FunctionVersion): string | null {
  return Object.keys(env).find(name => env[name]!.isSecret) ?? null
}

/** What the connection is for. */
export function toWorkerHello({ id, isShared }: WorkerAddress): Buffer {
  const fields = isShared ? { role: 'worker', worker: id } : { role: 'worker' }
  return encodeFrame(KIND.hello, 0, JSON.stringify(fields), VERSION_BODY)
}
