import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { ApiClient } from '../../bin/api-client.ts'
import { type HealthFlags, runHealth } from '../../bin/health-command.ts'
import type { Output } from '../../bin/output.ts'
import { runCli, startCli } from '../helpers/cli.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

/** What the command ends with and prints. */
async function health(url: string, flags: HealthFlags) {
  const printed: string[] = []
  const noted: string[] = []
  const output = {
    result: (line: string) => printed.push(line),
    note: (line: string) => noted.push(line),
    clean: (text: string) => text,
  } as unknown as Output
  const code = await runHealth(flags, new ApiClient({ url, token: null }), output)
  return { code, printed, noted }
}

/** A server that answers as told, in turn; the last answer stays. */
async function answering(t: Test, ...answers: readonly [status: number, body: unknown][]) {
  const asked: string[] = []
  const server = createServer((req, res) => {
    const [status, body] = answers[Math.min(asked.push(req.url!), answers.length) - 1]!
    // Nothing at all is what a gateway that hangs says.
    if (status > 0) res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
  })
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { asked, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

t.test('[bin/health.1] a gateway that is well, and one with a runtime down', async t => {
  const well = await serveTree(t, { 'hello.lua': 'function handler() return 1 end\n' }, { runtimes: ['lua'] })
  t.same(await health(well.url, {}), { code: 0, printed: ['healthy'], noted: [] })
  t.same(await health(well.url, { ready: true }), { code: 0, printed: ['ready'], noted: [] })
  t.same(await health(well.url, { live: true }), { code: 0, printed: ['live'], noted: [] })
  const { printed } = await health(well.url, { ready: true, json: true })
  t.same(JSON.parse(printed.join('\n')), { ready: true })
  await t.rejects(health(well.url, { ready: true, live: true }), { message: /not both/, exitCode: 2 })

  const missing = { runtimes: ['php' as const], binaries: { php: '/nowhere/php' } }
  const ill = await serveTree(t, { 'hello.php': '<?php function handler() { return 1; }\n' }, missing)
  const reason = /runtime php is down: .*\/nowhere\/php/
  t.match(await health(ill.url, {}), { code: 1, printed: [], noted: [/^not healthy: /] })
  t.match(await health(ill.url, {}), { noted: [reason] })
  t.match(await health(ill.url, { ready: true }), { code: 1, printed: [], noted: [/^not ready: /] })
  t.match(await health(ill.url, { ready: true }), { noted: [reason] })
  t.equal((await health(ill.url, { live: true })).code, 0)
})

t.test('[bin/health.1, bin/health.3] as a program: exit codes and addresses', async t => {
  const cwd = t.testdir({ 'hello.lua': 'function handler() return 1 end\n' })
  const { url, child } = await startCli(['run', '--port', '0'], { cwd, env: { FN_RUNTIMES: 'lua' } })
  t.teardown(() => void child.kill('SIGKILL'))
  const { port } = new URL(url)
  const byPort = runCli(['health', '--ready'], { cwd, env: { PORT: port, FN_HOST: '0.0.0.0' } })
  t.same([byPort.status, byPort.stdout, byPort.stderr], [0, 'ready\n', ''])
  const nobody = runCli(['health', '--port', '1'], { cwd })
  t.equal(nobody.status, 1)
  t.match(nobody.stderr, /no gateway answers at http:\/\/127\.0\.0\.1:1/)
  t.equal(runCli(['health', '--wait', 'soon'], { cwd }).status, 2)
})

t.test('[bin/health.2] it waits until the answer is yes, or the time is over', async t => {
  const no = { ready: false, reasons: ['the gateway is starting'] }
  const later = await answering(t, [503, no], [503, no], [200, { ready: true }])
  t.same(await health(later.url, { ready: true, wait: '60' }), { code: 0, printed: ['ready'], noted: [] })
  t.same(later.asked, Array(3).fill('/_fn/health?ready=1'))
  const never = await answering(t, [503, no])
  t.match(await health(never.url, { ready: true, wait: '0.3' }), {
    code: 1,
    noted: ['not ready: the gateway is starting'],
  })
  t.ok(never.asked.length >= 2, `${never.asked.length} questions`)
  await t.rejects(health('http://127.0.0.1:1', { wait: '0.2' }), { message: /no gateway answers/, exitCode: 1 })
})

t.test('[bin/health.3] what is no answer of a gateway', async t => {
  const silent = await answering(t, [0, null])
  await t.rejects(health(silent.url, { timeout: '0.05' }), { message: /does not answer within 0\.05 s/, exitCode: 1 })
  for (const [status, body] of [
    [200, { ok: true }],
    [200, 'fine'],
    [404, { error: 'not found' }],
  ] as const) {
    const other = await answering(t, [status, body])
    await t.rejects(health(other.url, {}), { exitCode: 1, message: new RegExp(other.url) }, JSON.stringify(body))
  }
  const odd = await answering(t, [503, { runtimes: {} }])
  t.same((await health(odd.url, {})).noted, ['not healthy: the gateway is stopping'])
})
