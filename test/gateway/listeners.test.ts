import t, { type Test } from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { ListenError } from '../../lib/http/server.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { Listeners } from '../../lib/gateway/listeners.ts'
import { makePublic } from '../helpers/public.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

function makeListeners(t: Test, hasControl: boolean) {
  const everybody = makePublic({ '/a': makeFn() })
  const own = makePublic({})
  const { requestIds, lifecycle } = everybody
  const listeners = new Listeners({
    public: everybody.handle,
    control: hasControl ? own.handle : null,
    clock: systemClock,
    requestIds,
    lifecycle: Object.assign(lifecycle, { starting: false }),
  })
  t.teardown(() => listeners.close(0))
  const listen = (port: number, controlPort: number | null) => listeners.listen({ port, host: LOCAL, controlPort })
  return { listeners, listen, lifecycle }
}

const LOCAL = '127.0.0.1'

t.test('[control/access.9, http/public.26] one socket or two', async t => {
  const shared = makeListeners(t, false)
  t.same(shared.listeners.all, [])
  const alone = await shared.listen(0, null)
  t.equal(alone.control, null)
  t.same(
    shared.listeners.all.map(({ port }) => port),
    [alone.port],
  )
  await t.rejects(shared.listen(0, null), { message: 'gateway is already listening' })

  const split = makeListeners(t, true)
  const both = await split.listen(0, 0)
  t.same(
    split.listeners.all.map(({ port }) => port),
    [both.port, both.control!.port],
  )
  t.equal((await fetch(`${both.url}/a`)).status, 200)
  t.equal((await fetch(`${both.control!.url}/a`)).status, 404)
  await split.listeners.close(100)
  t.equal(split.lifecycle.draining, true)
  for (const { url } of [both, both.control!]) await t.rejects(fetch(url))
})

t.test('[http/public.26] a port that is taken says whose it is, and another may be tried', async t => {
  const taken = await makeListeners(t, false).listen(0, null)
  const { listeners, listen } = makeListeners(t, true)
  const busyControl = await listen(0, taken.port).catch(error => error)
  t.ok(busyControl instanceof ListenError)
  t.match(busyControl, { code: 'EADDRINUSE', port: taken.port, message: /--control-port$/ })
  const busy = await listen(taken.port, 0).catch(error => error)
  t.match(busy, { code: 'EADDRINUSE', port: taken.port, message: /--port$/ })
  const [kept] = listeners.all
  const good = await listen(0, 0)
  t.same(good.control, kept, 'the socket of the control plane is kept')
})

async function serve(t: Test, options: GatewayOptions = {}) {
  const tree = makeTree({ 'hello.js': 'export const handler = () => "hi"\n', 'public/_fn/health': 'file' })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, env: process.env, port: 0, ...options })
  t.teardown(() => gateway.close())
  return gateway
}

t.test('[control/access.9, http/openapi.5] the control plane on an origin of its own', async t => {
  const gateway = await serve(t, { controlPort: 0, openapiIncludeInternal: true })
  const { url, control } = await gateway.listen()
  for (const path of ['/_fn/health', '/_fn', '/%5Ffn/health', '/console', '//_fn/catalog', '/_fn%2Fhealth']) {
    const answer = await fetch(url + path)
    t.equal(answer.status, 404, path)
    t.same(await answer.json(), { error: 'not found' }, path)
    t.equal((await gateway.inject(path)).status, 404, `inject ${path}`)
  }
  t.equal((await fetch(`${url}/_fn/reload`, { method: 'POST' })).status, 404)
  t.equal((await fetch(`${control!.url}/_fn/health`)).status, 200)
  t.equal((await fetch(`${control!.url}/_fn/reload`, { method: 'POST' })).status, 200)
  for (const path of ['/hello', '/', '/openapi.json'])
    t.equal((await fetch(control!.url + path)).status, 404, `${path} is not there`)
  t.equal((await fetch(`${url}/hello`)).status, 200)
  const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as { paths: object }
  t.same(Object.keys(paths), ['/hello'], 'what is elsewhere is not in this document')
  // A page of a function calls the control plane: a browser says where the page came from.
  const fromPage = await fetch(`${control!.url}/_fn/reload`, {
    method: 'POST',
    headers: { Origin: url, 'X-Fngw-Request': '1' },
  })
  t.equal(fromPage.status, 403)
  await gateway.close()
  for (const base of [url, control!.url]) await t.rejects(fetch(base))
})
