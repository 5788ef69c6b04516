/** The gateway that is attacked: the compiled product in a process of its own, and other clients beside the attacker. */

import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { createServer, get, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Worker } from 'node:worker_threads'
import { endProduct, type Product, type RunningProduct, startProduct } from '../helpers/built.ts'
import { makeTree } from '../helpers/tree.ts'
import { GAINED_MB, OTHERS_WAIT_MS, type Outcome, type Scale } from './attack.ts'
import { FLOODING_FRAMES, SPLITTING_HANDLERS } from './handlers.ts'

/** Pieces of an answer without end, as fast as they are taken. */
const PIECE = Buffer.alloc(64 * 1024, 'x')

/** Calls of the proxied function at once: as many readers that take nothing fill it. */
export const SLOTS = 10

/** Megabytes that request bodies may hold, and unread responses. */
export const BODY_MEMORY_MB = 32

const CONFIG = JSON.stringify
const FILES: Record<string, string> = {
  'fn.config.json': CONFIG({ assets: { directory: 'public', run_worker_first: true } }),
  'public/index.html': '<!doctype html>',
  'public/large.bin': 'x'.repeat(4_000_000),
  'large/handler.lua': 'function handler(event) return string.rep("x", 1000000) end\n',
  'hello/handler.lua': 'function handler(event) return "hello" end\n',
  'a/handler.lua': 'function handler(event) return { status = 200, headers = {}, body = event.body or "" } end\n',
  'a/fn.config.json': CONFIG({ invoke: { methods: ['GET', 'POST'] } }),
  'queued/handler.lua': 'function handler(event) return "queued" end\n',
  'queued/fn.config.json': CONFIG({
    max_concurrency: 1,
    worker_pool: { enabled: true, max_workers: 1, max_queue: 100_000, queue_timeout_ms: 60_000 },
  }),
  'smuggled/handler.lua': 'function handler(event) return "smuggled" end\n',
  'proxied/handler.lua': 'function handler(event) return { proxy = { path = "/endless" } } end\n',
}

export interface Target {
  running: RunningProduct
  port: number
  /** Runs an attack while another client asks, and judges what that one saw. */
  beside(scale: Scale, attack: () => Promise<string>): Promise<Outcome>
  close(): Promise<void>
}

export async function startTarget(product: Product): Promise<Target> {
  const upstream = await startUpstream()
  const { port: upstreamPort } = upstream.address() as AddressInfo
  const edge = { base_url: `http://127.0.0.1:${upstreamPort}`, allow_hosts: ['127.0.0.1'], allow_private: true }
  const tree = makeTree({
    ...FILES,
    ...SPLITTING_HANDLERS,
    'frames/handler.py': FLOODING_FRAMES,
    'proxied/fn.config.json': CONFIG({
      timeout_ms: 1000,
      max_concurrency: SLOTS,
      edge: { ...edge, max_response_bytes: 1 << 30 },
    }),
  })
  const running = await startProduct(product, tree.root, {
    env: { FN_TRUSTED_PROXY_CIDRS: '127.0.0.1/32', FN_BODY_MEMORY_MB: String(BODY_MEMORY_MB) },
  })
  return {
    running,
    port: running.port,
    beside: (scale, attack) => beside(running, scale, attack),
    async close() {
      await endProduct(running)
      upstream.closeAllConnections()
      await new Promise(resolve => upstream.close(resolve))
      tree.cleanup()
    },
  }
}

function startUpstream(): Promise<Server> {
  const server = createServer((_, res) => {
    const write = (): void => {
      while (!res.destroyed && res.write(PIECE));
    }
    res.on('drain', write)
    write()
  })
  return new Promise(resolve => server.listen(0, '127.0.0.1', () => resolve(server)))
}

async function beside(running: RunningProduct, scale: Scale, attack: () => Promise<string>): Promise<Outcome> {
  const before = readMemoryMb(running.pid)
  const worker = new Worker(new URL('./other-client.mjs', import.meta.url), { workerData: { port: running.port } })
  const other = once(worker, 'message') as Promise<[{ asked: number; worstMs: number; wrong: number[] }]>
  let text = ''
  try {
    text = await attack()
  } finally {
    worker.postMessage('stop')
    await other
  }
  const [{ asked, worstMs, wrong }] = await other
  const broken = wrong.map(status => `another client got ${status}`)
  if (running.child.exitCode !== null || running.child.signalCode !== null) broken.push('the gateway ended')
  else if ((await ask(running.port, '/hello')) !== 200) broken.push('the gateway does not answer afterwards')
  const gained = readMemoryMb(running.pid) - before
  if (gained > GAINED_MB) broken.push(`the gateway kept ${gained} MB`)
  if (scale === 'full' && worstMs > OTHERS_WAIT_MS) broken.push(`another client waited ${worstMs.toFixed(0)} ms`)
  const memory = `memory ${gained >= 0 ? '+' : ''}${gained} MB`
  return { broken, seen: `${text}; another client: ${asked} answers, the slowest ${worstMs.toFixed(0)} ms; ${memory}` }
}

/** Status of a GET on a connection of its own; 0 when there is no answer. */
export function ask(port: number, path: string, headers: Record<string, string> = {}): Promise<number> {
  return new Promise(resolve => {
    const req = get({ port, host: '127.0.0.1', path, headers, agent: false }, res => {
      res.resume()
      res.once('end', () => resolve(res.statusCode ?? 0))
      res.once('error', () => resolve(0))
    })
    req.once('error', () => resolve(0))
  })
}

/** Open descriptors of a process; 0 where the system does not tell. */
export function readDescriptors(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length
  } catch {
    return 0
  }
}

/** Resident memory of a process, megabytes; 0 where the system does not tell. */
export function readMemoryMb(pid: number): number {
  try {
    return Math.round(Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1] ?? 0) / 1024)
  } catch {
    return 0
  }
}
