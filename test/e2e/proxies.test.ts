/** The configurations of docs/nginx.md and docs/caddy-traefik.md in the real programs, in front of a real gateway. */

import { readFileSync } from 'node:fs'
import { type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { join } from 'node:path'
import t from 'tap'
import { parse, stringify } from 'yaml'
import { readDocBlocks } from '../docs/blocks.ts'
import { isInstalled } from '../docs/checks.ts'
import { readPage } from '../docs/pages.ts'
import { startCli } from '../helpers/cli.ts'
import { freePort, startProgram } from '../helpers/program.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(120_000)

/** A client that is not the proxy: the pages trust 127.0.0.1 alone. */
const CLIENT_ADDRESS = '127.0.0.2'
const MB = 1_000_000

interface Ports {
  proxy: number
  gateway: number
  control: number
}

interface Proxy {
  /** Text of the page that configures it. */
  page: string
  language: string
  /** Writes its files. @returns the command line that starts it in the folder */
  write(folder: Tree, text: string, ports: Ports): [string, ...string[]]
  /** Certificate of the issuer that it creates itself; null for plain HTTP, `any` for one that nothing signs. */
  issuer: string | null
  /** Whether it reads a whole body before it sends the request, and refuses one of more than 20 MB. */
  readsBodies: boolean
}

const PROXIES: Record<string, Proxy> = {
  nginx: {
    page: 'docs/nginx.md',
    language: 'nginx',
    issuer: null,
    readsBodies: true,
    write: (folder, text, ports) => {
      const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
        .map(name => `${name}_temp_path ${name};`)
        .join('\n')
      const server = replaceEach(text, [
        ['127.0.0.1:8080', `127.0.0.1:${ports.gateway}`],
        ['listen 80;', `listen 127.0.0.1:${ports.proxy};`],
      ])
      // Its workers would be another user, who cannot use the folder.
      const user = process.getuid?.() === 0 ? 'user root;' : ''
      folder.write({
        'nginx.conf': `${user}\ndaemon off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n${temporary}\n${server}\n}\n`,
      })
      return ['nginx', '-p', folder.root, '-c', 'nginx.conf', '-e', 'stderr']
    },
  },
  caddy: {
    page: 'docs/caddy-traefik.md',
    language: 'caddy',
    issuer: 'data/caddy/pki/authorities/local/root.crt',
    readsBodies: false,
    write: (folder, text, ports) => {
      const site = replaceEach(text, [
        ['example.com {', `https://localhost:${ports.proxy} {\n    tls internal`],
        ['127.0.0.1:8080', `127.0.0.1:${ports.gateway}`],
      ])
      folder.write({
        Caddyfile: `{\n    admin off\n    skip_install_trust\n    auto_https disable_redirects\n}\n${site}\n`,
      })
      return ['caddy', 'run', '--config', 'Caddyfile', '--adapter', 'caddyfile']
    },
  },
  traefik: {
    page: 'docs/caddy-traefik.md',
    language: 'yaml',
    issuer: 'any',
    readsBodies: false,
    write: (folder, text, ports) => {
      const file = parse(
        replaceEach(text, [
          ['http://127.0.0.1:8080', `http://127.0.0.1:${ports.gateway}`],
          ['18082', String(ports.control)],
          ['example.com', 'localhost'],
        ]),
      )
      // Its own certificate instead of one that a public authority signs.
      file.http.routers.fngw.tls = {}
      folder.write({
        'dynamic.yaml': stringify(file),
        'traefik.yaml': stringify({
          entryPoints: { websecure: { address: `127.0.0.1:${ports.proxy}` } },
          providers: { file: { filename: 'dynamic.yaml' } },
        }),
      })
      return ['traefik', '--configfile=traefik.yaml']
    },
  },
}

const HANDLERS = {
  'functions/who/get.js': 'export const handler = ({ client, headers }) => ({ ip: client.ip, host: headers.host })',
  'functions/size/post.js': 'export const handler = event => ({ bytes: Buffer.byteLength(event.body) })',
  'functions/size/fn.config.json': '{ "max_body_bytes": 3000000, "timeout_ms": 20000 }',
  'functions/large/post.js': 'export const handler = event => ({ bytes: Buffer.byteLength(event.body) })',
  'functions/large/fn.config.json': '{ "max_body_bytes": 30000000 }',
  'functions/stream/get.[kind].js': `import { writeFileSync } from 'node:fs'

async function* chunks(signal, file) {
  try {
    yield 'data: first\\n\\n'
    await new Promise(resolve => signal.addEventListener('abort', resolve))
  } finally {
    writeFileSync(file, 'closed')
  }
}

export const handler = ({ signal, params: { kind }, env }) =>
  ({ headers: { 'Content-Type': 'text/' + kind }, body: chunks(signal, env.CLOSED_FILE + kind) })`,
  'functions/stream/fn.config.json': '{ "timeout_ms": 60000 }',
}

for (const [name, proxy] of Object.entries(PROXIES)) {
  const skip = isInstalled(name) ? false : `${name} is not installed`
  t.test(`[docs.18] ${name} forwards requests with the configuration of ${proxy.page}`, { skip }, async t => {
    const folder = makeTree(HANDLERS)
    t.teardown(folder.cleanup)
    const closedFile = folder.path('closed')
    folder.write({ 'functions/stream/fn.env.json': JSON.stringify({ CLOSED_FILE: closedFile }) })
    const control = await freePort()
    const gateway = await startCli(['run', 'functions', '--port', '0'], {
      cwd: folder.root,
      env: { FN_TRUSTED_PROXY_CIDRS: '127.0.0.1/32', FN_CONTROL_PORT: String(control) },
    })
    t.teardown(async () => {
      gateway.child.kill('SIGTERM')
      await gateway.ended
    })
    const ports = { proxy: await freePort(), gateway: Number(new URL(gateway.url).port), control }
    const command = proxy.write(folder, readConfiguration(proxy), ports)
    await startProgram(t, command, {
      port: ports.proxy,
      cwd: folder.root,
      env: { HOME: folder.root, XDG_DATA_HOME: folder.path('data'), XDG_CONFIG_HOME: folder.path('config') },
    })
    const send = createClient(ports.proxy, proxy.issuer, folder)
    // Certificates and health checks come shortly after the port.
    await until(async () => (await send('/who').catch(() => null))?.status === 200, 30_000)

    await t.test('client address and host', async t => {
      const { status, text } = await send('/who', { headers: { 'x-forwarded-for': '203.0.113.7' } })
      t.equal(status, 200)
      t.match(JSON.parse(text), { ip: CLIENT_ADDRESS, host: /^localhost(:\d+)?$/ })
    })
    await t.test('the admin API is not forwarded', async t => {
      t.equal((await send('/_fn/catalog')).status, 404)
      t.equal((await send('/console')).status, 404)
    })
    await t.test('request bodies', async t => {
      const accepted = await send('/size', { body: Buffer.alloc(2 * MB, 'a') })
      t.same(JSON.parse(accepted.text), { bytes: 2 * MB })
      const body = Buffer.alloc(proxy.readsBodies ? 4 * MB : 1000)
      const refused = await send('/size', { body, length: 4 * MB })
      t.match(refused, { status: 413, text: /payload too large/ }, 'the gateway')
      if (proxy.readsBodies)
        t.match(await send('/large', { body: Buffer.alloc(1000), length: 21 * MB }), { status: 413 }, 'the proxy')
    })
    for (const kind of ['event-stream', 'csv'])
      await t.test(`a stream of text/${kind}`, async t => {
        const response = await send.open(`/stream/${kind}`)
        t.equal(response.headers['content-type'], `text/${kind}`)
        let received = ''
        for await (const chunk of response.setEncoding('utf8')) {
          received += chunk
          if (received.endsWith('\n\n')) break
        }
        t.equal(received, 'data: first\n\n', 'the first chunk arrives while the stream is open')
        // Leaving the loop closed the connection.
        await until(() => isWritten(closedFile + kind), 20_000)
        t.pass('the generator ends when the client disconnects')
      })
  })
}

function readConfiguration({ page, language }: Proxy): string {
  const block = readDocBlocks(readPage(page)).find(block => block.language === language)
  if (block === undefined) throw new Error(`${page} has no block of ${language}`)
  return block.text
}

/** @throws Error when the page no longer has one of them */
function replaceEach(text: string, pairs: readonly (readonly [string, string])[]): string {
  return pairs.reduce((changed, [from, to]) => {
    if (!changed.includes(from)) throw new Error(`the page does not contain ${from}`)
    return changed.replaceAll(from, to)
  }, text)
}

function isWritten(file: string): boolean {
  try {
    return readFileSync(file, 'utf8') === 'closed'
  } catch {
    return false
  }
}

interface Request {
  headers?: Record<string, string>
  body?: Buffer
  /** Of a body that is longer than what is sent of it: the response must come before the rest. */
  length?: number
}

interface Client {
  (path: string, request?: Request): Promise<{ status: number; text: string }>
  open(path: string, request?: Request): Promise<IncomingMessage>
}

function createClient(port: number, issuer: string | null, folder: Tree): Client {
  const open = (path: string, { headers = {}, body, length }: Request = {}): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const options = {
        port,
        path,
        headers: {
          host: `localhost:${port}`,
          ...(length !== undefined && { 'content-length': String(length) }),
          ...headers,
        },
        host: '127.0.0.1',
        localAddress: CLIENT_ADDRESS,
        agent: false as const,
        method: body === undefined ? 'GET' : 'POST',
      }
      const outgoing =
        issuer === null
          ? requestHttp(options, resolve)
          : requestHttps(
              issuer === 'any'
                ? { ...options, servername: 'localhost', rejectUnauthorized: false }
                : { ...options, servername: 'localhost', ca: readFileSync(join(folder.root, issuer)) },
              resolve,
            )
      outgoing.on('error', reject)
      if (length === undefined) outgoing.end(body)
      else outgoing.write(body)
    })
  const send = async (path: string, request?: Request): Promise<{ status: number; text: string }> => {
    const response = await open(path, request)
    const chunks = await response.toArray()
    response.destroy()
    return { status: response.statusCode!, text: Buffer.concat(chunks).toString() }
  }
  return Object.assign(send, { open })
}
