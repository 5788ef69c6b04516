/**
 * Edge calls, static files and refusals, beside nginx and beside proxies for node, in one run. Needs `nginx`; the proxies are
 * taken from the folder FNGW_BENCH_PEERS, where `npm install http-proxy fastify @fastify/http-proxy` was run. Rounds with work of others
 * are repeated.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../helpers/program.ts'
import { QuietRounds } from './foreign.ts'
import { hasWrk, load, median, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SIZES = { '1 KiB': [1024, 64, 0.7], '1 MiB': [1 << 20, 4, 1.5], '16 MiB': [16 << 20, 2, 0.9] } as const
/** Files of 1 KiB that clients who differ ask for. */
const MANY_FILES = 400

const PEERS: Record<string, (port: number, up: number) => string> = {
  'http-proxy': (port, up) => `
    import http from 'node:http'
    import proxy from 'http-proxy'
    const made = proxy.createProxyServer({ target: 'http://127.0.0.1:${up}', agent: new http.Agent({ keepAlive: true, maxSockets: 256 }) })
    http.createServer((req, res) => made.web(req, res)).listen(${port}, '127.0.0.1')`,
  '@fastify/http-proxy': (port, up) => `
    import fastify from 'fastify'
    import proxy from '@fastify/http-proxy'
    const app = fastify()
    app.register(proxy, { upstream: 'http://127.0.0.1:${up}' })
    app.listen({ port: ${port}, host: '127.0.0.1' })`,
}

async function untilServed(url: string): Promise<void> {
  for (let left = 200; ; left--) {
    const isServed = await fetch(url).then(
      answer => answer.arrayBuffer().then(() => true),
      () => false,
    )
    if (isServed) return
    if (left === 0) throw new Error(`${url} is not served`)
    await new Promise(done => setTimeout(done, 100))
  }
}

function toVerdict(value: number, goal: number, isDelay: boolean): { goal: string; ok: boolean } {
  return isDelay ? { goal: `<= ${goal}`, ok: value <= goal } : { goal: `>= ${goal}`, ok: value >= goal }
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  if (spawnSync('nginx', ['-v']).error !== undefined) throw new Error('nginx is missing: apt-get install nginx-light')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 2)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 5)
  const peers = process.env.FNGW_BENCH_PEERS
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-edge-'))
  // nginx reads as another user.
  chmodSync(root, 0o755)
  const children: ChildProcess[] = []
  const start = (program: string, args: string[], cwd = root): ChildProcess => {
    const child = spawn(program, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] })
    children.push(child)
    return child
  }
  const write = (path: string, text: string | Buffer): void => {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const rows: BenchRow[] = []
  try {
    const [up, own] = [await freePort(), await freePort()]
    for (const [name, [bytes]] of Object.entries(SIZES))
      write(`fn/public/${name.replace(' ', '')}.bin`, Buffer.alloc(bytes, 'x'))
    write('fn/hello/handler.js', "export const handler = () => ({ message: 'hello' })\n")
    for (let i = 0; i < MANY_FILES; i++) write(`fn/public/many/${i}.bin`, Buffer.alloc(1024, 'x'))
    write('fn/px/handler.js', "export const handler = () => ({ proxy: { path: '/up' } })\n")
    write(
      'fn/px/[...rest].js',
      "export const handler = ({ path }) => ({ proxy: { path: path.replace('/px', '/up') } })\n",
    )
    const edge = { base_url: `http://127.0.0.1:${up}`, allow_private: true }
    write('fn/px/fn.config.json', JSON.stringify({ edge, invoke: { methods: ['GET', 'POST'] } }))
    write('fn/fn.config.json', JSON.stringify({ max_concurrency: 0, assets: { directory: './public' } }))
    write('refused.lua', 'wrk.method = "PUT"\nwrk.body = string.rep("x", 1024)\n')
    const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      name => `${name}_temp_path ${root}/t-${name};`,
    )
    write(
      'nginx.conf',
      `worker_processes 1; daemon off; pid ${root}/nginx.pid; error_log ${root}/nginx.err; events { worker_connections 1024; }
       http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; ${temp.join(' ')}
       server { listen 127.0.0.1:${up}; root ${root}/fn/public;
       location /up { default_type application/json; return 200 '{"message":"hello"}'; } } }`,
    )
    start('nginx', ['-c', join(root, 'nginx.conf')])
    const gateway = start(process.execPath, [
      join(ROOT, 'dist/bin/fngw.js'),
      'run',
      join(root, 'fn'),
      '--native',
      '--port',
      String(own),
      '--runtimes',
      'node',
    ])
    const bareAt = await freePort()
    start(process.execPath, [join(ROOT, 'test/bench/bare-server.mjs'), String(bareAt), '1024'])
    const ours = `http://127.0.0.1:${own}`
    const theirs: Record<string, string> = {}
    for (const [name, toText] of peers === undefined ? [] : Object.entries(PEERS)) {
      const port = await freePort()
      start(process.execPath, ['--input-type=module', '-e', toText(port, up)], peers)
      theirs[name] = `http://127.0.0.1:${port}`
    }
    for (const url of [ours, ...Object.values(theirs)]) await untilServed(`${url}${url === ours ? '/px' : '/up'}`)
    const quiet = new QuietRounds()
    /** @param mixed - sent to both instead of one request: a script and its further arguments, which follow the path */
    const compare = async (
      name: string,
      [a, b]: readonly [string, string],
      connections: number,
      goal: number | null,
      [script, ...more]: readonly string[] = [],
    ): Promise<void> => {
      const ask = (url: string) =>
        script === undefined
          ? load(url, connections, seconds)
          : load(new URL('/', url).href, connections, seconds, script, [new URL(url).pathname, ...more])
      const round = async () => {
        const [first, second] = [await ask(a), await ask(b)]
        if (first.failures + second.failures > 0) throw new Error(`${name}: failures`)
        return connections === 1 ? first.p50Us / second.p50Us : first.requestsPerSecond / second.requestsPerSecond
      }
      const values: number[] = []
      // Warms both up.
      await round()
      while (values.length < rounds) values.push(await quiet.run(round))
      const value = median(values)
      rows.push({ name, value, unit: 'ratio', ...(goal !== null && toVerdict(value, goal, connections === 1)) })
    }
    for (const [name, url] of Object.entries(theirs)) {
      const pair = [`${ours}/px`, `${url}/up`] as const
      await compare(`edge call, 64 connections, to ${name}`, pair, 64, 1)
      await compare('  clients that differ, 20 % posts', pair, 64, 1, ['mixed.lua'])
      await compare(`edge call, p50 of one connection, to ${name}`, pair, 1, 1)
    }
    for (const [name, [, connections, goal]] of Object.entries(SIZES)) {
      const path = `/${name.replace(' ', '')}.bin`
      const pair = [ours + path, `http://127.0.0.1:${up}${path}`] as const
      await compare(`static ${name}, ${connections} connections, to nginx`, pair, connections, goal)
    }
    // What no server on node's own HTTP can beat.
    const bare = [`http://127.0.0.1:${bareAt}/`, `http://127.0.0.1:${up}/1KiB.bin`] as const
    await compare('  bare node:http with 1 KiB, to nginx', bare, 64, null)
    const many = [`${ours}/many`, `http://127.0.0.1:${up}/many`] as const
    await compare(`  ${MANY_FILES} files of 1 KiB, clients that differ`, many, 64, null, [
      'mixed-files.lua',
      `${MANY_FILES}`,
    ])
    const cpu = { hello: [] as number[], refused: [] as number[] }
    const cpuOf = async (script: string | null): Promise<number> => {
      const before = usageOf(gateway.pid!).treeSeconds
      const { requests } = await load(`${ours}/hello`, 64, seconds, script)
      return (usageOf(gateway.pid!).treeSeconds - before) / requests
    }
    for (let round = 0; round < rounds; round++) {
      cpu.hello.push(await quiet.run(() => cpuOf(null)))
      cpu.refused.push(await quiet.run(() => cpuOf(join(root, 'refused.lua'))))
    }
    const value = median(cpu.refused) / median(cpu.hello)
    rows.push({
      name: 'refusal (405, 1 KiB body), CPU to an answered hello',
      value,
      unit: 'ratio',
      ...toVerdict(value, 0.7, true),
    })
    rows.push(...quiet.toRows())
  } finally {
    for (const child of children) child.kill('SIGTERM')
    await Promise.all(children.map(child => child.exitCode === null && new Promise(done => child.once('exit', done))))
    rmSync(root, { recursive: true, force: true })
  }
  return rows
}
