import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { FNGW, toEnv } from '../helpers/cli.ts'
import { WITHOUT_REDIS } from '../helpers/redis.ts'

t.setTimeout(120_000)

const SCRIPT = fileURLToPath(new URL('../../build/demo-fleet.mjs', import.meta.url))

function startDemo(env: Record<string, string>): ChildProcess {
  return spawn(process.execPath, [SCRIPT, ...FNGW], { env: toEnv(env), stdio: ['ignore', 'pipe', 'pipe'] })
}

t.test('[docs.7] without redis-server the demo says how to install it', async t => {
  const child = startDemo({ PATH: '/nonexistent' })
  let text = ''
  child.stderr!.on('data', chunk => (text += chunk))
  const [code] = await once(child, 'close')
  t.equal(code, 1)
  t.match(text, /demo:fleet needs redis-server.*apt install redis-server/)
})

t.test('[docs.7] the demo runs three gateways, and Ctrl-C ends everything', { skip: WITHOUT_REDIS }, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-demo-test-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const child = startDemo({ TMPDIR: folder })
  t.teardown(() => child.kill('SIGTERM'))
  let text = ''
  for await (const chunk of child.stdout!.iterator({ destroyOnReturn: false })) {
    text += chunk
    if (text.includes('Press Ctrl-C')) break
  }
  child.stdout!.resume()
  const url = /Load balancer {2}(\S+)/.exec(text)![1]!
  const pids = [...text.matchAll(/^Gateway .* pid (\d+)$/gm)].map(([, pid]) => Number(pid))
  t.equal(pids.length, 3)

  const gateways = new Set<string | null>()
  for (let i = 0; i < 3; i++) {
    const response = await fetch(`${url}/shipping?kg=3`)
    t.same(await response.json(), { kg: 3, cents: 850 })
    gateways.add(response.headers.get('x-demo-gateway'))
  }
  t.equal(gateways.size, 3, 'each request goes to the next gateway')

  const job = /-d '(\{.*\})'/.exec(text)![1]!
  const headers = { 'X-Fngw-Request': '1', 'Content-Type': 'application/json' }
  const created = await fetch(`${url}/_fn/jobs`, { method: 'POST', headers, body: job })
  const { id } = (await created.json()) as { id: string }
  for (const [, gateway] of text.matchAll(/^Gateway +(\S+)/gm)) {
    const { jobs } = (await (await fetch(`${gateway}/_fn/jobs`)).json()) as { jobs: { id: string }[] }
    t.same(
      jobs.map(one => one.id),
      [id],
      'each gateway lists the job',
    )
  }

  process.kill(pids[0]!, 'SIGKILL')
  for (let i = 0; i < 3; i++)
    t.equal((await fetch(`${url}/shipping?kg=3`)).status, 200, 'a killed gateway is passed over')

  child.kill('SIGINT')
  const [code] = await once(child, 'exit')
  t.equal(code, 0)
  for (const pid of pids) t.throws(() => process.kill(pid, 0), { code: 'ESRCH' })
  t.same(
    readdirSync(folder).filter(name => name.startsWith('fngw-demo-')),
    [],
  )
})
