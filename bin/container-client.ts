/** The Docker-compatible client of container mode: which program it is, whether it can run containers, and as whom. Page: bin/container. */

import { spawn, type SpawnOptions } from 'node:child_process'
import { isObject } from '../lib/core/json.ts'

/** Looked for, in this order, where `FN_DOCKER_BIN` names none. */
const CLIENTS = ['docker', 'podman'] as const
/** Milliseconds that a client has to say what it is; one that waits for a daemon that hangs says nothing. */
const INFO_TIMEOUT_MS = 20_000
/** Characters kept of what a client says. */
const MAX_TEXT = 1024 * 1024

export type Env = Readonly<Record<string, string | undefined>>

/** Who the programs in a container are to the files that it is given. */
type Ownership =
  /** Users have the same numbers inside and outside. */
  | 'same'
  /** User 0 inside is who started it outside (docker without root). */
  | 'root-is-user'
  /** A user keeps its id only with an option (podman without root). */
  | 'keep-id'

export interface ContainerClient {
  /** Name or full path. */
  readonly program: string
  readonly ownership: Ownership
}

interface Answer {
  code: number | null
  stdout: string
  stderr: string
  /** It could not be started, or took too long. */
  problem: string | null
}

/** Runs a client to its end, in a separate session, so that it does not receive terminal input. */
export function runClient(program: string, args: readonly string[], env: Env, timeoutMs = 0): Promise<Answer> {
  return new Promise(resolve => {
    const options: SpawnOptions = { env, stdio: ['ignore', 'pipe', 'pipe'], detached: true }
    const child = spawn(program, args, options)
    const text = { stdout: '', stderr: '' }
    for (const name of ['stdout', 'stderr'] as const)
      child[name]!.on('data', chunk => {
        if (text[name].length < MAX_TEXT) text[name] += String(chunk)
      })
    let problem: string | null = null
    const timer = setTimeout(
      () => {
        problem = `it did not answer within ${timeoutMs / 1000} s`
        child.kill('SIGKILL')
      },
      timeoutMs || 2 ** 31 - 1,
    )
    child.once('error', (error: NodeJS.ErrnoException) => {
      problem = error.code === 'ENOENT' ? 'it is not installed' : error.message
      clearTimeout(timer)
      resolve({ code: null, ...text, problem })
    })
    child.once('close', code => {
      clearTimeout(timer)
      resolve({ code, ...text, problem })
    })
  })
}

/**
 * The first client that answers with a daemon behind it, or what each of them says.
 * @param named - value of FN_DOCKER_BIN, null to look for one
 */
export async function findClient(named: string | null, env: Env): Promise<ContainerClient | string[]> {
  const problems: string[] = []
  for (const program of named === null ? CLIENTS : [named]) {
    const answer = await runClient(program, ['info', '--format', '{{json .}}'], env, INFO_TIMEOUT_MS)
    const found = answer.problem ?? toOwnership(answer)
    if (typeof found === 'object') return { program, ...found }
    problems.push(`${program}: ${found}`)
  }
  return problems
}

/** @returns the reason as text when there is no daemon */
function toOwnership({ code, stdout, stderr }: Answer): Pick<ContainerClient, 'ownership'> | string {
  const reason = lastLineOf(stderr)
  let info: unknown
  try {
    info = JSON.parse(stdout)
  } catch {
    return reason || `info exited with ${code} and did not describe its daemon`
  }
  if (!isObject(info)) return 'info did not describe its daemon'
  // podman needs no daemon; its record has the machine under `host`.
  if (isObject(info.host)) {
    const { security } = info.host
    if (code !== 0) return reason || `info ended with ${code}`
    return { ownership: isObject(security) && security.rootless === true ? 'keep-id' : 'same' }
  }
  const errors = Array.isArray(info.ServerErrors) ? info.ServerErrors.map(String) : []
  if (errors.length > 0 || code !== 0 || typeof info.ServerVersion !== 'string' || info.ServerVersion === '')
    return errors[0] ?? (reason || 'no daemon answers')
  const security = Array.isArray(info.SecurityOptions) ? info.SecurityOptions.map(String) : []
  return { ownership: security.some(one => one.split(',').includes('name=rootless')) ? 'root-is-user' : 'same' }
}

function lastLineOf(text: string): string {
  return text.trim().split('\n').at(-1)?.trim() ?? ''
}
