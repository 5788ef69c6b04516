/** The attacks, each with what it must not achieve. Page: reliability. */

import { connect, type Socket } from 'node:net'
import { parseAnswers, RawConnection } from '../helpers/raw-http.ts'
import { REFUSED } from '../helpers/refused-requests.ts'
import type { Attack, Scale } from './attack.ts'
import { SPLITS } from './handlers.ts'
import { ask, BODY_MEMORY_MB, readDescriptors, readMemoryMb, SLOTS, type Target } from './target.ts'

/** Longest time that one flood lasts. */
const ATTACK_MS = 30_000

const count = (scale: Scale, quick: number, full: number): number => (scale === 'quick' ? quick : full)

/** Pipelines so many requests on one connection, reads what comes for a while, and hangs up. */
async function flood(port: number, path: string, requests: number): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  const timer = setTimeout(() => socket.destroy(), ATTACK_MS)
  const batch = `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`.repeat(1000)
  let answers = 0
  socket.on('data', (chunk: Buffer) => {
    for (let at = chunk.indexOf('HTTP/1.1 '); at !== -1; at = chunk.indexOf('HTTP/1.1 ', at + 9)) answers++
    // A line that two pieces share is not counted: nearly all of them end it.
    if (answers >= requests * 0.99) socket.destroy()
  })
  let sent = 0
  for (; sent < requests && !socket.destroyed; sent += 1000) {
    if (!socket.write(batch)) await new Promise<void>(resolve => wake(socket, resolve))
  }
  if (!socket.destroyed) await new Promise(resolve => socket.once('close', resolve))
  clearTimeout(timer)
  return `${sent} pipelined requests, ${answers} answered`
}

function wake(socket: Socket, resolve: () => void): void {
  const done = (): void => {
    socket.off('drain', done)
    socket.off('close', done)
    resolve()
  }
  socket.on('drain', done)
  socket.on('close', done)
}

const pipelining = (name: string, path: string): Attack => ({
  name: `pipelining: ${name}`,
  run: (target, scale) => target.beside(scale, () => flood(target.port, path, count(scale, 5000, 60_000))),
})

const slowReaders: Attack = {
  name: 'slow readers: an upstream answer without end that nobody reads',
  run: (target, scale) =>
    target.beside(scale, async () => {
      const clients = await Promise.all(
        Array.from({ length: SLOTS }, async () => {
          const connection = await RawConnection.open(target.port)
          connection.socket.pause()
          connection.write('GET /proxied HTTP/1.1\r\nHost: a\r\n\r\n')
          return connection
        }),
      )
      // Each holds a slot of the function only until the gateway cuts it: then a client that reads gets one.
      let status = 429
      const limit = performance.now() + 60_000
      while (status === 429 && performance.now() < limit) status = await askHead(target.port, '/proxied')
      for (const { socket } of clients) socket.destroy()
      if (status !== 200) throw new Error(`slow readers hold the function: ${status}`)
      return `${clients.length} readers that take nothing`
    }),
}

/**
 * Most memory and descriptors that pipelining clients may take from the gateway while they read nothing, and the descriptors of
 * the requests beside them.
 */
const UNREAD = { megabytes: 400, descriptorsEach: 3, descriptorsBeside: 4 } as const

const unread = (name: string, path: string): Attack => ({
  name: `pipelining without reading: ${name}`,
  run: (target, scale) =>
    target.beside(scale, async () => {
      const { pid } = target.running
      const before = [readMemoryMb(pid), readDescriptors(pid)] as const
      const clients = await Promise.all(
        Array.from({ length: count(scale, 12, 48) }, () => RawConnection.open(target.port)),
      )
      for (const { socket } of clients) {
        socket.pause()
        socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`.repeat(100))
      }
      let most = [0, 0] as readonly [number, number]
      const end = performance.now() + count(scale, 300, 6000)
      while (performance.now() < end) {
        most = [Math.max(most[0], readMemoryMb(pid)), Math.max(most[1], readDescriptors(pid))]
        if ((await ask(target.port, '/_fn/health')) !== 200) throw new Error('the health does not answer')
      }
      for (const { socket } of clients) socket.destroy()
      const [megabytes, descriptors] = [most[0] - before[0], most[1] - before[1]]
      const seen = `${clients.length} clients, +${megabytes} MB and +${descriptors} descriptors at most`
      const maxDescriptors = UNREAD.descriptorsEach * clients.length + UNREAD.descriptorsBeside
      if (megabytes > UNREAD.megabytes || descriptors > maxDescriptors) throw new Error(seen)
      return seen
    }),
})

/** Slow uploads hold at most the memory that the target gives bodies; what is beyond gets 503. */
const slowUploads: Attack = {
  name: 'slow uploads: bodies that never end',
  run: (target, scale) =>
    target.beside(scale, async () => {
      const { pid } = target.running
      const before = readMemoryMb(pid)
      const body = Buffer.alloc(1_000_000, 'x')
      const clients = await Promise.all(
        Array.from({ length: count(scale, 100, 1000) }, () => RawConnection.open(target.port)),
      )
      for (const client of clients) {
        client.write('POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n')
        client.socket.write(body)
      }
      let refused = 0
      const end = performance.now() + ATTACK_MS
      while (performance.now() < end && refused < clients.length - 2 * BODY_MEMORY_MB) {
        await ask(target.port, '/hello')
        refused = clients.filter(client => client.text.startsWith('HTTP/1.1 503 ')).length
      }
      const megabytes = readMemoryMb(pid) - before
      for (const { socket } of clients) socket.destroy()
      const seen = `${clients.length} uploads, ${refused} refused, +${megabytes} MB`
      if (refused < clients.length - 2 * BODY_MEMORY_MB || megabytes > UNREAD.megabytes) throw new Error(seen)
      return seen
    }),
}

/** Status of an answer whose body nobody waits for. */
async function askHead(port: number, path: string): Promise<number> {
  const connection = await RawConnection.open(port)
  connection.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
  await connection.until(() => connection.text.includes('\r\n\r\n'))
  connection.socket.destroy()
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(connection.text)?.[1] ?? 0)
}

const REPLY = 17
const FRAME_KINDS = [0, 1, 2, 3, 4, 6, 7, 8, 16, REPLY, 18, 19, 20, 21, 22, 32, 33, 99, 255]
/** Each of these takes a worker with it, and the next one starts later and later: a quick run has few of them. */
const QUICK_KINDS = [2, 7, REPLY, 21]

const frameFloods: Attack = {
  name: 'frames of a hostile worker',
  run: (target, scale) =>
    target.beside(scale, async () => {
      const statuses = new Map<number, number>()
      const sizes = scale === 'quick' ? [5000, 900_000] : [5000, 900_000, 15_000_000]
      for (const kind of scale === 'quick' ? QUICK_KINDS : FRAME_KINDS) {
        for (const size of sizes) {
          for (const where of ['header', 'objects', 'body']) {
            const times = size > 1_000_000 ? 2 : 20
            const status = await ask(target.port, `/frames?kind=${kind}&size=${size}&count=${times}&where=${where}`)
            statuses.set(status, (statuses.get(status) ?? 0) + 1)
          }
        }
      }
      return `answers ${[...statuses].map(([status, times]) => `${status} (${times})`).join(', ')}`
    }),
}

/** Behind each of these a second request lies in the same packet: it must never be read. */
const framing: Attack = {
  name: 'framing: nothing behind a request that is refused is run',
  run: (target, scale) =>
    target.beside(scale, async () => {
      const smuggled = 'GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n'
      const behind = [
        ...REFUSED.map(([name, bytes]) => ({ name, bytes })),
        {
          name: 'upgrade with a body',
          bytes:
            'POST /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc',
        },
        {
          name: 'upgrade to h2c',
          bytes:
            'GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n',
        },
      ]
      const broken: string[] = []
      for (const { name, bytes } of behind) {
        const connection = await RawConnection.open(target.port)
        connection.write(bytes + smuggled)
        connection.socket.end()
        await connection.closed()
        if (connection.text.includes('smuggled')) broken.push(name)
        if (parseAnswers(connection.text).length > 1) broken.push(`${name}: two answers`)
      }
      if (broken.length > 0) throw new Error(`run or answered: ${broken.join(', ')}`)
      return `${behind.length} forms`
    }),
}

const FORWARDING: readonly Record<string, string>[] = [
  ...[
    'unknown',
    '203.0.113.9, unknown',
    '_hidden',
    '',
    ' ',
    ',',
    '203.0.113.9',
    '::1, 203.0.113.9',
    '127.0.0.1, unknown',
    '999.1.1.1',
    '127.0.0.1:x',
    '[::1]x',
    '[::1',
  ].map(value => ({ 'X-Forwarded-For': value })),
  { Forwarded: 'for=203.0.113.9' },
  { Forwarded: 'for=unknown' },
  ...[
    'X-Real-IP Via X-Forwarded-Proto X-Forwarded-Port X-Forwarded-Server X-Forwarded-Anything CF-Connecting-IP',
    'True-Client-IP X-Client-IP X-Cluster-Client-IP X-Original-Forwarded-For',
  ]
    .join(' ')
    .split(' ')
    .map(name => ({ [name]: '203.0.113.9' })),
  { 'X-Forwarded-For': '127.0.0.1', 'X-Real-IP': '203.0.113.9' },
  { 'X-Forwarded-For': '::1', Forwarded: 'for=203.0.113.9' },
]

const forwarding: Attack = {
  name: 'forwarding: no header makes a stranger local',
  run: (target, scale) =>
    target.beside(scale, async () => {
      const broken: string[] = []
      for (const headers of FORWARDING) {
        const status = await ask(target.port, '/_fn/catalog', { Host: 'localhost', ...headers })
        if (status !== 403) broken.push(`${JSON.stringify(headers)}: ${status}`)
      }
      if (broken.length > 0) throw new Error(broken.join(', '))
      return `${FORWARDING.length} headers`
    }),
}

const HOSTS = [
  'evil.example',
  'evil.example:80',
  '127.0.0.1.evil.example',
  'localhost.evil.example',
  'evil.example.',
  'localhost@evil.example',
  'xn--localhost.example',
]

const rebinding: Attack = {
  name: 'pages: one of another site or under its own name does not reach the control plane',
  run: (target, scale) =>
    target.beside(scale, async () => {
      const broken: string[] = []
      const paths = [
        '/_fn/catalog',
        '/_fn%2Fcatalog',
        '/%5ffn/catalog',
        '//_fn/catalog',
        '/_fn/../_fn/catalog',
        '/x/..%2f_fn/catalog',
      ]
      for (const host of HOSTS) {
        for (const path of paths) {
          const status = await ask(target.port, path, { Host: host })
          if (status < 400) broken.push(`${host} ${path}: ${status}`)
        }
        const absolute = await RawConnection.open(target.port)
        absolute.write(`GET http://${host}/_fn/catalog HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`)
        await absolute.closed()
        if (absolute.text.startsWith('HTTP/1.1 2')) broken.push(`absolute form of ${host}`)
      }
      for (const site of ['cross-site', 'same-site']) {
        for (const origin of [{ Origin: 'http://evil.example' }, { Referer: 'http://evil.example' }] as Record<
          string,
          string
        >[]) {
          for (const path of ['/_fn/reload', '/_fn/catalog', '/_fn/events', '/_fn/logs']) {
            const status = await ask(target.port, path, { Host: 'localhost', 'Sec-Fetch-Site': site, ...origin })
            if (status < 400) broken.push(`${path} from ${site}: ${status}`)
          }
        }
      }
      if (broken.length > 0) throw new Error(broken.join(', '))
      return `${HOSTS.length} names in ${paths.length + 1} spellings`
    }),
}

const splitting: Attack = {
  name: 'response splitting, in every language that loads at run time',
  run: (target, scale) =>
    target.beside(scale, async () => {
      const broken: string[] = []
      for (const language of ['node', 'ts', 'python', 'php', 'lua']) {
        for (const text of SPLITS) {
          for (const where of ['h', 'name']) {
            const connection = await RawConnection.open(target.port)
            const path = `/split-${language}?${where}=${encodeURIComponent(text)}`
            connection.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
            await connection.closed()
            if (/^X-Split:/im.test(connection.text) || parseAnswers(connection.text).length !== 1)
              broken.push(`${language} ${where} ${JSON.stringify(text)}`)
          }
        }
      }
      if (broken.length > 0) throw new Error(broken.join(', '))
      return `${SPLITS.length * 2} values and names in 5 languages`
    }),
}

export const ATTACKS: readonly Attack[] = [
  pipelining('a function with a queue', '/queued'),
  pipelining('no route at all', '/missing'),
  pipelining('health', '/_fn/health'),
  unread('whole responses', '/large'),
  unread('static files', '/large.bin'),
  slowUploads,
  slowReaders,
  frameFloods,
  framing,
  forwarding,
  rebinding,
  splitting,
]

/** Runs one; what it throws is what broke. */
export async function runAttack(attack: Attack, target: Target, scale: Scale) {
  try {
    return await attack.run(target, scale)
  } catch (error) {
    return { broken: [(error as Error).message], seen: '' }
  }
}
