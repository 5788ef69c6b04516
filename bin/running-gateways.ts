/** Records of running gateways in `.svc/gateways`, so that commands find them without a port. Owner: page bin/api-client. */

import { hostname } from 'node:os'
import { isObject } from '../lib/core/json.ts'
import { OwnFolder } from '../lib/files/own-folder.ts'
import { isAlive, ownMark, type ProcessMark } from '../lib/files/root-lock.ts'

/** Addresses to call. */
interface GatewayAddresses {
  url: string
  /** Of the control plane; null where it shares the public port. */
  control: string | null
}

export interface RunningGateway extends ProcessMark, GatewayAddresses {}

const toFolder = (root: string): OwnFolder => new OwnFolder(root, '.svc', 'gateways')

/**
 * Writes the record of this process and removes those of dead ones. A root that cannot be written gets none: commands then need `--port`.
 * @param root - full path of the functions root
 * @returns a function that removes the record
 */
export function announceGateway(root: string, { url, control }: GatewayAddresses): () => void {
  const folder = toFolder(root)
  const name = `${hostname().replace(/[^\w.-]/g, '_')}-${process.pid}.json`
  const record: RunningGateway = { ...ownMark(), url: toCallable(url), control: control && toCallable(control) }
  return attempt(() => {
    removeDead(folder)
    folder.write(name, JSON.stringify(record), 0o600)
  })
    ? () => void attempt(() => folder.remove(name))
    : () => {}
}

/** Removes the records of gateways that have ended. @returns how many */
export function removeDeadRecords(root: string): number {
  let removed = 0
  attempt(() => {
    removed = removeDead(toFolder(root))
  })
  return removed
}

function removeDead(folder: OwnFolder): number {
  const dead = readRecords(folder).filter(({ record }) => isAlive(record) === false)
  for (const { name } of dead) folder.remove(name)
  return dead.length
}

/**
 * Gateways of a functions root that run on this machine. Records of other users are left out: the admin token would be sent to
 * their address.
 */
export function findGateways(root: string): RunningGateway[] {
  const found: RunningGateway[] = []
  attempt(() => {
    for (const { record, uid } of readRecords(toFolder(root)))
      if ([0, process.getuid?.() ?? uid].includes(uid) && isAlive(record) === true) found.push(record)
  })
  return found
}

function readRecords(folder: OwnFolder): { name: string; uid: number; record: RunningGateway }[] {
  return folder.list(/\.json$/).flatMap(({ name, stats }) => {
    const record = parse(folder.read(name)?.toString('utf8') ?? '')
    return record === null ? [] : [{ name, uid: stats.uid, record }]
  })
}

function parse(text: string): RunningGateway | null {
  try {
    const value: unknown = JSON.parse(text)
    if (!isObject(value) || !Number.isInteger(value.pid) || !isHttp(value.url)) return null
    return value.control === null || isHttp(value.control) ? (value as unknown as RunningGateway) : null
  } catch {
    return null
  }
}

function isHttp(url: unknown): boolean {
  return typeof url === 'string' && URL.canParse(url) && new URL(url).protocol === 'http:'
}

/** Listening on every address is no address to call. */
function toCallable(url: string): string {
  return url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')
}

function attempt(work: () => void): boolean {
  try {
    work()
    return true
  } catch {
    return false
  }
}
