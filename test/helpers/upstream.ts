/** Servers that play the upstream of an edge proxy. Loopback only. */

import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener, type Server as HttpServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer as createNetServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface Upstream {
  port: number
  /** `http://127.0.0.1:<port>` */
  url: string
  /** Connections accepted so far. */
  connections: () => number
  /** Closes the connections that wait for a request, without a word. */
  dropConnections: () => void
  close: () => Promise<void>
}

async function listen(server: Server, scheme: string, host: string, sockets: Set<Socket>): Promise<Upstream> {
  let count = 0
  server.on('connection', (socket: Socket) => {
    count += 1
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
  })
  server.listen(0, host)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const dropConnections = () => {
    for (const socket of sockets) socket.destroy()
  }
  const close = async () => {
    dropConnections()
    server.close()
    if (sockets.size > 0 || server.listening) await once(server, 'close').catch(() => {})
  }
  return { port, url: `${scheme}://${host}:${port}`, connections: () => count, dropConnections, close }
}

export function httpUpstream(handler: RequestListener, host = '127.0.0.1'): Promise<Upstream> {
  const server: HttpServer = createServer({ keepAliveTimeout: 60_000 }, handler)
  return listen(server, 'http', host, new Set())
}

/** Answers every request on a connection with bytes of the test's choice. */
export function rawUpstream(onRequest: (socket: Socket, head: string) => void): Promise<Upstream> {
  const server = createNetServer(socket => {
    let text = ''
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
      if (!text.includes('\r\n\r\n')) return
      const head = text
      text = ''
      onRequest(socket, head)
    })
  })
  return listen(server, 'http', '127.0.0.1', new Set())
}

export interface Certificates {
  /** The self-made authority, PEM. */
  ca: string
  key: string
  /** By the authority, for `upstream.test` and 127.0.0.1. */
  cert: string
  /** By itself. */
  selfSigned: string
}

export function makeCertificates(): Certificates {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-tls-'))
  const file = (name: string) => join(folder, name)
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' })
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  const names = 'subjectAltName=DNS:upstream.test,IP:127.0.0.1'
  try {
    openssl(
      'req',
      '-x509',
      ...newKey,
      '-keyout',
      'ca.key',
      '-out',
      'ca.pem',
      '-days',
      '2',
      '-subj',
      '/CN=Test authority',
    )
    openssl('req', ...newKey, '-keyout', 'key.pem', '-out', 'cert.csr', '-subj', '/CN=upstream.test')
    writeFileSync(file('names.cnf'), names)
    const signed = ['-req', '-in', 'cert.csr', '-days', '2', '-extfile', 'names.cnf']
    openssl('x509', ...signed, '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'cert.pem')
    openssl('x509', ...signed, '-signkey', 'key.pem', '-out', 'self.pem')
    const read = (name: string) => readFileSync(file(name), 'utf8')
    return { ca: read('ca.pem'), key: read('key.pem'), cert: read('cert.pem'), selfSigned: read('self.pem') }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

export function tlsUpstream(key: string, cert: string, handler: RequestListener): Promise<Upstream> {
  return listen(createTlsServer({ key, cert }, handler), 'https', '127.0.0.1', new Set())
}
