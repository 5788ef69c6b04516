import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import net from 'node:net'
import t from 'tap'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FIXTURES, makeBuilds, missingToolchain } from '../helpers/compiled.ts'
import { FrameClient, startDaemon, until } from '../helpers/worker-client.ts'
import { CompiledWorkers, checkGateway, checkHandedConnections } from './compiled-workers.ts'

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
const binary = (await bed.builds.prepare(all))!
const workers = new CompiledWorkers(daemon, {
  root: bed.tree.root,
  dir: all.fnDir,
  entry: all.entryPath,
  binary,
})

t.test('[runtimes/rust.5] event', t => workers.event(t))
t.test('[runtimes/rust.6] envelopes', t => workers.envelopes(t))
t.test('[runtimes/rust.7] bodies', t => workers.bodies(t))
t.test('[runtimes/rust.7, runtimes/rust.16] base64', t => workers.base64(t))
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

t.test(
  '[runtimes/rust.15] the first call waits for no other thread, and a program that was handed its connection ends with its daemon',
  { skip: process.platform !== 'linux' && 'threads in /proc' },
  async t => {
    const uri = bed.tree.path('handed')
    const server = net.createServer({ pauseOnConnect: true }).listen(uri)
    t.teardown(() => server.close())
    const accepted = once(server, 'connection')
    const client = new FrameClient(uri)
    const [connection] = (await accepted) as [net.Socket]
    const program = spawn(binary, ['--socket', 'fd:4'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', connection] })
    t.teardown(() => program.kill('SIGKILL'))
    connection.destroy()
    client.send(KIND.hello, 0, { role: 'worker' }, Buffer.from([1]))
    client.send(KIND.start, 0, { dir: all.fnDir, root: bed.tree.root, adapter: 'native' })
    client.send(KIND.call, 7, { headers: { 'x-do': 'args' } })
    t.match(await client.wait(({ id }) => id === 7), { kind: KIND.reply })
    const folder = `/proc/${program.pid}/task`
    const threads = () => readdirSync(folder).map(id => readFileSync(`${folder}/${id}/comm`, 'utf8').trim())
    // The one that calls run on, the one that watches it, and the one that follows output and the daemon.
    await until(() => threads().length === 3, 60_000)
    t.notOk(threads().includes('call'), 'the first thread has run it')
    const ended = once(program, 'exit')
    program.stdio[3]?.destroy()
    t.strictSame(await ended, [0, null])
    await client.closed
  },
)
