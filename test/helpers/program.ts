/** Programs of others that a test runs beside the gateway, such as a proxy. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { Test } from 'tap'

/** A port that was free a moment ago, for a program that cannot take port 0 or does not say what it took. */
export function freePort(): Promise<number> {
  return new Promise(resolve => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })
}

/** Starts a program and resolves when it accepts connections. It ends with the test. @throws Error with its output if it ends before */
export async function startProgram(
  t: Test,
  [program, ...args]: readonly [string, ...string[]],
  { port, cwd, env = {} }: { port: number; cwd: string; env?: Record<string, string> },
): Promise<ChildProcess> {
  const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const ended = once(child, 'close')
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', chunk => (output += String(chunk)))
  t.teardown(async () => {
    child.kill('SIGTERM')
    await ended
  })
  while (!(await isOpen(port))) {
    if (child.exitCode !== null) throw new Error(`${program} ended with ${child.exitCode}\n${output}`)
    await new Promise(done => setTimeout(done, 20))
  }
  return child
}

function isOpen(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })
}
