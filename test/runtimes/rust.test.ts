import { copyFileSync, mkdirSync } from 'node:fs'
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

const missing = missingToolchain('rust')
if (missing !== null) {
  t.plan(0, missing)
  process.exit(0)
}

// A first build on a busy machine takes a while.
t.setTimeout(180_000)

const bed = makeBuilds({})
mkdirSync(bed.tree.path('all'))
copyFileSync(`${FIXTURES}handler.rs`, bed.tree.path('all/handler.rs'))
const daemon = await startDaemon('rust', { root: bed.tree.root, env: { FNGW_WORKER_MEMORY_MB: '128' } })
t.teardown(async () => {
  await daemon.close()
  await bed.close()
})
const all = bed.fn('all/handler.rs')
const workers = new CompiledWorkers(daemon, {
  root: bed.tree.root,
  dir: all.fnDir,
  entry: all.entryPath,
  binary: (await bed.builds.prepare(all))!,
})

t.test('[runtimes/rust.5] event', t => workers.event(t))
t.test('[runtimes/rust.6] envelopes', t => workers.envelopes(t))
t.test('[runtimes/rust.7] bodies', t => workers.bodies(t))
t.test('[runtimes/rust.7] borders', t => workers.borders(t))
t.test('[runtimes/rust.8] failures', t => workers.failures(t, 'all/handler.rs', 98))
t.test('[runtimes/rust.9] output', t => workers.output(t))
t.test('[runtimes/rust.10, runtimes/rust.14] turns', t => workers.turns(t))
t.test('[runtimes/rust.14] pauses', t => workers.pauses(t))
t.test('[runtimes/rust.14] rests', { skip: process.platform !== 'linux' && 'counts in /proc' }, t =>
  workers.rests(t, 3.4),
)
t.test('[runtimes/rust.11] endings', t => workers.endings(t))
t.test('[runtimes/rust.12] protocol', t => workers.protocol(t))

const toSource = (text: string) =>
  `use serde_json::{json, Value};\n\npub fn handler(_event: Value) -> Value {\n    json!({ "status": 200, "body": "${text}" })\n}\n`

t.test(
  '[runtimes/rust.13, dependencies/resolve.6, dependencies/resolve.7, dependencies/resolve.8] through a gateway',
  t => checkGateway(t, 'rust', toSource),
)

t.test(
  '[runtime/ready-workers.3, runtime/ready-workers.9] a first call goes to the connection that waited',
  { skip: process.platform !== 'linux' && 'processes in /proc' },
  t => checkHandedConnections(t, 'rust', toSource),
)
