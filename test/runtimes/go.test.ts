import { copyFileSync, mkdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import t from 'tap'
import {
  CompiledWorkers,
  checkGateway,
  checkHandedConnections,
  FIXTURES,
  makeBuilds,
  missingToolchain,
} from '../helpers/compiled.ts'
import { startDaemon } from '../helpers/worker-client.ts'

const missing = missingToolchain('go')
if (missing !== null) {
  t.plan(0, missing)
  process.exit(0)
}

// A first build on a busy machine takes a while.
t.setTimeout(180_000)

const bed = makeBuilds({})
mkdirSync(bed.tree.path('all'))
copyFileSync(`${FIXTURES}handler.go`, bed.tree.path('all/handler.go'))
const daemon = await startDaemon('go', { root: bed.tree.root, env: { FNGW_WORKER_MEMORY_MB: '128' } })
t.teardown(async () => {
  await daemon.close()
  await bed.close()
})
const all = bed.fn('all/handler.go')
const workers = new CompiledWorkers(daemon, {
  root: bed.tree.root,
  dir: all.fnDir,
  entry: all.entryPath,
  binary: (await bed.builds.prepare(all))!,
})

t.test('[runtimes/go.6] event', t => workers.event(t))
t.test('[runtimes/go.7] envelopes', t => workers.envelopes(t))
t.test('[runtimes/go.8] bodies', t => workers.bodies(t))
t.test('[runtimes/go.8] borders', t => workers.borders(t))
t.test('[runtimes/go.9] failures', t => workers.failures(t, 'all/handler.go', 127))
t.test('[runtimes/go.10] output', t => workers.output(t))
t.test('[runtimes/go.11, runtimes/go.15] turns', t => workers.turns(t))
t.test('[runtimes/go.15] pauses', t => workers.pauses(t))
t.test('[runtimes/go.15] rests', { skip: process.platform !== 'linux' && 'counts in /proc' }, t => workers.rests(t, 9))
t.test(
  '[runtimes/go.16] follows',
  { skip: (process.platform !== 'linux' || availableParallelism() < 2) && 'Linux, two processors' },
  t => workers.follows(t),
)
t.test('[runtimes/go.12] endings', t => workers.endings(t))
t.test('[runtimes/go.13] protocol', async t => {
  await workers.protocol(t)
  const start = { dir: all.fnDir, entry: all.entryPath }
  await t.rejects(daemon.startWorker(start), { message: 'start names no binary of the go function' })
})

const toSource = (text: string) =>
  `package hello\n\nfunc handler(event map[string]any) map[string]any {\n\treturn map[string]any{"status": 200, "body": "${text}"}\n}\n`

t.test(
  '[runtimes/go.14, dependencies/resolve.6, dependencies/resolve.7, dependencies/resolve.8] through a gateway',
  t => checkGateway(t, 'go', toSource),
)

t.test(
  '[runtime/ready-workers.3, runtime/ready-workers.9] a first call goes to the connection that waited',
  { skip: process.platform !== 'linux' && 'processes in /proc' },
  t => checkHandedConnections(t, 'go', toSource),
)
