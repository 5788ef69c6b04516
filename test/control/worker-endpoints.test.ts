import { readFileSync } from 'node:fs'
import t from 'tap'
import { createWorkerEndpoints } from '../../lib/control/worker-endpoints.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { serveEndpoints, toContext } from '../helpers/control.ts'
import { makeFn } from '../helpers/fn.ts'
import { handlerFile, RUNTIMES, serveTree } from '../helpers/gateway-bed.ts'

interface Shown {
  runtimes: Record<string, { daemons: Record<string, unknown>[]; workers: Record<string, unknown>[] }>
  gateway: Record<string, unknown>
}

const HANDLERS: Readonly<Record<string, string>> = {
  node: 'exports.handler = () => ({ pid: process.pid })\n',
  python: 'import os\ndef handler(event):\n    return {"pid": os.getpid()}\n',
  php: '<?php function handler($event) { return ["pid" => getmypid()]; }\n',
  lua: 'function handler() return { pid = 0 } end\n',
}

/** Process group of a process. */
function groupOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')[2])
}

t.test(
  '[control/workers.1, control/workers.2, control/workers.3, control/workers.4] daemons and workers of each language',
  async t => {
    const tree = Object.fromEntries(RUNTIMES.map(name => [`f-${name}/${handlerFile(name)}`, HANDLERS[name]!]))
    const { gateway, until } = await serveTree(t, tree, { runtimes: RUNTIMES, consoleLocalOnly: false })
    const read = async () => (await gateway.inject('/_fn/workers')).json() as Shown
    const begun = Date.now() / 1000
    for (const name of RUNTIMES) {
      const answer = await gateway.inject(`/f-${name}`)
      t.equal(answer.status, 200, `${name}: ${answer.body}`)
      const { pid } = answer.json() as { pid: number }
      await gateway.inject(`/f-${name}`)
      const { daemons, workers } = (await read()).runtimes[name]!
      const own = workers.filter(({ key }) => key === `${name}/f-${name}@default`)
      const isThread = name === 'lua'
      t.equal(own.length, 1, name)
      t.match(own[0], { socket: 1, state: 'idle', inflight: 0, calls: 2 })
      if (process.platform === 'linux') t.equal(own[0]!.pid, isThread ? null : groupOf(pid), name)
      const { started_at, memory_bytes } = own[0] as { started_at: number; memory_bytes: number | null }
      t.ok(started_at > begun - 60 && started_at < Date.now() / 1000 + 5, `${started_at}`)
      if (process.platform === 'linux') t.equal(memory_bytes === null, isThread, `${name}: ${memory_bytes}`)
      if (isThread) t.same(daemons, [])
      else
        t.match(daemons, [
          { index: 1, uri: /^unix:/, up: true, reason: 'ok', pid: Number, restarts: 0, started_at: Number },
        ])
    }
    const [name] = RUNTIMES.filter(one => one !== 'lua')
    const before = (await read()).runtimes[name!]!.daemons[0]!
    process.kill(before.pid as number, 'SIGKILL')
    let after = before
    await until(() => {
      void read().then(shown => {
        after = shown.runtimes[name!]!.daemons[0]!
      })
      return after.restarts === 1
    }, 'the daemon is there again')
    t.match(after, { up: true, restarts: 1 })
    t.not(after.pid, before.pid)
    const { gateway: own } = await read()
    t.match(own, { pid: process.pid, version: process.version, event_loop: { active_ms: Number, idle_ms: Number } })
    t.ok((own.memory_bytes as number) > (own.heap_bytes as number))
    const stranger = await gateway.inject({ url: '/_fn/workers', remoteAddress: '203.0.113.9' })
    t.equal(stranger.status, 403)
  },
)

t.test(
  '[control/workers.1, control/workers.3, control/workers.6] a daemon of somebody else has no process here, a function its decision',
  async t => {
    const daemon = {
      health: () => ({ index: 1, uri: 'tcp://10.0.0.1:9000', up: false, reason: 'refused' }),
      facts: { pid: null, restarts: 3, upSince: null },
    }
    const runtimes = new Map([['node', { health: () => null as never, daemons: [daemon] }]] as const)
    const ask = serveEndpoints(
      t,
      createWorkerEndpoints(
        toContext({
          clock: systemClock,
          runtimes,
          dispatcher: {
            workers: function* () {},
            lentWorkers: [],
            growth: () => [{ fn: makeFn({ runtime: 'node' }), growth: { decision: 'computing', processors: 2 } }],
          },
          processes: () => null,
        }),
      ),
    )
    t.match((await ask({ url: '/_fn/workers' })).json(), {
      runtimes: {
        node: {
          daemons: [
            {
              uri: 'tcp://10.0.0.1:9000',
              up: false,
              reason: 'refused',
              pid: null,
              restarts: 3,
              started_at: null,
              memory_bytes: null,
            },
          ],
          workers: [],
          growth: [{ key: 'node/hello@default', decision: 'computing', processors: 2 }],
        },
      },
    })
  },
)
