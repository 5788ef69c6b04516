import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import { availableParallelism } from 'node:os'
import t, { type Test } from 'tap'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FIXTURES, makeBuilds, missingToolchain } from '../helpers/compiled.ts'
import { FrameClient, startDaemon } from '../helpers/worker-client.ts'
import { CompiledWorkers, checkGateway, checkHandedConnections } from './compiled-workers.ts'

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
const binary = (await bed.builds.prepare(all))!
const workers = new CompiledWorkers(daemon, {
  root: bed.tree.root,
  dir: all.fnDir,
  entry: all.entryPath,
  binary,
})

t.test('[runtimes/go.6] event', t => workers.event(t))
t.test('[runtimes/go.7] envelopes', t => workers.envelopes(t))
t.test('[runtimes/go.8] bodies', t => workers.bodies(t))
t.test('[runtimes/go.8, runtimes/go.18] base64', t => workers.base64(t))
t.test('[runtimes/go.18] what a handler keeps of a call stays as it is', async t => {
  bed.tree.write({
    'keeps/handler.go': `package keeps

var kept []any

func handler(event map[string]any) any {
	if event["body"] == "all" {
		return map[string]any{"status": 200, "body": kept}
	}
	kept = append(kept, event["body"], event["body_base64"])
	return map[string]any{"status": 200, "is_base64": event["is_base64"], "body_base64": event["body_base64"]}
}
`,
  })
  const fn = bed.fn('keeps/handler.go')
  const program = (await bed.builds.prepare(fn))!
  const worker = await daemon.worker({ dir: fn.fnDir, root: bed.tree.root, entry: fn.entryPath, binary: program })
  const bodies = [...'abcdefgh'].map((char, at) => Buffer.alloc(100_000, at % 2 === 0 ? char : `\xff${char}`, 'latin1'))
  for (const body of bodies) await worker.call({}, body)
  t.ok(
    (await worker.call({}, Buffer.from('all'))).text ===
      JSON.stringify(
        bodies.flatMap((body, at) => (at % 2 === 0 ? [String(body), null] : [null, body.toString('base64')])),
      ),
  )
  await worker.close()
})
t.test('[runtimes/go.8] borders', t => workers.borders(t))
t.test('[runtimes/go.9] failures', t => workers.failures(t, 'all/handler.go', 126))
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

/** A program that was handed its connection, on which everything up to its first call is there when it begins. */
async function handed(t: Test, program: string, call: object) {
  const uri = bed.tree.path('handed')
  const server = net.createServer({ pauseOnConnect: true }).listen(uri)
  const accepted = once(server, 'connection')
  const client = new FrameClient(uri)
  const [connection] = (await accepted) as [net.Socket]
  server.close()
  client.send(KIND.hello, 0, { role: 'worker' }, Buffer.from([1]))
  client.send(KIND.start, 0, { dir: all.fnDir, root: bed.tree.root, entry: all.entryPath, adapter: 'native' })
  client.send(KIND.call, 7, call)
  const child = spawn(program, ['--socket', 'fd:4'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', connection] })
  t.teardown(() => child.kill('SIGKILL'))
  connection.destroy()
  return { client, child, ended: once(child, 'exit') }
}

t.test(
  '[runtimes/go.17] a first call is answered with `ready`, and what it does not need begins behind it',
  async t => {
    const { client, child, ended } = await handed(t, binary, { headers: { 'x-do': 'args' } })
    t.match(await client.wait(({ id }) => id === 7), { kind: KIND.reply })
    t.match(client.frames, [{ kind: KIND.ready, header: { max_inflight: 0 } }])
    child.stdio[3]?.destroy()
    t.strictSame(await ended, [0, null], 'it ends with its daemon')
    await client.closed
  },
)

t.test('[runtimes/go.17] a first call that takes a moment holds nothing up', async t => {
  const query = { file: bed.tree.path('there') }
  const { client, child, ended } = await handed(t, binary, { headers: { 'x-do': 'until' }, query })
  await client.wait(({ kind }) => kind === KIND.ready)
  t.notOk(client.frames.some(({ id }) => id === 7))
  client.send(KIND.call, 8, { headers: { 'x-do': 'touch' }, query })
  t.match(await client.wait(({ id }) => id === 8), { kind: KIND.reply })
  t.match(await client.wait(({ id }) => id === 7), { kind: KIND.reply })
  child.stdio[3]?.destroy()
  await ended
})

const OUTPUT = `package hello

import (
	"os"
	"strings"
	"syscall"
)

func init() {
	// More than a pipe holds.
	for i := 0; i < 200; i++ {
		syscall.Write(1, []byte(strings.Repeat("x", 1024)))
	}
}

func handler(event any) any {
	syscall.Write(1, []byte("last words"))
	os.Exit(3)
	return nil
}
`

t.test('[runtimes/go.10, runtimes/go.17] what a package and a first call write to descriptors', async t => {
  mkdirSync(bed.tree.path('output'))
  writeFileSync(bed.tree.path('output/handler.go'), OUTPUT)
  const program = (await bed.builds.prepare(bed.fn('output/handler.go')))!
  const { client, ended } = await handed(t, program, {})
  t.strictSame(await ended, [3, null], 'nothing waits for somebody who reads')
  const log = await client.wait(({ kind }) => kind === KIND.log)
  t.match({ id: log.id, text: log.body.toString() }, { id: 7, text: 'last words' })
})
