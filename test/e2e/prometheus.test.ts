/** The dashboard and the alerts of examples/deploy against a real Prometheus that reads a real gateway. */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse, stringify } from 'yaml'
import { readDocBlocks } from '../docs/blocks.ts'
import { isInstalled } from '../docs/checks.ts'
import { readPage } from '../docs/pages.ts'
import { startCli } from '../helpers/cli.ts'
import { freePort, startProgram } from '../helpers/program.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(120_000)

const DEPLOY = fileURLToPath(new URL('../../examples/deploy', import.meta.url))
const ALERTS = `${DEPLOY}/prometheus/alerts.yaml`

interface Rule {
  alert: string
  expr: string
}

interface Sample {
  metric: Record<string, string>
  value: [time: number, value: string]
}

const skip = isInstalled('prometheus') && isInstalled('promtool') ? false : 'prometheus is not installed'

t.test('[docs.19] Prometheus gets data for each query of the dashboard and of the alerts', { skip }, async t => {
  const folder = makeTree({
    'functions/ok.js': 'export const handler = () => 1',
    'functions/fails.js': 'export const handler = () => { throw new Error("no") }',
    // One call runs, one waits, and further ones are refused.
    'functions/slow/get.js': 'export const handler = () => new Promise(done => setTimeout(done, 20, 1))',
    'functions/slow/fn.config.json':
      '{ "worker_pool": { "max_workers": 1, "max_queue": 1, "queue_timeout_ms": 5000 } }',
  })
  t.teardown(folder.cleanup)
  const gateway = await startCli(['run', 'functions', '--port', '0', '--no-access-log'], { cwd: folder.root })
  t.teardown(async () => {
    gateway.child.kill('SIGTERM')
    await gateway.ended
  })
  const call = (name: string): Promise<string> => fetch(`${gateway.url}/${name}`).then(response => response.text())
  const callAll = (): Promise<unknown> => Promise.all(['ok', 'fails', 'slow', 'slow', 'slow', 'slow'].map(call))
  await callAll()

  const metrics = await fetch(`${gateway.url}/_fn/metrics`).then(response => response.text())
  const checked = spawnSync('promtool', ['check', 'metrics'], { input: metrics, encoding: 'utf8' })
  t.equal(checked.status, 0, checked.stderr)
  t.equal(checked.stderr, '', 'metrics without remarks')
  const rules = spawnSync('promtool', ['check', 'rules', ALERTS], { encoding: 'utf8' })
  t.equal(rules.status, 0, rules.stderr)

  const port = await freePort()
  const shown = readDocBlocks(readPage('docs/observability.md')).find(({ language }) => language === 'yaml')!.text
  const { scrape_configs } = parse(shown.replace('127.0.0.1:8080', new URL(gateway.url).host))
  folder.write({
    'prometheus.yml': stringify({
      scrape_configs,
      global: { scrape_interval: '500ms', evaluation_interval: '500ms' },
      rule_files: [ALERTS],
    }),
  })
  await startProgram(
    t,
    [
      'prometheus',
      '--config.file=prometheus.yml',
      '--storage.tsdb.path=data',
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ],
    { port, cwd: folder.root },
  )

  const ask = async (path: string, query: Record<string, string> = {}): Promise<unknown> => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/${path}?${new URLSearchParams(query)}`)
    const { status, data, error } = (await response.json()) as { status: string; data: unknown; error?: string }
    if (status === 'error') throw new Error(`${query.query}: ${error}`)
    return data
  }
  const hasData = async (query: string): Promise<boolean> => {
    const { result } = (await ask('query', { query })) as { result: Sample[] }
    return result.some(({ value }) => Number.isFinite(Number(value[1])))
  }
  for (const [name, query] of listQueries()) {
    await t.test(name, async t => {
      // Rates need calls between two scrapes.
      await until(async () => {
        await callAll()
        return hasData(query)
      }, 30_000)
      t.pass(query)
    })
  }

  await t.test('refused calls fire their alert', async t => {
    let firing: string[] = []
    await until(async () => {
      const { alerts } = (await ask('alerts')) as { alerts: { labels: { alertname: string }; state: string }[] }
      firing = alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels.alertname)
      return firing.length > 0
    }, 30_000)
    t.same([...new Set(firing)], ['CallsRefused'])
    const { groups } = (await ask('rules')) as { groups: { rules: { name: string; health: string }[] }[] }
    for (const { name, health } of groups.flatMap(({ rules }) => rules)) t.equal(health, 'ok', name)
  })
})

/** Names and queries; of an alert without the threshold, which a healthy gateway does not exceed. */
function listQueries(): [name: string, query: string][] {
  const { panels } = JSON.parse(readFileSync(`${DEPLOY}/grafana/dashboard.json`, 'utf8')) as {
    panels: { title: string; targets: { expr: string }[] }[]
  }
  const { groups } = parse(readFileSync(ALERTS, 'utf8')) as { groups: { rules: Rule[] }[] }
  return [
    ...panels.flatMap(({ title, targets }) =>
      targets.map(({ expr }): [string, string] => [title, expr.replaceAll('$__rate_interval', '10s')]),
    ),
    ...groups
      .flatMap(({ rules }) => rules)
      .map(({ alert, expr }): [string, string] => [alert, expr.replace(/ (?:>|==) [\d.]+$/, '')]),
  ]
}
