/**
 * `npm run demo:fleet`: Redis, three gateways on one tree and a load balancer, until Ctrl-C. Page: docs/fleet.md.
 * Arguments: the command line that starts `fngw`; the build by default.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const GATEWAYS = 3
const HOST = '127.0.0.1'
/** Milliseconds until a process that was asked to end is killed. */
const END_MS = 15_000
const root = fileURLToPath(new URL('..', import.meta.url))
const tree = join(root, 'examples/functions/polyglot')
const command = process.argv.length > 2 ? process.argv.slice(2) : [process.execPath, join(root, 'dist/bin/fngw.js')]

const print = text => process.stdout.write(`${text}\n`)
/** Every process that was started. */
const children = []
let isEnding = false

if (spawnSync('redis-server', ['--version']).error !== undefined) {
  process.stderr.write('demo:fleet needs redis-server, which is not in PATH. Debian and Ubuntu: apt install redis-server; macOS: brew install redis\n')
  process.exit(1)
}
const folder = mkdtempSync(join(tmpdir(), 'fngw-demo-'))
process.on('SIGINT', () => void end(0))
process.on('SIGTERM', () => void end(0))

try {
  const redisPort = await freePort()
  const redis = start('Redis', 'redis-server', ['--port', `${redisPort}`, '--bind', HOST, '--dir', folder, '--appendonly', 'yes'])
  await line(redis, /Ready to accept connections/)
  const env = {
    ...process.env,
    FN_HOST: HOST,
    FN_STORE_URL: `redis://${HOST}:${redisPort}/0`,
    FN_CONSOLE_WRITE_ENABLED: '1',
    PORT: '0',
  }
  const gateways = await Promise.all(
    Array.from({ length: GATEWAYS }, async (_, i) => {
      const gateway = start(`gateway ${i + 1}`, command[0], [...command.slice(1), 'run', tree], env)
      const { url } = JSON.parse(await line(gateway, /"event":"ready"/))
      return { url, pid: gateway.pid }
    }),
  )
  const balancer = createServer(toBalancer(gateways.map(({ url }) => new URL(url))))
  // Only this machine reaches it, and it sets no forwarding header: the gateways treat its requests as local.
  await once(balancer.listen(0, HOST), 'listening')
  const url = `http://${HOST}:${balancer.address().port}`
  print(toGuide(url, gateways))
} catch (error) {
  if (!isEnding) {
    process.stderr.write(`demo:fleet: ${error.message}\n`)
    await end(1)
  }
}

/** Requests go to the gateways in turn. One that cannot be reached is passed over; one that ends before it responds is too, for a GET. */
function toBalancer(urls) {
  let turn = 0
  return (incoming, response) => {
    const send = left => {
      const { hostname, port } = urls[turn++ % urls.length]
      const { method, url: path, headers } = incoming
      const outgoing = request({ hostname, port, method, path, headers }, answer => {
        response.writeHead(answer.statusCode, { ...answer.headers, 'x-demo-gateway': port })
        answer.pipe(response)
        answer.on('error', () => response.destroy())
      })
      outgoing.on('error', error => {
        const mayRepeat = error.code === 'ECONNREFUSED' || (incoming.method === 'GET' && !response.headersSent)
        if (mayRepeat && left > 1) send(left - 1)
        else if (response.headersSent) response.destroy()
        else response.writeHead(502).end('no gateway responds\n')
      })
      response.on('close', () => outgoing.destroy())
      // The body is read only by a gateway that is connected.
      outgoing.on('socket', socket => {
        if (!socket.connecting) incoming.pipe(outgoing)
        else socket.once('connect', () => incoming.pipe(outgoing))
      })
    }
    send(urls.length)
  }
}

function toGuide(url, gateways) {
  return `
Load balancer  ${url}
${gateways.map(gateway => `Gateway        ${gateway.url}  pid ${gateway.pid}`).join('\n')}

Each request goes to the next gateway:
  curl -i '${url}/shipping?kg=3'

The gateways of the fleet:
  curl ${url}/_fn/fleet

Create a job at one gateway. Any gateway runs it, and each of them lists it:
  curl -H 'X-Fngw-Request: 1' -H 'Content-Type: application/json' -d '{"name":"shipping","method":"GET","query":{"kg":"3"}}' ${url}/_fn/jobs
  curl ${gateways[1].url}/_fn/jobs

Kill a gateway, and repeat the above. After 10 seconds the fleet shows it as gone:
  kill -9 ${gateways[0].pid}

Press Ctrl-C to end.`
}

function start(name, program, args, env = process.env) {
  // In its group: Ctrl-C reaches only this script, which ends the others in order.
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'], detached: true })
  const exit = new Promise(resolve => child.once('exit', resolve).once('error', resolve))
  children.push({ child, exit })
  void exit.then(() => {
    if (!isEnding) print(`${name} ended`)
  })
  return child
}

/** The first line of its output that matches; the output is read on. */
function line(child, pattern) {
  return new Promise((resolve, reject) => {
    createInterface({ input: child.stdout })
      .on('line', text => pattern.test(text) && resolve(text))
      .on('close', () => reject(new Error(`${child.spawnfile} ended before it was ready`)))
  })
}

async function freePort() {
  const server = createTcpServer().listen(0, HOST)
  await once(server, 'listening')
  const { port } = server.address()
  await new Promise(resolve => server.close(resolve))
  return port
}

/** Gateways first, which still use the store. */
async function end(code) {
  if (isEnding) return
  isEnding = true
  const [redis, ...gateways] = children
  for (const part of [gateways, redis ? [redis] : []]) {
    for (const { child } of part) child.kill('SIGTERM')
    const timer = setTimeout(() => part.forEach(({ child }) => child.kill('SIGKILL')), END_MS)
    await Promise.all(part.map(({ exit }) => exit))
    clearTimeout(timer)
  }
  rmSync(folder, { recursive: true, force: true })
  process.exit(code)
}
