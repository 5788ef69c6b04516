import { spawnSync } from 'node:child_process'
import t from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { listProcesses } from '../helpers/processes.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(180_000)

const KINDS = [
  { folder: 'py', file: 'handler.py', text: 'def handler(event):\n    return event["path"]\n', count: 300 },
  {
    folder: 'php8',
    file: 'handler.php',
    text: '<?php\nfunction handler($event) { return $event["path"]; }\n',
    count: 150,
  },
  { folder: 'lua5', file: 'handler.lua', text: 'function handler(event) return event.path end\n', count: 25 },
  { folder: 'js', file: 'handler.js', text: 'export const handler = event => event.path\n', count: 25 },
]
const TOTAL = KINDS.reduce((sum, { count }) => sum + count, 0)
/** Daemons, spares that wait for a first call, the worker that is kept, and helpers of these. */
const IDLE_PROCESSES = 12
/** Calls at once. */
const CALLERS = 4

interface State {
  name: string
  workers: number
}

const statesOf = (gateway: Gateway): State[] =>
  (gateway.health() as { functions: { states: State[] } }).functions.states
const workersOf = (gateway: Gateway): number => statesOf(gateway).reduce((sum, { workers }) => sum + workers, 0)

t.test(
  '[runtime/worker-set.13] 500 functions need few processes: none before a call, none after the idle time',
  async t => {
    const entries: Record<string, TreeEntry> = {
      'fn.config.json': {
        json: { worker_pool: { idle_ttl_seconds: 0, max_queue: 100, queue_timeout_ms: 20_000 }, timeout_ms: 20_000 },
      },
      // One keeps its worker for the usual time.
      'kept/handler.py': KINDS[0]!.text,
      'kept/fn.config.json': { json: { worker_pool: { idle_ttl_seconds: 300 } } },
    }
    const paths: string[] = ['/kept']
    const isMissing = spawnSync('php', ['--version']).status !== 0
    for (const { folder, file, text, count } of KINDS) {
      for (let i = 0; i < count; i++) {
        // Without php there are 500 all the same.
        const [to, name, content] =
          isMissing && folder === 'php8' ? ['py', 'handler.py', KINDS[0]!.text] : [folder, file, text]
        entries[`${to}/${folder}-${i}/${name}`] = content
        paths.push(`/${to}/${folder}-${i}`)
      }
    }
    const tree = makeTree(entries)
    const gateway = await createGateway({ functionsRoot: tree.root })
    t.teardown(async () => {
      await gateway.close({ timeoutMs: 1000 })
      tree.cleanup()
    })
    t.equal(statesOf(gateway).length, TOTAL + 1)
    t.equal(workersOf(gateway), 0, 'none was called, none has a worker')
    const idle = listProcesses().length
    t.ok(idle <= IDLE_PROCESSES, `${idle} processes`)
    let most = 0
    const queue = [...paths]
    const call = async (): Promise<void> => {
      for (let path = queue.pop(); path !== undefined; path = queue.pop()) {
        const answer = await gateway.inject(path)
        if (answer.status !== 200 || answer.json() !== path) t.fail(`${path}: ${answer.status} ${answer.text()}`)
        most = Math.max(most, workersOf(gateway))
      }
    }
    await Promise.all(Array.from({ length: CALLERS }, call))
    t.ok(most < 100, `${most} workers at most while ${TOTAL} functions were called`)
    await until(() => workersOf(gateway) <= 1)
    t.same(
      statesOf(gateway)
        .filter(({ workers }) => workers > 0)
        .map(({ name }) => name),
      ['kept'],
      'the idle time is each function’s own',
    )
    await until(() => listProcesses().length <= IDLE_PROCESSES)
    t.equal((await gateway.inject('/kept')).status, 200)
    t.equal(workersOf(gateway), 1, 'by the worker that was kept')
    t.equal((await gateway.inject(paths.at(-1)!)).status, 200, 'one whose worker ended is served again')
  },
)
