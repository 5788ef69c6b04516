/** `fngw doctor`: what is wrong with this machine, these settings and this tree, and what to do. Owner: page bin/doctor. */

import { createServer } from 'node:net'
import { systemClock } from '../lib/core/clock.ts'
import { GatewayError } from '../lib/core/errors.ts'
import { OwnFolder } from '../lib/files/own-folder.ts'
import { RootLock } from '../lib/files/root-lock.ts'
import { createGateway, type DoctorCheck, type GatewayOptions, SettingsError } from '../lib/index.ts'
import { findOnPath } from '../lib/runtime/binaries.ts'
import type { Output } from './output.ts'
import { findGateways, removeDeadRecords } from './running-gateways.ts'

export interface DoctorFlags {
  json?: boolean
  fix?: boolean
  /** False with `--no-load`. */
  load?: boolean
}

/** Nothing of the tree runs while it is examined, and no log is written. */
const FOR_CHECKS: GatewayOptions = {
  ...{ accessLog: false, logFiles: false, schedulerEnabled: false, jobsEnabled: false },
  // The store is one of the checks.
  isAlone: true,
}

const MARKS = { ok: ['green', 'ok     '], warning: ['yellow', 'warning'], error: ['red', 'error  '] } as const

/**
 * Prints each check with its status, and what to do.
 * @returns exit code: 0 all is well, 1 warnings, 2 errors
 */
export async function runDoctor(options: GatewayOptions, flags: DoctorFlags, output: Output): Promise<number> {
  const { checks, fixed } = await examineAll(options, flags, output)
  const code = toExitCode(checks)
  if (flags.json === true) {
    output.result(JSON.stringify({ checks, fixed }, null, 2))
    return code
  }
  for (const { id, status, message, fix } of checks) {
    const [colour, mark] = MARKS[status]
    output.result(`${output.styleResult(colour, mark)}  ${id}  ${output.clean(message)}`)
    if (fix !== null) output.result(`         fix: ${output.clean(fix)}`)
  }
  for (const text of fixed) output.result(`fixed    ${text}`)
  const count = (status: DoctorCheck['status']): string => {
    const found = checks.filter(check => check.status === status).length
    return `${found} ${status}${status === 'ok' || found === 1 ? '' : 's'}`
  }
  output.note([count('ok'), count('warning'), count('error')].join(', '))
  return code
}

async function examineAll(options: GatewayOptions, flags: DoctorFlags, output: Output) {
  const loads = flags.load !== false
  try {
    const gateway = await createGateway({ ...options, ...FOR_CHECKS, inspect: !loads })
    try {
      gateway.on('build', ({ state, key, action }) => {
        if (state === 'began') output.note(`${action} ${output.clean(key)} ...`)
      })
      const { functionsRoot, host, port, controlPort } = gateway.settings
      const { fixed, problems } = flags.fix === true ? fixState(functionsRoot) : { fixed: [], problems: [] }
      const checks = [...(await gateway.doctor({ loads })), ...problems]
      const ports = [await checkPort('port.public', functionsRoot, host, port)]
      if (controlPort !== null && controlPort !== 0)
        ports.push(await checkPort('port.control', functionsRoot, host, controlPort))
      return { checks: [...checks, ...ports, checkEngine()], fixed }
    } finally {
      await gateway.close()
    }
  } catch (error) {
    // The packages of a fleet are missing.
    if (error instanceof GatewayError && error.code === 'RUNTIME_DOWN') {
      const fix = 'npm install bullmq@6 ioredis@5'
      return { checks: [{ id: 'store.reachable', status: 'error' as const, message: error.message, fix }], fixed: [] }
    }
    if (!(error instanceof SettingsError)) throw error
    const checks = error.problems.map(({ message, hint }) => ({
      ...{ id: 'settings.value', status: 'error' as const, message },
      fix: hint,
    }))
    return { checks, fixed: [] }
  }
}

/** The highest status as an exit code. */
function toExitCode(checks: readonly DoctorCheck[]): 0 | 1 | 2 {
  if (checks.some(({ status }) => status === 'error')) return 2
  return checks.some(({ status }) => status === 'warning') ? 1 : 0
}

/** Removes what a gateway left that was killed. */
function fixState(root: string): { fixed: string[]; problems: DoctorCheck[] } {
  const lock = new RootLock(new OwnFolder(root, '.svc'), systemClock)
  const fixed: string[] = []
  const problems: DoctorCheck[] = []
  try {
    if (lock.look()?.isAlive === false && lock.acquire() === null) {
      lock.release()
      fixed.push('removed the lock of a gateway that has ended (.svc/gateway.lock)')
    }
  } catch (error) {
    // A link in its place, or a folder that cannot be written.
    const message = `the lock was left as it is: ${(error as Error).message}`
    problems.push({ id: 'state.fix', status: 'error', message, fix: 'Remove it by hand.' })
  }
  const records = removeDeadRecords(root)
  if (records > 0) fixed.push(`removed the records of gateways that have ended (.svc/gateways: ${records})`)
  return { fixed, problems }
}

async function checkPort(
  id: 'port.public' | 'port.control',
  root: string,
  host: string,
  port: number,
): Promise<DoctorCheck> {
  const isOwn = (url: string | null): boolean => url !== null && Number(new URL(url).port) === port
  const own = findGateways(root).find(({ url, control }) => isOwn(url) || isOwn(control))
  if (own !== undefined)
    return {
      id,
      status: 'ok',
      message: `port ${port}: served by the gateway of this folder (process ${own.pid})`,
      fix: null,
    }
  const error = await tryPort(host, port)
  if (error === null) return { id, status: 'ok', message: `port ${port} of ${host} is free`, fix: null }
  const message = `port ${port} of ${host} cannot be used: ${error.code === 'EADDRINUSE' ? 'another program has it' : error.message}`
  return {
    id,
    status: 'warning',
    message,
    fix: `Choose another one: ${id === 'port.public' ? '--port or FN_PORT' : 'FN_CONTROL_PORT'}.`,
  }
}

/** @returns null when a server can listen there */
function tryPort(host: string, port: number): Promise<NodeJS.ErrnoException | null> {
  return new Promise(resolve => {
    const server = createServer()
    server.once('error', resolve)
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(null)))
  })
}

function checkEngine(): DoctorCheck {
  const found = ['docker', 'podman'].map(name => findOnPath(name, process.env.PATH ?? '')).find(path => path !== null)
  const message =
    found === undefined ? 'no container engine; only fngw dev --container needs one' : `container engine at ${found}`
  return { id: 'container.engine', status: 'ok', message, fix: null }
}
