/** A stand-in for a service manager, which keeps listening sockets while gateways that get them come and go. */

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { FNGW, toEnv } from '../helpers/cli.ts'

const HOLDER = fileURLToPath(new URL('./socket-holder.py', import.meta.url))

export interface SocketHolder {
  /** In the order of the names. */
  ports: readonly number[]
  /** Everything printed so far, by the holder and by what it started. */
  text: () => string
  start: (args: readonly string[], options: { cwd: string; env?: Record<string, string> }) => Promise<HeldProgram>
}

export interface HeldProgram {
  pid: number
  /** Exit code; minus the signal when one ended it. */
  ended: Promise<number>
  /** Resolves at its line `ready ...`; false when it ends before. */
  ready: Promise<boolean>
}

/** @param names - of the sockets, as `LISTEN_FDNAMES` tells them; `unix` is a socket in a file */
export async function holdSockets(t: Test, ...names: readonly string[]): Promise<SocketHolder> {
  const holder = spawn('python3', [HOLDER, ...names], { stdio: ['pipe', 'pipe', 'pipe'] })
  const pids = new Set<number>()
  t.teardown(() => {
    for (const pid of pids) process.kill(pid, 'SIGKILL')
    holder.kill('SIGKILL')
  })
  let text = ''
  const waiting = new Set<{ pattern: RegExp; resolve: (found: RegExpExecArray) => void }>()
  const next = (pattern: RegExp): Promise<RegExpExecArray> => {
    return new Promise(resolve => waiting.add({ pattern, resolve }))
  }
  createInterface({ input: holder.stdout }).on('line', line => {
    text += `${line}\n`
    for (const one of waiting) {
      const found = one.pattern.exec(line)
      if (found === null) continue
      waiting.delete(one)
      one.resolve(found)
    }
  })
  holder.stderr.on('data', chunk => {
    text += String(chunk)
  })
  const opened = await next(/^holder ports (.*)$/)
  return {
    ports: opened[1]!.split(' ').map(Number),
    text: () => text,
    async start(args, { cwd, env = {} }) {
      const started = next(/^holder started (\d+)$/)
      const ready = next(/^ready |^\{"event":"ready"/)
      const argv = [...FNGW, ...args]
      holder.stdin.write(`${JSON.stringify({ argv, cwd, env: toEnv(env) })}\n`)
      const pid = Number((await started)[1])
      pids.add(pid)
      const ended = next(new RegExp(`^holder ended ${pid} (-?\\d+)$`)).then(found => {
        pids.delete(pid)
        return Number(found[1])
      })
      return { pid, ended, ready: Promise.race([ready.then(() => true), ended.then(() => false)]) }
    },
  }
}
