/** Real Redis servers for one test file: one, a master with its replica and a Sentinel, or a Cluster. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
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
  /** As a machine that lost its power: nothing is saved, and nobody is told. */
  kill(): Promise<void>
  end(): Promise<void>
  begin(): Promise<void>
  /** For looks at keys. */
  client(password?: string): Redis
}

/** @param args - such as `--requirepass x`; it keeps every write by default */
export async function startRedis(t: Test, args: string[] = ['--appendonly', 'yes'], isTls = false): Promise<RedisBed> {
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'fngw-redis-'))
  let child: ChildProcess
  const clients: Redis[] = []
  const begin = async (): Promise<void> => {
    const ports = isTls ? ['--port', '0', '--tls-port', `${port}`] : ['--port', `${port}`]
    const words = [...ports, '--bind', '127.0.0.1', '--dir', folder, '--save', '', ...args]
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
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
  await begin()
  t.teardown(async () => {
    for (const client of clients) client.disconnect()
    // A replica that writes its first file of commands ignores SIGTERM.
    await kill()
    rmSync(folder, { recursive: true, force: true })
  })
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    pause: () => child.kill('SIGSTOP'),
    resume: () => child.kill('SIGCONT'),
    ...{ kill, end, begin },
    client: password => {
      const client = new Redis(port, '127.0.0.1', password === undefined ? {} : { password })
      client.on('error', () => {})
      clients.push(client)
      return client
    },
  }
}

export interface SentinelBed {
  url: string
  port: number
  master: RedisBed
  replica: RedisBed
}

/** @param password - of both servers; the Sentinel has it with `-watch` at its end */
export async function startSentinel(t: Test, password: string): Promise<SentinelBed> {
  const args = ['--appendonly', 'yes', '--requirepass', password, '--masterauth', password]
  const master = await startRedis(t, [...args, '--repl-diskless-sync-delay', '0'])
  const replica = await startRedis(t, [...args, '--replicaof', `127.0.0.1 ${master.port}`])
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'fngw-sentinel-'))
  const file = join(folder, 'sentinel.conf')
  const lines = [`port ${port}`, 'bind 127.0.0.1', `dir ${folder}`, `sentinel monitor main 127.0.0.1 ${master.port} 1`]
  const times = ['sentinel down-after-milliseconds main 500', 'sentinel failover-timeout main 3000']
  const secrets = [`sentinel auth-pass main ${password}`, `requirepass ${password}-watch`]
  writeFileSync(file, [...lines, ...times, ...secrets].join('\n'))
  const child = spawn('redis-server', [file, '--sentinel'], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(async () => {
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    rmSync(folder, { recursive: true, force: true })
  })
  // Then it can make the replica the master.
  for await (const chunk of child.stdout) if (String(chunk).includes('+slave')) break
  child.stdout.resume()
  return { url: `redis+sentinel://127.0.0.1:${port}/main`, port, master, replica }
}

export interface ClusterBed {
  url: string
  nodes: RedisBed[]
}

/** Three masters. */
export async function startCluster(t: Test): Promise<ClusterBed> {
  const args = ['--cluster-enabled', 'yes', '--appendonly', 'yes', '--cluster-node-timeout', '2000']
  const nodes = await Promise.all([0, 1, 2].map(() => startRedis(t, args)))
  const clients = nodes.map(node => node.client())
  for (const [i, client] of clients.entries()) {
    const [first, end] = [Math.ceil((16_384 / 3) * i), Math.ceil((16_384 / 3) * (i + 1))]
    await client.cluster(
      'ADDSLOTS',
      Array.from({ length: end - first }, (_, slot) => first + slot),
    )
    await client.call('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
    if (i > 0) await client.cluster('MEET', '127.0.0.1', nodes[0]!.port)
  }
  for (const client of clients) {
    let state = ''
    while (!/cluster_state:ok/.test(state) || !/cluster_known_nodes:3/.test(state))
      state = String(await client.cluster('INFO'))
  }
  return { url: `redis+cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}`, nodes }
}
