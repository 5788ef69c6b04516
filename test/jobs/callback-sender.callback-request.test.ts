import { createHmac } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import t from 'tap'
import { UpstreamAddresses } from '../../lib/edge/addresses.ts'
import { EdgeConnections, type EdgeNetwork } from '../../lib/edge/connections.ts'
import { CALLBACK_TIMEOUT_MS, sendCallback } from '../../lib/jobs/callback-sender.ts'
import { FakeClock } from '../helpers/clock.ts'
import { httpUpstream } from '../helpers/upstream.ts'

const OPEN = { baseUrl: null, allowHosts: [], allowPrivate: true, maxResponseBytes: 1 }
const BODY = Buffer.from('{"job":{}}')

function network(
  names: Record<string, string[]> = {},
  own: { host: string; port: number }[] = [],
): EdgeNetwork & { clock: FakeClock; asked: string[] } {
  const asked: string[] = []
  const clock = new FakeClock()
  return {
    asked,
    clock,
    addresses: new UpstreamAddresses(
      () => own,
      async name => {
        asked.push(name)
        if (names[name] === undefined) throw Object.assign(new Error('x'), { code: 'ENOTFOUND' })
        return names[name].map(address => ({ address, family: address.includes(':') ? 6 : 4 }))
      },
      () => [],
    ),
    connections: new EdgeConnections(clock),
  }
}

const send = (
  net: EdgeNetwork,
  url: string,
  policy: typeof OPEN | null = OPEN,
  signal = new AbortController().signal,
  secret: string | null = null,
) => sendCallback(net, { jobId: 'job-1', url, body: BODY, secret }, policy, signal)

t.test('[jobs/callback-sender.1, jobs/callback-sender.3] a POST of JSON; 2xx is a delivery', async t => {
  const seen: { method: unknown; url: unknown; headers: IncomingMessage['headers']; body: string }[] = []
  let status = 204
  const upstream = await httpUpstream(async (req, res) => {
    let body = ''
    for await (const piece of req) body += String(piece)
    seen.push({ method: req.method, url: req.url, headers: req.headers, body })
    res.writeHead(status, { Location: 'http://127.0.0.1:1/' })
    // The body of the answer is not wanted, and never ends.
    if (status === 200) res.write('x')
    else res.end()
  })
  t.teardown(upstream.close)
  t.equal(await send(network(), `${upstream.url}/hook?key=1`), null)
  t.match(seen[0], {
    method: 'POST',
    url: '/hook?key=1',
    body: String(BODY),
    headers: {
      'content-type': 'application/json',
      'content-length': String(BODY.length),
      'x-job-id': 'job-1',
      'user-agent': 'fngw-jobs',
    },
  })
  for (const [next, wanted] of [
    [200, null],
    [302, 'HTTP 302'],
    [404, 'HTTP 404'],
    [500, 'HTTP 500'],
  ] as const) {
    status = next
    t.equal(await send(network(), upstream.url), wanted)
  }
  t.equal(seen.length, 5, 'redirects are not followed')
})

t.test('[jobs/callback-sender.2] addresses are checked before anything is connected to', async t => {
  const upstream = await httpUpstream((_req, res) => res.end())
  t.teardown(upstream.close)
  const { port } = upstream
  const rows: [string, typeof OPEN | null, RegExp][] = [
    [
      `http://127.0.0.1:${port}/`,
      null,
      /^private host not allowed: set "edge": \{"allow_private": true\} in .*fn\.config\.json/,
    ],
    [`http://localhost:${port}/`, null, /private host not allowed/],
    [`http://2130706433:${port}/`, null, /private host not allowed/],
    [`http://[::ffff:127.0.0.1]:${port}/`, null, /private host not allowed/],
    [`http://both.test:${port}/`, null, /private host not allowed/],
    ['http://169.254.169.254/latest', OPEN, /special address not allowed/],
    ['http://none.test/', OPEN, /name not resolved/],
    [
      `http://127.0.0.1:${port}/`,
      { ...OPEN, allowHosts: ['other.test'] } as never,
      /^host not in allowlist: add the host to edge\.allow_hosts/,
    ],
    [`http://127.0.0.1:${port}/_fn/reload`, OPEN, /control-plane path not allowed/],
    [`http://127.0.0.1:${port}/x/%5ffn/reload`, OPEN, /control-plane path not allowed/],
    ['ftp://127.0.0.1/', OPEN, /must be absolute/],
  ]
  const names = { localhost: ['127.0.0.1'], 'both.test': ['93.184.216.34', '127.0.0.1'] }
  for (const [url, policy, reason] of rows)
    t.match(await send(network(names, [{ host: '127.0.0.1', port }]), url, policy), reason, url)
  t.equal(upstream.connections(), 0)
  t.equal(
    await send(network({ 'hook.test': ['127.0.0.1'] }), `http://hook.test:${port}/`),
    null,
    'pinned: the name need not exist',
  )
})

t.test('[jobs/callback-sender.3] no answer in time, a closed connection and a stop are failures', async t => {
  const upstream = await httpUpstream((req, res) => {
    if (req.url === '/cut') res.destroy()
  })
  t.teardown(upstream.close)
  t.match(await send(network(), `${upstream.url}/cut`), /connection reset/)
  const net = network()
  const silent = send(net, upstream.url)
  while (net.clock.pending === 0) await new Promise(resolve => setImmediate(resolve))
  net.clock.advance(CALLBACK_TIMEOUT_MS)
  t.equal(await silent, 'no answer in time')
  const stop = new AbortController()
  const stopped = send(network(), upstream.url, OPEN, stop.signal)
  await new Promise(resolve => setImmediate(resolve))
  stop.abort()
  t.match(await stopped, /given up|aborted/)
  const asking = await httpUpstream(() => {})
  await asking.close()
  t.match(await send(network(), asking.url), /connection refused/)
})

t.test('[jobs/callback-sender.3] an answer in another protocol is a failure', async t => {
  const upstream = await httpUpstream((_req, res) => {
    res.socket!.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n')
  })
  t.teardown(upstream.close)
  t.match(await send(network(), upstream.url), /protocol|connection/)
})

t.test(
  '[jobs/callback-sender.6] signs the time and the body with the secret, and sends no signature without one',
  async t => {
    const seen: unknown[] = []
    const upstream = await httpUpstream((req, res) => {
      seen.push(req.headers['x-fn-signature'])
      res.end()
    })
    t.teardown(upstream.close)
    const net = network()
    const secret = 's'.repeat(32)
    t.equal(await send(net, upstream.url, OPEN, undefined, secret), null)
    t.equal(await send(net, upstream.url), null)
    const seconds = Math.floor(net.clock.wall() / 1000)
    const expected = createHmac('sha256', secret).update(`${seconds}.${BODY}`).digest('hex')
    t.same(seen, [`t=${seconds},v1=${expected}`, undefined])
  },
)
