/** A real redis-server for one test file. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { Test } from 'tap'
import { freePort } from './program.ts'

/** Why tests with a server are left out; false where they run. */
export const WITHOUT_REDIS =
  spawnSync('redis-server', ['--version']).error === undefined ? false : 'redis-server is not installed'

export interface RedisBed {
  url: string
  port: number
  /** Stops the process without ending it: it answers nothing. */
  pause(): void
  resume(): void
  end(): Promise<void>
  begin(): Promise<void>
  /** For looks at keys. */
  client(): Redis
}

/** @param args - such as `--requirepass x`; it keeps every write by default */
export async function startRedis(t: Test, args: string[] = ['--appendonly', 'yes']): Promise<RedisBed> {
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'fngw-redis-'))
  let child: ChildProcess
  const clients: Redis[] = []
  const begin = async (): Promise<void> => {
    const words = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder, '--save', '', ...args]
    child = spawn('redis-server', words, { stdio: ['ignore', 'pipe', 'inherit'] })
    for await (const chunk of child.stdout!) if (String(chunk).includes('Ready to accept connections')) break
    child.stdout!.resume()
  }
  const end = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill('SIGCONT')
    child.kill('SIGTERM')
    await once(child, 'exit')
  }
  await begin()
  t.teardown(async () => {
    for (const client of clients) client.disconnect()
    await end()
    rmSync(folder, { recursive: true, force: true })
  })
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    pause: () => child.kill('SIGSTOP'),
    resume: () => child.kill('SIGCONT'),
    end,
    begin,
    client: () => {
      const client = new Redis(port, '127.0.0.1')
      clients.push(client)
      return client
    },
  }
}
