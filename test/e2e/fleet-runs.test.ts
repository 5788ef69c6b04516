import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import { startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'
import { killGateway, startGateway } from '../kills/jobs.ts'

const COUNT = 16
/** Notes its runs in its tree, and ends them when the file `go` is there. */
const HANDLER = `const { appendFileSync, existsSync } = require('node:fs')
exports.handler = async ({ context }) => {
  const say = what => appendFileSync(__dirname + '/../runs.txt', [what, __dirname.split('/').at(-1), context.trigger.attempt].join(' ') + '\\n')
  say('begin')
  while (!existsSync(__dirname + '/../go')) await new Promise(resolve => setTimeout(resolve, 20))
  say('end')
  return { status: 200 }
}`
const CONFIG = {
  timeout_ms: 120_000,
  schedule: { every_seconds: 1, retry: { max_attempts: 2, base_delay_seconds: 0.1 } },
}

t.test(
  '[fleet/fleet-runs.1, fleet/fleet-runs.4, fleet/schedule-lease.1] the leader is killed during runs of both gateways: its own are interrupted and retried, the others end once',
  { skip: WITHOUT_REDIS },
  async t => {
    const redis = await startRedis(t)
    const names = Array.from({ length: COUNT }, (_, i) => `f${i}`)
    const start = async () => {
      const tree = makeTree(Object.fromEntries(names.map(name => [`${name}/handler.js`, HANDLER])))
      t.teardown(tree.cleanup)
      const gateway = await startGateway(tree.root, { env: { FN_STORE_URL: redis.url, FN_RELEASE: 'r1' } })
      t.teardown(() => killGateway(gateway))
      const schedule = async () => {
        tree.write(Object.fromEntries(names.map(name => [`${name}/fn.config.json`, { json: CONFIG }])))
        t.equal((await fetch(`${gateway.url}/_fn/reload`, { method: 'POST' })).status, 200)
      }
      /** What it did of a schedule. */
      const runs = (name: string): string[] => {
        const file = tree.path('runs.txt')
        const lines = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
        return lines.flatMap(line => (line.split(' ')[1] === name ? line.replace(` ${name}`, '') : []))
      }
      return { tree, gateway, schedule, runs }
    }
    const [leader, other] = [await start(), await start()]
    await other.schedule()
    await leader.schedule()
    await until(() => names.every(name => leader.runs(name).length + other.runs(name).length > 0), 20_000)
    await killGateway(leader.gateway)
    const lost = names.filter(name => leader.runs(name).length > 0)
    const kept = names.filter(name => !lost.includes(name))
    t.ok(lost.length > 0 && kept.length > 0, `${lost.length} runs at the leader, ${kept.length} at the other gateway`)
    for (const name of lost) t.same([...leader.runs(name), ...other.runs(name)], ['begin 1'])
    await until(() => lost.every(name => other.runs(name).length > 0), 60_000)
    for (const name of lost) t.same(other.runs(name), ['begin 2'], 'an interrupted run is retried')
    for (const name of kept) t.same(other.runs(name), ['begin 1'], 'followed, and not begun again')
    other.tree.write({ go: '' })
    await until(() => names.every(name => other.runs(name).length > 2), 20_000)
    for (const name of kept) t.same(other.runs(name).slice(0, 3), ['begin 1', 'end 1', 'begin 1'], 'it has not failed')
  },
)
