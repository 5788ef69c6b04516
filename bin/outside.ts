/**
 * The other end of container mode, inside: what the gateway is called outside, and its standard input, which is held open by the
 * process that started the container. Page: bin/container.
 */

import { readFileSync } from 'node:fs'
import { isObject } from '../lib/core/json.ts'
import type { KeyInput } from './hot-keys.ts'
import { UsageError } from './usage-error.ts'

/** As `--outside` carries it. */
export interface Outside {
  /** Address under which the gateway is reached. */
  url: string
  /** The control plane's URL if it has a separate port. */
  control: string | null
  /** Process that started the container: a signal to it is one to the gateway. */
  pid: number
  /** How `fngw` is typed there. */
  program: string
  /** Standard input carries keys. */
  keys: boolean
}

/** @throws UsageError for what no `fngw dev` has written */
export function parseOutside(text: string): Outside {
  const value = readJson(text)
  if (isObject(value)) {
    const { url, control, pid, program, keys } = value
    const isWhole =
      isUrl(url) && (control === null || isUrl(control)) && Number.isInteger(pid) && typeof program === 'string'
    if (isWhole) return { url, control, pid: pid as number, program, keys: keys === true }
  }
  throw new UsageError('--outside is what "fngw dev" gives to its container: leave it out')
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

function isUrl(value: unknown): value is string {
  return typeof value === 'string' && URL.canParse(value)
}

/** The part of standard input that is used. */
interface Line {
  on(event: 'data', listener: (data: Buffer) => void): unknown
  off(event: 'data', listener: (data: Buffer) => void): unknown
  once(event: 'end' | 'error', listener: () => void): unknown
  resume(): unknown
  pause(): unknown
}

/**
 * Follows standard input until its other end is closed, because after that nothing would stop this gateway.
 * @returns keys as a terminal gives them, one at a time
 */
export function followLine(line: Line, onGone: () => void): KeyInput {
  let isGone = false
  const gone = (): void => {
    if (!isGone) onGone()
    isGone = true
  }
  line.once('end', gone)
  line.once('error', gone)
  line.resume()
  const pieces = new Map<(data: Buffer) => void, (data: Buffer) => void>()
  return {
    // The terminal is at the other end.
    setRawMode: () => {},
    on(_event, listener) {
      const each = (data: Buffer): void => {
        for (const key of data.toString('latin1')) listener(Buffer.from(key, 'latin1'))
      }
      pieces.set(listener, each)
      line.on('data', each)
    },
    off(_event, listener) {
      const each = pieces.get(listener)
      if (each !== undefined) line.off('data', each)
    },
    resume: () => {},
    // Its end has to be seen all the same.
    pause: () => {},
  }
}

/**
 * Addresses from which callers of this machine come through a published port: the container's way out, and only where the port is
 * published for this machine alone. Elsewhere the client's own address may be among them.
 * @param routes - text of /proc/net/route
 */
export function toLocalCidrs({ url }: Pick<Outside, 'url'>, routes: string): string[] {
  const { hostname } = new URL(url)
  if (!/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(hostname)) return []
  return routes.split('\n').flatMap(line => {
    const [, destination, gateway = ''] = line.split('\t')
    if (destination !== '00000000' || !/^[0-9A-F]{8}$/.test(gateway)) return []
    // In the byte order of the machine, which is the reverse of the written one everywhere that node runs containers.
    return [
      gateway
        .match(/../g)!
        .reverse()
        .map(byte => Number.parseInt(byte, 16))
        .join('.'),
    ]
  })
}

/** @returns text of the kernel's routes; empty where it has none of that form */
export function readRoutes(): string {
  try {
    return readFileSync('/proc/net/route', 'latin1')
  } catch {
    return ''
  }
}
