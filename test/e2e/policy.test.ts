import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import t from 'tap'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { handlerFile, RUNTIMES, serveTree } from '../helpers/gateway-bed.ts'
import type { TreeEntry } from '../helpers/tree.ts'

t.setTimeout(120_000)

/**
 * Handlers that count their calls (`order`), and with `?gate=<file>` hold until the file is there. Lua reads no files:
 * there a held call keeps its thread busy for `HELD_MS`.
 */
const HELD_MS = 2500
const GATED: Partial<Record<RuntimeName, string>> = {
  node: `import { existsSync } from 'node:fs'
let order = 0
export const handler = async e => {
  const { gate } = e.query
  while (gate && !existsSync(gate)) await new Promise(done => setTimeout(done, 2))
  return { order: ++order, tag: e.query.tag, pid: process.pid }
}\n`,
  python: `import os, time
order = 0
def handler(e):
    global order
    gate = e["query"].get("gate")
    while gate and not os.path.exists(gate):
        time.sleep(0.002)
    order += 1
    return {"order": order, "tag": e["query"].get("tag"), "pid": os.getpid()}
`,
  php: `<?php
$order = 0;
function handler($e) {
    global $order;
    $gate = $e['query']['gate'] ?? null;
    while ($gate !== null && !file_exists($gate)) { clearstatcache(); usleep(2000); }
    return ['order' => ++$order, 'tag' => $e['query']['tag'] ?? null, 'pid' => getmypid()];
}
`,
  lua: `local order = 0
function handler(e)
  local ends = os.clock() + (e.query.gate and ${HELD_MS / 1000} or 0)
  while os.clock() < ends do end
  order = order + 1
  return { order = order, tag = e.query.tag }
end
`,
}

const keyOf = (runtime: RuntimeName, name: string): string => `${runtime}/${name}@default`

/** `<name>` in each language, with one config. */
function inEach(name: string, config: Record<string, unknown>, sources = GATED): Record<string, TreeEntry> {
  const tree: Record<string, TreeEntry> = {}
  for (const runtime of RUNTIMES) {
    tree[`${name}-${runtime}/${handlerFile(runtime)}`] = sources[runtime]!
    tree[`${name}-${runtime}/fn.config.json`] = { json: config }
  }
  return tree
}

interface Answer {
  status: number
  headers: Headers
  body: { order: number; tag: string; pid: number; error: string }
}

async function get(url: string, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(url, init)
  return { status: response.status, headers: response.headers, body: (await response.json()) as Answer['body'] }
}

t.test(
  '[invocation/worker-pool.1, invocation/worker-pool.4, invocation/worker-pool.5, invocation/worker-pool.7, invocation/worker-pool.10] one queue, first come first served, for HTTP and invoke, in every language',
  async t => {
    const pool = { max_workers: 1, max_queue: 4, queue_timeout_ms: 15_000, overflow_status: 503 }
    const tree = {
      ...inEach('f', { timeout_ms: 10_000, worker_pool: pool }),
      ...inEach('free', { timeout_ms: 10_000 }),
    }
    const bed = await serveTree(t, tree)
    const { gateway, url, until } = bed
    await Promise.all(
      RUNTIMES.map(async runtime => {
        const key = keyOf(runtime, `f-${runtime}`)
        const gate = bed.tree.path(`${runtime}.open`)
        const state = () => bed.stateOf(key).worker_pool
        const isAt = (active: number, queued: number) => () => state().active === active && state().queued === queued
        const viaHttp = (tag: string, more = '') => get(`${url}/f-${runtime}?tag=${tag}${more}`)
        const viaInvoke = async (tag: string, signal?: AbortSignal): Promise<number | undefined> => {
          const query = { tag }
          const result = await gateway.invoke(`f-${runtime}`, { query, ...(signal !== undefined && { signal }) })
          return result.status === 200 ? JSON.parse(result.body.toString()).order : result.status
        }
        // The worker starts, and Lua begins to count.
        t.equal((await viaHttp('first')).body.order, 1, runtime)
        const held = viaHttp('held', `&gate=${encodeURIComponent(gate)}`)
        await until(isAt(1, 0), `${runtime}: one runs`)
        const second = viaInvoke('second')
        await until(isAt(1, 1), `${runtime}: one waits`)
        const third = viaHttp('third')
        await until(isAt(1, 2), `${runtime}: two wait`)
        const leaving = new AbortController()
        const gone = get(`${url}/f-${runtime}?tag=gone`, { signal: leaving.signal }).catch(error => error.name)
        await until(isAt(1, 3), `${runtime}: three wait`)
        const stopping = new AbortController()
        const stopped = viaInvoke('stopped', stopping.signal)
        await until(isAt(1, 4), `${runtime}: the queue is full`)
        const refused = await viaHttp('refused')
        t.match(refused, { status: 503, body: { error: 'worker pool overflow' } }, runtime)
        t.equal(refused.headers.get('retry-after'), '1', runtime)
        t.equal(await viaInvoke('refused'), 503, `${runtime}: the other door is full too`)
        // Another function of the same language is not delayed.
        t.equal((await get(`${url}/free-${runtime}`)).body.order, 1, runtime)
        t.ok(isAt(1, 4)(), `${runtime}: all this while the first one was held`)
        leaving.abort()
        t.equal(await gone, 'AbortError')
        await until(isAt(1, 3), `${runtime}: its place is free`)
        stopping.abort()
        t.equal(await stopped, 0)
        t.ok(isAt(1, 2)(), runtime)
        const last = viaHttp('last')
        await until(isAt(1, 3), `${runtime}: and taken again`)
        writeFileSync(gate, '')
        t.equal((await held).body.order, 2, runtime)
        t.equal(await second, 3, runtime)
        t.equal((await third).body.order, 4, runtime)
        t.equal((await last).body.order, 5, `${runtime}: in order of arrival, over both doors`)
        await until(isAt(0, 0), `${runtime}: empty`)
        t.match(bed.stateOf(key), { worker_pool: { queue_drops: { overflow: 2, timeout: 0, total: 2 } } }, runtime)
      }),
    )
  },
)

t.test(
  '[invocation/worker-pool.2, invocation/worker-pool.6, invocation/worker-pool.9, invocation/worker-pool.10, http/public.20] limits, waiting times and texts',
  async t => {
    const held = { timeout_ms: 10_000 }
    const bed = await serveTree(t, {
      'plain/handler.js': GATED.node!,
      'plain/fn.config.json': { json: { ...held, max_concurrency: 1 } },
      'off/handler.js': GATED.node!,
      'off/fn.config.json': { json: { ...held, max_concurrency: 1, worker_pool: { enabled: false, max_workers: 9 } } },
      'brief/handler.js': GATED.node!,
      'brief/fn.config.json': {
        json: { ...held, worker_pool: { max_workers: 1, max_queue: 9, queue_timeout_ms: 80 } },
      },
      'never/handler.js': GATED.node!,
      'never/fn.config.json': {
        json: { ...held, worker_pool: { max_workers: 1, max_queue: 9, overflow_status: 503 } },
      },
      'grow/handler.js': GATED.node!,
      'grow/fn.config.json': {
        json: { ...held, worker_pool: { max_workers: 1, max_queue: 9, queue_timeout_ms: 9000 } },
      },
    })
    const gate = bed.tree.path('open')
    const hold = (name: string) => get(`${bed.url}/${name}?gate=${encodeURIComponent(gate)}`)
    const stateOf = (name: string) => bed.stateOf(keyOf('node', name)).worker_pool
    const names = ['plain', 'off', 'brief', 'never', 'grow']
    const running = names.map(hold)
    await bed.until(() => names.every(name => stateOf(name).active === 1), 'all are busy')
    for (const [name, status, error, waits] of [
      ['plain', 429, 'concurrency limit reached', false],
      ['off', 429, 'concurrency limit reached', false],
      ['brief', 429, 'worker pool queue timeout', true],
      ['never', 503, 'worker pool queue timeout', false],
    ] as const) {
      const startedAt = performance.now()
      const refused = await get(`${bed.url}/${name}`)
      const ms = performance.now() - startedAt
      t.match(refused, { status, body: { error } }, name)
      t.equal(refused.headers.get('retry-after'), '1', name)
      t.equal(ms >= 79, waits, `${name}: ${ms} ms`)
    }
    // Hundreds of refusals, each at once, while everything is busy.
    const startedAt = performance.now()
    const flood = await Promise.all(Array.from({ length: 300 }, () => get(`${bed.url}/plain`)))
    t.ok(flood.every(({ status }) => status === 429))
    t.ok(performance.now() - startedAt < 3000, 'within 10 ms each')
    // A reload with a higher limit lets waiting calls in; the running one stays counted.
    const waiting = [hold('grow'), hold('grow')]
    await bed.until(() => stateOf('grow').queued === 2, 'two wait')
    const wider = { ...held, worker_pool: { max_workers: 2, max_queue: 9, queue_timeout_ms: 9000 } }
    bed.tree.write({ 'grow/fn.config.json': { json: wider } })
    await bed.gateway.reload()
    t.match(stateOf('grow'), { active: 2, queued: 1, max_workers: 2 })
    writeFileSync(gate, '')
    for (const answer of await Promise.all([...running, ...waiting])) t.equal(answer.status, 200)
    await bed.until(() => names.every(name => stateOf(name).active === 0), 'all are free')
  },
)

const SOCKET = 'x-fn-runtime-socket-index'

t.test(
  '[runtime/workers.16, runtime/daemon.7, runtime/daemon.8, runtime/daemon.10, control/records.2, http/public.24] calls take the sockets in turn, also while one daemon is down',
  async t => {
    const runtimes = RUNTIMES.filter(name => name !== 'lua')
    const config = { timeout_ms: 10_000, response: { include_debug_headers: true }, worker_pool: { max_workers: 3 } }
    const counts = { node: 2, python: 3, php: 2, lua: 5 }
    const bed = await serveTree(t, inEach('f', config), { runtimeDaemons: counts })
    t.match(bed.health().runtimes.lua, { routing: 'single', sockets: { length: 1 } }, 'lua has no daemons')
    const lua = await get(`${bed.url}/f-lua`)
    t.equal(lua.headers.get('x-fn-runtime-routing'), 'single')
    await Promise.all(
      runtimes.map(async runtime => {
        const count = counts[runtime as 'node']
        const socketsOf = () => bed.health().runtimes[runtime]!.sockets
        const index = async (): Promise<number> => {
          const { status, headers } = await get(`${bed.url}/f-${runtime}`)
          t.equal(status, 200, runtime)
          t.equal(headers.get('x-fn-runtime-routing'), 'round_robin', runtime)
          return Number(headers.get(SOCKET))
        }
        const all = Array.from({ length: count }, (_, at) => at + 1)
        /** Waits until each of the sockets has had a call, so that their workers are ready. */
        const settle = async (expected: number[]): Promise<void> => {
          for (
            const seen = new Set<number>();
            seen.size < expected.length || [...seen].some(at => !expected.includes(at));
          ) {
            if (seen.size > expected.length) seen.clear()
            seen.add(await index())
          }
        }
        t.match(bed.health().runtimes[runtime], { routing: 'round_robin', health: { up: true, reason: 'ok' } }, runtime)
        t.same(
          socketsOf().map(({ index, up, reason }) => [index, up, reason]),
          all.map(at => [at, true, 'ok']),
          runtime,
        )
        await settle(all)
        const first = await index()
        const turns = [first]
        for (let i = 1; i < 2 * count; i++) turns.push(await index())
        t.same(
          turns,
          turns.map((_, i) => ((first - 1 + i) % count) + 1),
          `${runtime}: in turn`,
        )
        // A call on every socket, then the daemon of the second one is killed.
        const gate = bed.tree.path(`${runtime}.open`)
        const held = all.map(() => get(`${bed.url}/f-${runtime}?gate=${encodeURIComponent(gate)}`))
        await bed.until(
          () => bed.stateOf(keyOf(runtime, `f-${runtime}`)).worker_pool.active === count,
          `${runtime}: all busy`,
        )
        const killed = daemonPid(bed.health().runtimes[runtime]!.sockets[1]!.uri)
        process.kill(killed, 'SIGKILL')
        await bed.until(() => !socketsOf()[1]!.up, `${runtime}: seen down`)
        t.equal(bed.health().runtimes[runtime]!.health.up, true, `${runtime}: the others serve`)
        t.match(bed.health().runtimes[runtime]!.health.reason, /^1 of \d sockets down: /, runtime)
        writeFileSync(gate, '')
        const answers = await Promise.all(held)
        t.same(
          answers.map(({ status, headers }) => [status, headers.get('retry-after')]).sort(),
          [...all.slice(1).map(() => [200, null]), [503, '1']],
          `${runtime}: only the call on its worker is lost`,
        )
        t.match(answers.find(({ status }) => status === 503)?.body, {
          error: /^runtime worker ended: daemon ended by SIGKILL/,
        })
        if (!socketsOf()[1]!.up) t.not(await index(), 2, `${runtime}: nothing goes there`)
        await bed.until(() => socketsOf()[1]!.up, `${runtime}: up again`)
        await settle(all)
        t.not(daemonPid(socketsOf()[1]!.uri), killed, `${runtime}: a new process`)
      }),
    )
  },
)

/** The daemon that listens on a socket; its forks have the same command line, but another parent. */
function daemonPid(uri: string): number {
  const path = uri.slice('unix:'.length)
  const found = processesBelow(process.pid).find(({ parent, args }) => parent === process.pid && args.includes(path))
  if (found === undefined) throw new Error(`no daemon at ${uri}`)
  return found.pid
}

interface Process {
  pid: number
  parent: number
  args: string[]
}

/** All descendants of a process. */
function processesBelow(root: number): Process[] {
  const all = readdirSync('/proc').flatMap((name): Process[] => {
    if (!/^\d+$/.test(name)) return []
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
      return [{ pid: Number(name), parent, args: readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0') }]
    } catch {
      // It ended meanwhile.
      return []
    }
  })
  const childrenOf = (parent: number): Process[] =>
    all.filter(one => one.parent === parent).flatMap(one => [one, ...childrenOf(one.pid)])
  return childrenOf(root)
}

/** Says that it was loaded. */
const TALKING: Partial<Record<RuntimeName, string>> = {
  node: `console.log('loaded')\n${GATED.node}`,
  python: `print("loaded")\n${GATED.python}`,
  php: GATED.php!.replace('<?php', '<?php\necho "loaded\\n";'),
  lua: `print("loaded")\n${GATED.lua}`,
}

t.test(
  '[runtime/workers.3, runtime/workers.13, runtime/daemon.13, control/records.3] min_warm workers are there before the first call, more under load, and idle ones go',
  async t => {
    const response = { include_debug_headers: true }
    const warm = { min_warm: 2, max_workers: 4, idle_ttl_seconds: 1 }
    const tree = {
      ...inEach('w', { timeout_ms: 10_000, response, worker_pool: warm }, TALKING),
      ...inEach('c', { timeout_ms: 10_000, response, worker_pool: { max_workers: 4, idle_ttl_seconds: 1 } }),
    }
    const loaded = new Map<string, number>()
    const bed = await serveTree(t, {})
    bed.gateway.on('log', ({ fn, message }) => {
      if (fn !== undefined && message.includes('loaded')) loaded.set(fn, (loaded.get(fn) ?? 0) + 1)
    })
    bed.tree.write(tree)
    await bed.gateway.reload()
    await Promise.all(
      RUNTIMES.map(async runtime => {
        const [w, c] = [keyOf(runtime, `w-${runtime}`), keyOf(runtime, `c-${runtime}`)]
        const stateHeader = async (name: string) =>
          (await get(`${bed.url}/${name}-${runtime}`)).headers.get('x-fn-function-state')
        await bed.until(() => loaded.get(`w-${runtime}`) === 2, `${runtime}: two are loaded before any call`)
        t.match(bed.stateOf(w), { state: 'warm', workers: 2 }, runtime)
        t.match(bed.stateOf(c), { state: 'cold', workers: 0 }, runtime)
        t.equal(await stateHeader('w'), 'warm', `${runtime}: the first call waits for nothing`)
        t.equal(await stateHeader('c'), 'cold', `${runtime}: without min_warm it does`)
        t.equal(await stateHeader('c'), 'warm', runtime)
        const gate = bed.tree.path(`${runtime}.open`)
        const held = Array.from({ length: 4 }, () => get(`${bed.url}/w-${runtime}?gate=${encodeURIComponent(gate)}`))
        // One node worker takes many calls.
        const most = runtime === 'node' ? 2 : 4
        await bed.until(() => bed.stateOf(w).workers === most, `${runtime}: grown`)
        writeFileSync(gate, '')
        for (const answer of await Promise.all(held)) t.equal(answer.status, 200, runtime)
        await bed.until(() => bed.stateOf(w).workers === 2, `${runtime}: back to min_warm`)
        await bed.until(() => bed.stateOf(c).workers === 0, `${runtime}: without min_warm none is left`)
        t.match(bed.stateOf(c), { state: 'cold' }, runtime)
        t.equal(await stateHeader('w'), 'warm', runtime)
        t.equal(await stateHeader('c'), 'cold', runtime)
      }),
    )
  },
)

const FAILING: Partial<Record<RuntimeName, string>> = {
  node: `export const handler = async e => {
  console.log('one\\ntwo\\u00e9'); console.error('bad thing')
  if (e.query.do === 'throw') throw new Error('on purpose')
  if (e.query.do === 'hang') await new Promise(() => {})
  return e.query.do === 'broken' ? { status: 1000 } : 'fine'
}\n`,
  python: `import sys, time
def handler(e):
    print("one\\ntwo\\u00e9"); print("bad thing", file=sys.stderr)
    do = e["query"].get("do")
    if do == "throw": raise Exception("on purpose")
    if do == "hang": time.sleep(60)
    return {"status": 1000} if do == "broken" else "fine"
`,
  php: `<?php
function handler($e) {
    echo "one\\ntwo\\u{e9}\\n"; error_log('bad thing');
    $do = $e['query']['do'] ?? '';
    if ($do === 'throw') throw new Exception('on purpose');
    if ($do === 'hang') sleep(60);
    return $do === 'broken' ? ['status' => 1000] : 'fine';
}
`,
  lua: `function handler(e)
  print("one\\ntwo\\195\\169")
  local d = e.query["do"]
  if d == "throw" then error("on purpose") end
  if d == "hang" then while true do end end
  if d == "broken" then return { status = 1000 } end
  return "fine"
end
`,
}

t.test(
  '[http/public.24, http/public.25] debug headers on every answer of a function that wants them, and on no other',
  async t => {
    const pool = { max_workers: 7, max_queue: 3 }
    const methods = { invoke: { methods: ['GET'] }, timeout_ms: 300 }
    const bed = await serveTree(t, {
      ...inEach('on', { ...methods, worker_pool: pool, response: { include_debug_headers: true } }, FAILING),
      ...inEach('off', methods, FAILING),
    })
    const debugOf = (headers: Headers) => Object.fromEntries([...headers].filter(([name]) => name.startsWith('x-fn-')))
    await Promise.all(
      RUNTIMES.map(async runtime => {
        const name = `on-${runtime}`
        for (const [query, status] of [
          ['', 200],
          ['?do=throw', 500],
          ['?do=broken', 502],
          ['?do=hang', 504],
        ] as const) {
          const { status: got, headers } = await fetch(`${bed.url}/${name}${query}`, {
            headers: { 'x-request-id': 'r-1' },
          })
          t.equal(got, status, `${name}${query}`)
          const { 'x-fn-latency-ms': latency, 'x-fn-function-state': state, ...rest } = debugOf(headers)
          t.match(latency, /^\d+\.\d$/, `${name}${query}`)
          t.match(state, /^(cold|warm)$/, `${name}${query}`)
          t.same(
            rest,
            {
              'x-fn-runtime': runtime,
              'x-fn-runtime-routing': 'single',
              'x-fn-runtime-socket-index': '1',
              'x-fn-worker-pool-max-workers': '7',
              'x-fn-worker-pool-max-queue': '3',
              'x-fn-function': name,
              'x-fn-version': 'default',
              'x-fn-request-id': 'r-1',
              'x-fn-stdout': 'one two?',
              ...(runtime !== 'lua' && { 'x-fn-stderr': 'bad thing' }),
            },
            `${name}${query}`,
          )
        }
        t.same(debugOf((await fetch(`${bed.url}/${name}`, { method: 'PUT' })).headers), {}, 'a refusal of the router')
        for (const query of ['', '?do=throw']) {
          t.same(debugOf((await fetch(`${bed.url}/off-${runtime}${query}`)).headers), {}, `off-${runtime}${query}`)
        }
      }),
    )
  },
)
