/** `fngw daemon` on TLS with a shared secret: strangers who reach its port must neither run code nor keep a gateway away. */

import { type ChildProcess, spawn } from 'node:child_process'
import { connect, type Socket } from 'node:net'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { readFileSync } from 'node:fs'
import { endProduct, type Product, startProduct } from '../helpers/built.ts'
import { makeCertificate, SECRET } from '../helpers/remote-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { toBinding } from '../../lib/runtime/worker-socket.ts'
import { greetDaemon } from '../../lib/runtime/greeting.ts'
import { encodeFrame, FrameReader, KIND } from '../../lib/runtime/wire-protocol.ts'
import type { Outcome, Scale } from './attack.ts'
import { ask, readDescriptors, readMemoryMb } from './target.ts'

/** Most memory and descriptors that the daemon may have gained while strangers are connected. */
const GAINED = { megabytes: 150, descriptors: 600 } as const
/** Milliseconds that one stranger's connection may last: the time for its proof, and that for reading the refusal. */
const STRANGER_MS = 12_000
const VERSION = Buffer.from([1])

const hello = (fields: object): Buffer => encodeFrame(KIND.hello, 0, JSON.stringify(fields), VERSION)
const START = encodeFrame(
  KIND.start,
  1,
  JSON.stringify({ key: 'node/hello@default', runtime: 'node', entry: 'hello/handler.js' }),
  null,
)

/** What strangers say once the TLS connection is there. */
const WORDS: readonly [name: string, bytes: Buffer][] = [
  ['no proof, straight to the role', Buffer.concat([hello({ role: 'control' }), START])],
  ['the role of a worker', hello({ role: 'worker', worker: '1-1' })],
  [
    'a made-up proof',
    Buffer.concat([
      hello({ nonce: 'a'.repeat(43) }),
      hello({ proof: 'b'.repeat(43) }),
      hello({ role: 'control' }),
      START,
    ]),
  ],
  [
    'an empty proof',
    Buffer.concat([hello({ nonce: 'a'.repeat(43) }), hello({ proof: '' }), hello({ role: 'control' }), START]),
  ],
  [
    'two nonces',
    Buffer.concat([
      hello({ nonce: 'a'.repeat(43) }),
      hello({ nonce: 'b'.repeat(43) }),
      hello({ role: 'control' }),
      START,
    ]),
  ],
  ['a frame of 4 GiB', Buffer.from('ffffffff010000000000000000', 'hex')],
  ['a frame of another kind', START],
  ['plain HTTP', Buffer.from('GET / HTTP/1.1\r\nHost: a\r\n\r\n')],
]

interface RunningDaemon {
  child: ChildProcess
  pid: number
  port: number
}

function startDaemon(
  product: Product,
  root: string,
  certificate: { cert: string; key: string },
): Promise<RunningDaemon> {
  const words = ['daemon', 'node', '--listen', 'tcp://127.0.0.1:0', '--functions', root, '--json']
  const child = spawn(
    process.execPath,
    [product.program, ...words, '--tls-cert', certificate.cert, '--tls-key', certificate.key],
    {
      env: { PATH: process.env.PATH, HOME: process.env.HOME, FN_RUNTIME_SECRET: SECRET },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  let text = ''
  return new Promise((resolve, reject) => {
    const onText = (chunk: Buffer): void => {
      text += chunk
      const port = /tls:\/\/127\.0\.0\.1:(\d+)/.exec(text)?.[1]
      if (port !== undefined) resolve({ child, pid: child.pid!, port: Number(port) })
    }
    child.stdout.on('data', onText)
    child.stderr.on('data', onText)
    child.once('exit', code => reject(new Error(`fngw daemon ended with ${code}: ${text}`)))
  })
}

/** Everything that the other side sends until it closes the connection. @throws when it does not within the limit */
function hear(socket: Socket | TLSSocket, bytes: Buffer | null): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const heard: Buffer[] = []
    const timer = setTimeout(() => {
      socket.destroy()
      reject(new Error('a stranger stays connected'))
    }, STRANGER_MS)
    socket.on('data', chunk => heard.push(chunk as Buffer))
    socket.on('error', () => {})
    socket.once('close', () => {
      clearTimeout(timer)
      resolve(Buffer.concat(heard))
    })
    if (bytes !== null) socket.write(bytes)
  })
}

const secure = (port: number, ca: string): TLSSocket => connectTls({ port, host: '127.0.0.1', ca })

/** The proof of a true gateway on one connection, sent on another one with the same nonce. @returns what is heard there */
async function replay(port: number, ca: string): Promise<Buffer> {
  const first = secure(port, ca)
  first.on('error', () => {})
  await new Promise(resolve => first.once('secureConnect', resolve))
  const sent: Buffer[] = []
  const reader = new FrameReader(() => {})
  let isProven = false
  const send = (frame: Buffer): void => {
    sent.push(frame)
    first.write(frame)
  }
  greetDaemon(reader, { secret: SECRET, send, binding: () => toBinding(first) }, () => {
    isProven = true
  })
  for await (const chunk of first) {
    reader.push(chunk as Buffer)
    if (isProven) break
  }
  return hear(secure(port, ca), Buffer.concat([...sent, hello({ role: 'control' }), START]))
}

export async function attackDaemon(product: Product, scale: Scale): Promise<Outcome> {
  const broken: string[] = []
  const pki = makeTree({})
  const tree = makeTree({ 'hello/handler.js': 'exports.handler = () => "hello"' })
  makeCertificate(pki, 'good')
  const certificate = { cert: pki.path('good.pem'), key: pki.path('good.key') }
  const ca = readFileSync(certificate.cert, 'utf8')
  const daemon = await startDaemon(product, tree.root, certificate)
  const env = {
    FN_RUNTIMES: 'node',
    FN_RUNTIME_SOCKETS: JSON.stringify({ node: [`tls://127.0.0.1:${daemon.port}`] }),
    FN_RUNTIME_SECRET: SECRET,
    FN_RUNTIME_TLS_CA_FILE: certificate.cert,
  }
  const gateway = await startProduct(product, tree.root, { env })
  const strangers: Socket[] = []
  try {
    if ((await ask(gateway.port, '/hello')) !== 200) throw new Error('the gateway does not reach its daemon')
    const before = [readMemoryMb(daemon.pid), readDescriptors(daemon.pid)] as const
    for (const [name, bytes] of WORDS) {
      const frames = (await hear(secure(daemon.port, ca), bytes)).toString('latin1')
      if (/"(?:started|worker|role|content)"/.test(frames)) broken.push(`${name}: ${frames.slice(0, 200)}`)
      const plain = await hear(connect(daemon.port, '127.0.0.1'), bytes)
      if (plain.includes('nonce')) broken.push(`${name}, without TLS: is greeted`)
    }
    if (/"(?:started|role|content)"/.test((await replay(daemon.port, ca)).toString('latin1')))
      broken.push('a replayed proof is accepted')
    // Silent ones: half without a handshake, half with one.
    const count = scale === 'quick' ? 300 : 1500
    for (let i = 0; i < count; i++) {
      const socket = i % 2 === 0 ? connect(daemon.port, '127.0.0.1') : secure(daemon.port, ca)
      socket.on('error', () => {})
      strangers.push(socket)
      if (i % 50 === 0) await new Promise(resolve => setTimeout(resolve, 10))
    }
    const second = await startProduct(product, tree.root, { env })
    try {
      for (const { port } of [gateway, second]) {
        const status = await ask(port, '/hello')
        if (status !== 200)
          broken.push(`${port === gateway.port ? 'the' : 'a new'} gateway gets ${status} while strangers are connected`)
      }
    } finally {
      await endProduct(second)
    }
    const gained = [readMemoryMb(daemon.pid) - before[0], readDescriptors(daemon.pid) - before[1]] as const
    if (gained[0] > GAINED.megabytes) broken.push(`the daemon gained ${gained[0]} MB`)
    if (gained[1] > GAINED.descriptors) broken.push(`the daemon gained ${gained[1]} descriptors`)
    if (daemon.child.exitCode !== null || daemon.child.signalCode !== null) broken.push('the daemon ended')
    return {
      broken,
      seen: `${WORDS.length} greetings, ${count} silent strangers, +${gained[0]} MB and +${gained[1]} descriptors`,
    }
  } finally {
    for (const socket of strangers) socket.destroy()
    await endProduct(gateway)
    daemon.child.removeAllListeners('exit')
    daemon.child.kill('SIGTERM')
    await new Promise(resolve => daemon.child.once('exit', resolve))
    pki.cleanup()
    tree.cleanup()
  }
}
