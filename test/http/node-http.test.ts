import { spawnSync } from 'node:child_process'
import { createHook } from 'node:async_hooks'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { LeanRequest, USES_INTERNALS } from '../../lib/http/node-http.ts'
import { FROM_SOURCES } from '../helpers/cli.ts'
import { RawConnection } from '../helpers/raw-http.ts'

type Handler = (req: LeanRequest) => void

async function listen(t: Test, request: typeof IncomingMessage | typeof LeanRequest, handler: Handler) {
  const server: Server = createServer({ IncomingMessage: request as typeof IncomingMessage }, (req, res) => {
    handler(req as LeanRequest)
    res.end('ok')
  })
  server.listen(0, '127.0.0.1')
  await new Promise(resolve => server.once('listening', resolve))
  const raw = await RawConnection.open((server.address() as AddressInfo).port)
  t.teardown(() => {
    raw.socket.destroy()
    server.close()
  })
  return raw
}

const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'
const post = (body: string) => `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`

/** Ticks of so many requests, one after the other. */
async function countTicks(raw: RawConnection, request: string): Promise<number> {
  const have = (await raw.answers(0)).length
  await raw.answers(have)
  raw.write(request)
  await raw.answers(have + 1)
  let ticks = 0
  const hook = createHook({
    init: (_, type) => {
      if (type === 'TickObject') ticks += 1
    },
  })
  hook.enable()
  for (let i = 2; i <= 21; i++) {
    raw.write(request)
    await raw.answers(have + i)
  }
  hook.disable()
  return ticks / 20
}

/** A test of the short ways, which the public API does not have. */
const skip = USES_INTERNALS ? false : 'FNGW_PUBLIC_HTTP_ONLY is set'

t.test('[http/public.6] node does not announce the end of a body that is not read', { skip }, async t => {
  for (const request of [GET, post('body'), post('')]) {
    const usual = await countTicks(await listen(t, LeanRequest, () => {}), request)
    const lean = await countTicks(await listen(t, LeanRequest, req => req.leaveBody()), request)
    t.ok(lean < usual, `${lean} ticks, ${usual} as node does it`)
  }
})

t.test('[http/public.6] the connection goes on behind it', async t => {
  let count = 0
  const raw = await listen(t, LeanRequest, req => {
    count += 1
    req.leaveBody()
  })
  for (const text of [GET, post('x'.repeat(100_000)), GET + GET, post('a') + GET + post('b'), post('')]) {
    const before = count
    raw.write(text)
    const wanted = text.split(' HTTP/1.1').length - 1
    t.same(
      (await raw.answers(before + wanted)).slice(before).map(({ status }) => status),
      Array(wanted).fill(200),
    )
  }
  // A body that comes after its answer is dropped, and the next request is read.
  raw.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n')
  await raw.answers(count + 1)
  const before = count
  raw.write(`123456789${GET}`)
  await raw.answers(before + 1)
  t.equal(count, before + 1)
})

t.test('[http/public.6] the end of a body is announced to a reader, and after awaitEnd', async t => {
  const seen: string[] = []
  const raw = await listen(t, LeanRequest, req => {
    if (req.method === 'GET') req.leaveBody()
    if (req.url === '/again') req.awaitEnd()
    let body = ''
    req.on('data', chunk => {
      body += chunk
    })
    req.on('end', () => seen.push(`${req.method} ${body}`))
    t.equal(req.readableEnded, false)
  })
  raw.write(post('hello') + post('') + GET.replace('/ ', '/again ') + GET)
  await raw.answers(4)
  await new Promise(setImmediate)
  t.same(seen, ['POST hello', 'POST ', 'GET ', ...(USES_INTERNALS ? [] : ['GET '])])
})

t.test('[http/public.41] with FNGW_PUBLIC_HTTP_ONLY=1 answers and descriptors come by the public API', async t => {
  const text = `
    import { createServer } from 'node:net'
    import { listeningDescriptor, USES_INTERNALS } from ${JSON.stringify(new URL('../../lib/http/node-http.ts', import.meta.url))}
    const server = createServer().listen(0, '127.0.0.1', () => {
      console.log(USES_INTERNALS, listeningDescriptor(server) === server._handle.fd)
      server.close(() => console.log(listeningDescriptor(server)))
    })`
  for (const [value, uses] of [
    ['0', USES_INTERNALS || process.env.FNGW_PUBLIC_HTTP_ONLY === '1'],
    ['1', false],
  ] as const) {
    const env = { ...process.env, FNGW_PUBLIC_HTTP_ONLY: value }
    const args = [...FROM_SOURCES, '--input-type=module', '-e', text]
    const { stdout } = spawnSync(process.execPath, args, { env, encoding: 'utf8' })
    t.equal(stdout, `${uses} true\nnull\n`)
  }
})
