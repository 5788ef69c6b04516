/** The flags of `fngw dev` that let debuggers into handlers. Owner: page runtime/debuggers. */

import { type Command, Option } from 'commander'
import type { GatewayOptions } from '../lib/index.ts'
import { UsageError } from './usage-error.ts'

type DebugOptions = NonNullable<GatewayOptions['debug']>

/** A flag whose value may be left out: then it is true. */
type PortFlag = string | true

export interface DebugFlags {
  inspect?: PortFlag
  inspectBrk?: PortFlag
  inspectFn?: string
  debugPy?: PortFlag
  debugPhp?: PortFlag
}

const FLAGS: readonly [spelling: string, description: string][] = [
  ['--inspect [port]', 'Let debuggers into Node.js and TypeScript handlers (first port, default 9229).'],
  ['--inspect-brk [port]', 'The same; a function waits for the debugger before it loads.'],
  ['--inspect-fn <name>', 'Debug only this function, in any of the languages.'],
  ['--debug-py [port]', 'Let debuggers into Python handlers, with debugpy (first port, default 5678).'],
  ['--debug-php [port]', 'Connect PHP handlers to an editor with Xdebug (its port, default 9003).'],
]
const PORT_FLAGS = ['inspect', 'inspectBrk', 'debugPy', 'debugPhp'] as const

/** @param isShown - false where they are refused */
export function addDebugFlags(command: Command, isShown: boolean): void {
  for (const [spelling, description] of FLAGS) {
    const option = new Option(spelling, description)
    command.addOption(isShown ? option : option.hideHelp())
  }
}

/**
 * In `dev --inspect functions` the folder is taken for the port.
 * @returns the folder
 */
export function takeFolder(flags: DebugFlags, dir: string | undefined): string | undefined {
  for (const name of PORT_FLAGS) {
    const value = flags[name]
    if (dir !== undefined || typeof value !== 'string' || /^\d*$/.test(value)) continue
    flags[name] = true
    return value
  }
  return dir
}

/** @returns null when nothing is debugged @throws UsageError */
export function toDebugOptions(flags: DebugFlags): DebugOptions | null {
  const { inspect, inspectBrk, inspectFn, debugPy, debugPhp } = flags
  const options: DebugOptions = {}
  if (inspect !== undefined || inspectBrk !== undefined) {
    const isBrk = inspectBrk !== undefined
    const port = toPort(
      isBrk ? '--inspect-brk' : '--inspect',
      isBrk && inspectBrk !== true ? inspectBrk : (inspect ?? true),
    )
    options.node = { port, waits: isBrk }
  }
  if (debugPy !== undefined) options.python = { port: toPort('--debug-py', debugPy) }
  if (debugPhp !== undefined) options.php = { port: toPort('--debug-php', debugPhp) }
  if (Object.keys(options).length === 0) {
    if (inspectFn !== undefined)
      throw new UsageError(
        '--inspect-fn names a function to debug: add --inspect, --inspect-brk, --debug-py or --debug-php',
      )
    return null
  }
  return { ...options, fn: inspectFn ?? null }
}

function toPort(flag: string, value: PortFlag): number | null {
  if (value === true) return null
  const port = Number(value)
  if (/^\d+$/.test(value) && port > 0 && port <= 65_535) return port
  throw new UsageError(
    `${flag} must be followed by a port from 1 to 65535, or by nothing, got ${JSON.stringify(value)}`,
  )
}
