import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import t from 'tap'
import type { RuntimeName } from '../../lib/core/identity.ts'
import type { Gateway } from '../../lib/index.ts'
import { handlerFile, RUNTIMES, serveTree } from '../helpers/gateway-bed.ts'
import { seed } from '../router/naive-router.ts'
import { killIfThere } from '../helpers/processes.ts'
import { Random } from '../helpers/random.ts'
import type { TreeEntry } from '../helpers/tree.ts'

t.setTimeout(120_000)

/**
 * Handlers that count their calls (`order`), and with `?gate=<file>` hold until the file is there. Lua looks for it by
 * trying to load it.
 */
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
  while e.query.gate and not loadfile(e.query.gate) do end
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
  '[invocation/admission.1, invocation/admission.4, invocation/admission.5, invocation/admission.7, invocation/admission.10] one queue, first come first served, for HTTP and invoke, in every language',
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
  '[invocation/admission.2, invocation/admission.6, invocation/admission.9, invocation/admission.10, http/public.20] limits, waiting times and texts',
  async t => {
    // Held until the gate opens, however long hundreds of refusals take beside other work.
    const held = { timeout_ms: 100_000 }
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
      // The place is held until the gate opens: one that waits without a limit would not be answered at all.
      if (waits) t.ok(ms >= 79, `${name}: ${ms} ms`)
    }
    // Hundreds of refusals while everything is busy.
    const flood = await Promise.all(Array.from({ length: 300 }, () => get(`${bed.url}/plain`)))
    t.ok(flood.every(({ status }) => status === 429))
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

t.test(
  '[invocation/admission.14] a burst at a function without a limit of its own is answered, each call in turn',
  async t => {
    const bed = await serveTree(
      t,
      {
        'plain.js': GATED.node!,
        'set/handler.js': GATED.node!,
        'set/fn.config.json': { json: { max_concurrency: 20 } },
      },
      { defaultMaxQueue: 30, defaultTimeoutMs: 20_000 },
    )
    const gate = bed.tree.path('open')
    const stateOf = (name: string) => bed.stateOf(keyOf('node', name)).worker_pool
    const burst = (name: string, count: number) =>
      Array.from({ length: count }, () => get(`${bed.url}/${name}?gate=${encodeURIComponent(gate)}`))
    const kind = burst('plain', 50)
    await bed.until(() => stateOf('plain').queued === 30, '20 run, 30 wait')
    t.match(await get(`${bed.url}/plain`), { status: 429, body: { error: 'concurrency limit reached' } })
    const strict = burst('set', 25)
    const refused: Answer[] = []
    for (const answer of strict) void answer.then(one => refused.push(one))
    // All that are refused are, before a place is free for one that comes late.
    await bed.until(() => refused.length === 5, '20 run, 5 are refused')
    for (const one of refused)
      t.match(one, { status: 429, body: { error: 'concurrency limit reached' } }, 'one that is set is kept at once')
    writeFileSync(gate, '')
    const answers = await Promise.all(kind)
    t.ok(answers.every(({ status }) => status === 200))
    t.same((await Promise.all(strict)).map(({ status }) => status).filter(status => status === 429).length, 5)

    const short = await serveTree(
      t,
      { 'plain.js': GATED.node! },
      { defaultMaxConcurrency: 1, defaultQueueTimeoutMs: 30, defaultTimeoutMs: 20_000 },
    )
    const late = short.tree.path('open')
    const [running, waiting] = [1, 2].map(() => get(`${short.url}/plain?gate=${encodeURIComponent(late)}`))
    t.match(await Promise.race([running, waiting]), { status: 429, body: { error: 'concurrency queue timeout' } })
    writeFileSync(late, '')
    t.equal((await running!).status + (await waiting!).status, 200 + 429)
  },
)

const SOCKET = 'x-fn-runtime-socket-index'

t.test(
  '[runtime/worker-set.16, runtime/daemon.7, runtime/daemon.8, runtime/daemon.10, control/records.2, http/public.24] calls take the sockets in turn, also while one daemon is down',
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
        // Its workers are ended when its end was told, which may be a moment after its connection was lost.
        await bed.until(
          () => bed.stateOf(keyOf(runtime, `f-${runtime}`)).worker_pool.active === count - 1,
          `${runtime}: the call on its worker is over`,
        )
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
  '[runtime/worker-set.3, runtime/worker-set.13, runtime/daemon.13, control/records.3] min_warm workers are there before the first call, more under load, and idle ones go',
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
        // Output outside calls may be told before the worker is ready for them.
        await bed.until(() => bed.stateOf(w).state === 'warm', `${runtime}: one has started`)
        t.equal(bed.stateOf(w).workers, 2, runtime)
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

/** Until a file is there, each uses a processor, or waits where `nap` is given. */
const BUSY: Partial<Record<RuntimeName, string>> = {
  node: `import { existsSync } from 'node:fs'
const cell = new Int32Array(new SharedArrayBuffer(4))
export const handler = ({ query: { gate, nap } }) => {
  while (!existsSync(gate)) if (nap) Atomics.wait(cell, 0, 0, 50)
  return {}
}\n`,
  python: `import os, time
def handler(event):
    query = event["query"]
    while not os.path.exists(query["gate"]):
        if "nap" in query:
            time.sleep(0.05)
    return {}\n`,
  php: `<?php function handler($event) {
  while (!file_exists($event['query']['gate'])) { clearstatcache(); if (isset($event['query']['nap'])) usleep(50_000); }
  return ['done' => true];
}\n`,
}

const hasTimes = existsSync('/proc/self/schedstat')
t.test(
  '[runtime/worker-set.23, control/workers.6] a function that computes gets a worker for each processor, one that waits gets more',
  { skip: !hasTimes && 'the system tells no times of processes' },
  async t => {
    const busy = RUNTIMES.filter(name => BUSY[name] !== undefined)
    const config = { timeout_ms: 60_000, worker_pool: { max_workers: 20, max_queue: 20 } }
    const tree = Object.fromEntries(
      busy.flatMap(runtime =>
        ['burn', 'nap'].flatMap(name => [
          [`${name}-${runtime}/${handlerFile(runtime)}`, BUSY[runtime]!],
          [`${name}-${runtime}/fn.config.json`, { json: config }],
        ]),
      ),
    )
    const bed = await serveTree(t, tree)
    interface Shown {
      workers: { key: string; inflight: number }[]
      growth: { key: string; decision: string; processors: number }[]
    }
    const read = async (runtime: RuntimeName, key: string) => {
      const { runtimes } = (await bed.gateway.inject('/_fn/workers')).json() as { runtimes: Record<string, Shown> }
      const { workers, growth } = runtimes[runtime]!
      return { workers: workers.filter(one => one.key === key), growth: growth.find(one => one.key === key) }
    }
    // One after the other: each alone has the processors.
    for (const runtime of busy)
      for (const [name, decision] of [
        ['burn', 'computing'],
        ['nap', 'waiting'],
      ] as const) {
        const key = keyOf(runtime, `${name}-${runtime}`)
        const gate = bed.tree.path(`${name}-${runtime}.open`)
        const query = `gate=${encodeURIComponent(gate)}${name === 'nap' ? '&nap=1' : ''}`
        const held: ReturnType<typeof get>[] = []
        let shown: Awaited<ReturnType<typeof read>> = { workers: [], growth: undefined }
        await bed.until(() => {
          void read(runtime, key).then(now => {
            shown = now
          })
          // Each when a worker has the one before: a node worker that starts takes all that wait, and leaves none to grow for.
          const given = shown.workers.reduce((sum, { inflight }) => sum + inflight, 0)
          if (held.length < 20 && given === held.length) held.push(get(`${bed.url}/${name}-${runtime}?${query}`))
          const { growth, workers } = shown
          return growth?.decision === decision && (name === 'burn' || workers.length > growth.processors)
        }, `${runtime} ${name}: ${decision}`)
        const most = shown.growth!.processors
        if (name === 'burn') t.equal((await read(runtime, key)).workers.length, most, runtime)
        writeFileSync(gate, '')
        for (const { status } of await Promise.all(held)) t.ok(status < 300, `${runtime} ${name}: ${status}`)
        if (name === 'burn') t.equal((await read(runtime, key)).workers.length, most, `${runtime}: still`)
      }
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
    const methods = { invoke: { methods: ['GET'] }, timeout_ms: 1000 }
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

/** Says which file it is, in each language. */
function saying(runtime: RuntimeName, text: string): string {
  return {
    node: `export const handler = e => ({ says: '${text}', version: e.version, key: e.env.KEY ?? 'none', method: e.method })\n`,
    python: `def handler(e): return {"says": "${text}", "version": e["version"], "key": e["env"].get("KEY", "none"), "method": e["method"]}\n`,
    php: `<?php function handler($e) { return ['says' => '${text}', 'version' => $e['version'], 'key' => $e['env']['KEY'] ?? 'none', 'method' => $e['method']]; }\n`,
    lua: `function handler(e) return { says = "${text}", version = e.version, key = e.env.KEY or "none", method = e.method } end\n`,
  }[runtime as 'node']
}

/** A function with two versions below `folder`, which have methods, limits and environments of their own. */
function versioned(folder: string, runtime: RuntimeName, file = handlerFile(runtime)): Record<string, TreeEntry> {
  return {
    [`${folder}/${file}`]: saying(runtime, 'default'),
    [`${folder}/fn.config.json`]: { json: { max_body_bytes: 4, invoke: { methods: ['GET', 'POST'] } } },
    [`${folder}/fn.env.json`]: { json: { KEY: 'default key' } },
    [`${folder}/v2/${file}`]: saying(runtime, 'v2'),
    [`${folder}/v2/fn.config.json`]: { json: { max_body_bytes: 8, invoke: { methods: ['PUT'] } } },
    [`${folder}/v2/fn.env.json`]: { json: { KEY: 'key of v2' } },
    [`${folder}/2024-05-01/${file}`]: saying(runtime, 'dated'),
  }
}

/** Layout, folder of the function, and its name. */
const LAYOUTS: [layout: string, folder: (runtime: RuntimeName) => string, name: (runtime: RuntimeName) => string][] = [
  ['path-neutral', runtime => `flat-${runtime}`, runtime => `flat-${runtime}`],
  ['namespaced', runtime => `team/${runtime}/greet`, runtime => `team/${runtime}/greet`],
  ['runtime-grouped', runtime => `${runtime}/grouped-${runtime}`, runtime => `grouped-${runtime}`],
  ['runtime-grouped, namespaced', runtime => `${runtime}/ns-${runtime}/deep`, runtime => `ns-${runtime}/deep`],
]

t.test(
  '[core/versions.1, core/versions.3, core/versions.7, router/route-table.10, gateway/gateway.7] versions side by side in every layout and language',
  async t => {
    const tree: Record<string, TreeEntry> = {
      // A folder of the file tree.
      ...versioned('pages/users', 'node', 'index.js'),
      'pages/users/[id].js': saying('node', 'one user'),
    }
    for (const runtime of RUNTIMES)
      for (const [, folder] of LAYOUTS) Object.assign(tree, versioned(folder(runtime), runtime))
    const bed = await serveTree(t, tree)
    t.same(
      bed.gateway.warnings.filter(({ code }) => code !== 'ROUTE_TAKEN'),
      [],
    )
    const check = async (layout: string, name: string): Promise<void> => {
      const ask = async (method: string, path: string, body?: string) => {
        const response = await fetch(`${bed.url}/${path}`, { method, ...(body !== undefined && { body }) })
        const text = await response.text()
        const { detail, ...rest } = text === '' ? ({} as { detail?: { hint: string } }) : JSON.parse(text)
        if (response.status === 405) t.match(detail, { hint: `/${path} is ` }, `${method} ${path} names the claim`)
        return [response.status, response.headers.get('allow'), text === '' ? null : rest]
      }
      const says = (text: string, version: string, key: string, method: string) => [
        200,
        null,
        { says: text, version, key, method },
      ]
      const refused = (allow: string) => [405, allow, { error: 'method not allowed' }]
      const title = `${layout} ${name}`
      t.same(await ask('GET', name), says('default', 'default', 'default key', 'GET'), title)
      t.same(await ask('PUT', `${name}@v2`), says('v2', 'v2', 'key of v2', 'PUT'), title)
      t.same(
        await ask('GET', `${name}@2024-05-01`),
        says('dated', '2024-05-01', 'none', 'GET'),
        `${title}: inherits methods`,
      )
      t.same(await ask('GET', `${name}@v2`), refused('PUT'), `${title}: methods of its own`)
      t.same(await ask('PUT', name), refused('GET, HEAD, POST'), title)
      t.equal((await ask('POST', name, '12345'))[0], 413, `${title}: limits`)
      t.equal((await ask('POST', `${name}@2024-05-01`, '12345'))[0], 413, `${title}: inherits limits`)
      t.equal((await ask('PUT', `${name}@v2`, '12345678'))[0], 200, `${title}: limits of its own`)
      t.equal((await ask('PUT', `${name}@v2`, '123456789'))[0], 413, title)
      for (const unknown of [`${name}@v3`, `${name}@V2`, `${name}@`, `${name}@v2@v2`, `${name}x@v2`])
        t.match(await ask('GET', unknown), [404, null, { error: 'not found' }], `${layout} ${unknown}`)
      const { status, body } = await bed.gateway.invoke(name, { version: 'v2', method: 'PUT' })
      t.match([status, JSON.parse(body.toString())], [200, { says: 'v2' }], title)
      t.equal((await bed.gateway.invoke(name, { version: 'v2', method: 'GET' })).status, 405, title)
      await t.rejects(bed.gateway.invoke(name, { version: 'v3' }), { code: 'NOT_FOUND' }, title)
    }
    for (const runtime of RUNTIMES) {
      for (const [layout, , name] of LAYOUTS) await check(layout, name(runtime))
    }
    await check('file tree', 'pages/users')
    t.match((await get(`${bed.url}/pages/users/7`)).body, { says: 'one user' })
  },
)

t.test(
  '[core/versions.8, router/route-table.10, router/route-table.11] a version takes no URL that is there, except with FN_FORCE_URL; ambiguous names are 409',
  async t => {
    const routes = { invoke: { routes: ['/hello', '/new-home', '/hello/special'], 'force-url': true } }
    const files = {
      'hello/handler.js': saying('node', 'default'),
      'hello/fn.config.json': { json: { runtime: 'node', invoke: { methods: ['GET'] } } },
      'hello/v2/handler.js': saying('node', 'v2'),
      'hello/v2/fn.config.json': { json: { invoke: { ...routes.invoke, methods: ['GET', 'POST'] } } },
      'node/twin/handler.js': saying('node', 'node'),
      'node/twin/v1/handler.js': saying('node', 'node v1'),
      'python/twin/handler.py': saying('python', 'python'),
      'python/twin/v1/handler.py': saying('python', 'python v1'),
    }
    const plain = await serveTree(t, files)
    const says = async (url: string, method = 'GET') => {
      const { status, body } = await get(url, { method })
      return status === 200 ? (body as unknown as { says: string }).says : status
    }
    t.equal(await says(`${plain.url}/hello`), 'default')
    t.equal(await says(`${plain.url}/hello`, 'POST'), 405, 'nor one of its methods')
    t.equal(await says(`${plain.url}/new-home`), 'v2', 'a free one it gets')
    t.equal(await says(`${plain.url}/hello@v2`), 'v2')
    t.match(
      plain.gateway.warnings.find(({ code }) => code === 'ROUTE_TAKEN'),
      {
        path: 'hello/v2/fn.config.json',
        message: /GET,POST \/hello already belongs to the file route|GET,POST \/hello already belongs to /,
        hint: /call hello@v2, or set FN_FORCE_URL=1/,
      },
    )
    for (const path of ['twin', 'twin@v1']) {
      t.equal(await says(`${plain.url}/${path}`), 409, path)
      const record = plain.gateway.catalog().mapped_route_conflicts as Record<string, unknown>
      if (path === 'twin') t.ok('/twin' in record)
    }
    await t.rejects(plain.gateway.invoke('twin', { version: 'v1' }), { code: 'ROUTE_CONFLICT' })
    t.equal((await plain.gateway.invoke('twin', { version: 'v1', runtime: 'python' })).status, 200)
    const forced = await serveTree(t, files, { forceUrl: true })
    t.equal(await says(`${forced.url}/hello`), 'v2')
    t.equal(await says(`${forced.url}/hello`, 'POST'), 'v2')
    t.equal(await says(`${forced.url}/twin`), 409, 'force does not choose between equals')
  },
)

/** The next reload that the watcher causes. */
function nextReload({ gateway }: { gateway: Gateway }): Promise<void> {
  return new Promise(resolve => {
    const stop = gateway.on('reload', ({ cause }) => {
      if (cause !== 'watch') return
      stop()
      resolve()
    })
  })
}

t.test(
  '[config/function-config.2, config/function-config.13, discovery/layouts.27, discovery/layouts.30, http/public.20] overlays of any depth, and the last good policy while one is broken',
  async t => {
    const tree: Record<string, TreeEntry> = {
      'fn.config.json': { json: { max_body_bytes: 3, response: { include_debug_headers: true } } },
      'api/fn.config.json': { json: { max_body_bytes: 5, invoke: { allow_hosts: ['api.test'] } } },
      'api/v9/shop/cart/fn.config.json': { json: { max_body_bytes: 7, worker_pool: { max_workers: 6 } } },
      'api/v9/shop/cart/inner/fn.config.json': { json: { invoke: { allow_hosts: ['inner.test', '*.wild.test'] } } },
    }
    const folders: [folder: string, limit: number, host: string][] = [
      ['', 3, 'localhost'],
      ['api/', 5, 'api.test'],
      ['api/v9/shop/', 5, 'api.test:8080'],
      ['api/v9/shop/cart/', 7, 'API.test'],
      ['api/v9/shop/cart/inner/', 7, 'inner.test'],
      ['api/v9/shop/cart/inner/most/', 7, 'x.wild.test'],
    ]
    for (const runtime of RUNTIMES) {
      const extension = handlerFile(runtime).split('.')[1]
      for (const [folder] of folders) tree[`${folder}post.${runtime}.${extension}`] = saying(runtime, folder)
    }
    const bed = await serveTree(t, tree, { hotReload: true })
    t.same(bed.gateway.warnings, [])
    const ask = async (path: string, body: string, host: string) => {
      const answer = await bed.gateway.inject({ method: 'POST', url: path, body, headers: { host } })
      return { status: answer.status, headers: answer.headers }
    }
    for (const runtime of RUNTIMES) {
      for (const [folder, limit, host] of folders) {
        const path = `/${folder}${runtime}`
        const right = await ask(path, 'x'.repeat(limit), host)
        t.match(right, { status: 200, headers: { 'x-fn-runtime': runtime } }, path)
        t.equal(right.headers['x-fn-worker-pool-max-workers'], limit === 7 ? '6' : '20', path)
        t.equal((await ask(path, 'x'.repeat(limit + 1), host)).status, 413, path)
        if (folder !== '') t.equal((await ask(path, 'x', 'other.test')).status, 421, path)
      }
      t.equal((await ask(`/api/v9/shop/cart/inner/${runtime}`, 'x', 'api.test')).status, 421, 'the nearest list alone')
      t.equal((await ask(`/api/v9/shop/cart/inner/${runtime}`, 'x', 'wild.test')).status, 421)
    }
    const save = async (json: unknown, file = 'api/fn.config.json') => {
      const reloaded = nextReload(bed)
      bed.tree.write({ [file]: typeof json === 'string' ? json : { json } })
      await reloaded
    }
    const [runtime = 'node'] = RUNTIMES
    const path = `/api/${runtime}`
    const good = async (what: string) => {
      t.equal((await ask(path, '12345', 'api.test')).status, 200, what)
      t.equal((await ask(path, '123456', 'api.test')).status, 413, what)
      t.equal((await ask(path, '1', 'new.test')).status, 421, what)
    }
    const warningsOf = () => bed.gateway.warnings.filter(warning => warning.path === 'api/fn.config.json')
    for (const [broken, message] of [
      ['{ "max_body_bytes": 9, "invoke": { "allow_hosts": ["new.test"] }', /is not JSON: line 1, column \d+: /],
      ['', /is not JSON|is empty/],
      ['[]', /must be an object, got an array of 0 items/],
      [
        '{ "max_body_bytes": "nine", "invoke": { "allow_hosts": ["new.test"] } }',
        /^api\/fn\.config\.json: max_body_bytes must be an integer from 1 to 1073741824, got "nine" \(string\)/,
      ],
      [
        '{ "worker_pool": { "overflow_status": 500 } }',
        /^api\/fn\.config\.json: worker_pool\.overflow_status must be 429 or 503, got 500 \(number\)/,
      ],
    ] as const) {
      await save(broken)
      await good(broken)
      t.match(
        warningsOf().map(({ message: text }) => text),
        [message, /is not used: its last good version stays in force/],
        broken,
      )
      for (const { hint } of warningsOf()) t.ok(hint.length > 0)
    }
    t.equal((await ask(`/${runtime}`, '123', 'any')).status, 200, 'the rest of the tree serves')
    await save({ max_body_bytes: 9, invoke: { allow_host: ['new.test'] }, tiemout_ms: 5 })
    t.equal((await ask(path, '123456789', 'new.test')).status, 200, 'mended: in force')
    t.match(
      warningsOf().map(({ code, message: text }) => `${code} ${text}`),
      [
        /^CONFIG_UNKNOWN_KEY .*invoke\.allow_host is not a known key, did you mean allow_hosts\?/,
        /^CONFIG_UNKNOWN_KEY .*tiemout_ms is not a known key, did you mean timeout_ms\?/,
      ].sort(),
    )
    await save({})
    t.same(warningsOf(), [])
    t.equal((await ask(path, '1234', 'any.test')).status, 413, 'the folder above holds again')
  },
)

/** Does what `?do=` says: every way in which a call can end. */
const UNRULY: Partial<Record<RuntimeName, string>> = {
  node: `const wait = ms => new Promise(done => setTimeout(done, ms))
async function* pieces() { for (let i = 0; i < 10; i++) { yield 'x'.repeat(30000); await wait(4) } }
export const handler = async ({ query }) => {
  if (query.do === 'slow') await wait(30)
  if (query.do === 'hang') await wait(1e9)
  if (query.do === 'loop') for (;;) {}
  if (query.do === 'exit') process.exit(3)
  if (query.do === 'throw') throw new Error('on purpose')
  if (query.do === 'broken') return { status: 1000 }
  return query.do === 'stream' ? { status: 200, headers: {}, body: pieces() } : 'fine'
}\n`,
  python: `import os, time
def pieces():
    for _ in range(10):
        yield "x" * 30000
        time.sleep(0.004)
def handler(e):
    do = e["query"].get("do")
    if do == "slow": time.sleep(0.03)
    if do == "hang": time.sleep(1000)
    while do == "loop": pass
    if do == "exit": os._exit(3)
    if do == "throw": raise Exception("on purpose")
    if do == "broken": return {"status": 1000}
    return {"status": 200, "headers": {}, "body": pieces()} if do == "stream" else "fine"
`,
  php: `<?php
function handler($e) {
    $do = $e['query']['do'] ?? '';
    if ($do === 'slow') usleep(30000);
    if ($do === 'hang') sleep(1000);
    while ($do === 'loop');
    if ($do === 'exit') exit(3);
    if ($do === 'throw') throw new Exception('on purpose');
    return $do === 'broken' ? ['status' => 1000] : 'fine';
}
`,
  lua: `function handler(e)
  local what = e.query["do"]
  local ends = os.clock() + (what == "slow" and 0.03 or 0)
  while os.clock() < ends do end
  while what == "hang" or what == "loop" do end
  if what == "exit" then os.exit(3) end
  if what == "throw" then error("on purpose") end
  if what == "broken" then return { status = 1000 } end
  return "fine"
end
`,
}

const DEEDS = ['fine', 'fine', 'fine', 'slow', 'slow', 'hang', 'loop', 'exit', 'throw', 'broken', 'stream']
const CHAOS_MS = 3000

t.test(
  '[invocation/admission.7, invocation/admission.8, runtime/worker-set.9, runtime/worker-set.11, runtime/daemon.8, runtime/daemon.9, http/public.19] no place is lost, whatever dies: calls of every kind while clients leave, workers and daemons are killed, and files change',
  async t => {
    const start = seed()
    t.comment(`seed ${start}`)
    const random = new Random(start)
    const configOf = () => ({
      timeout_ms: 150,
      invoke: { methods: ['GET', 'POST'] },
      worker_pool: {
        max_workers: 1 + random.below(3),
        max_queue: 6,
        queue_timeout_ms: 300,
        min_warm: 1,
        idle_ttl_seconds: 1,
      },
    })
    const bed = await serveTree(t, inEach('f', configOf(), UNRULY), {
      runtimeDaemons: { node: 2, python: 2, php: 2 },
      // Only workers and daemons are to be killed.
      autoInferPyDeps: false,
      autoInferNodeDeps: false,
    })
    const runtimeProcesses = () =>
      processesBelow(process.pid).filter(({ args }) => args.some(arg => /\/runtimes\//.test(arg)))
    const endsAt = performance.now() + CHAOS_MS
    const ends: Record<string, number> = {}
    const viaHttp = (path: string, abortAfterMs: number | null): Promise<string> =>
      new Promise(resolve => {
        const body = random.below(3) === 0 ? 'x'.repeat(random.below(100_000)) : null
        const sent = request(bed.url + path, { method: body === null ? 'GET' : 'POST', agent: false }, response => {
          response.on('data', () => {})
          response.on('end', () => resolve(String(response.statusCode)))
          response.on('close', () => resolve('cut'))
          response.on('error', () => resolve('cut'))
        })
        sent.on('error', () => resolve('cut'))
        sent.end(body ?? undefined)
        if (abortAfterMs !== null) setTimeout(() => sent.destroy(), abortAfterMs)
      })
    const viaInvoke = async (name: string, deed: string, abortAfterMs: number | null): Promise<string> => {
      const signal = abortAfterMs === null ? {} : { signal: AbortSignal.timeout(abortAfterMs) }
      return String((await bed.gateway.invoke(name, { query: { do: deed }, ...signal })).status)
    }
    const client = async (runtime: RuntimeName): Promise<void> => {
      while (performance.now() < endsAt) {
        const deed = random.pick(DEEDS)
        const abortAfterMs = random.below(4) === 0 ? random.below(100) : null
        const end =
          random.below(4) === 0
            ? await viaInvoke(`f-${runtime}`, deed, abortAfterMs)
            : await viaHttp(`/f-${runtime}?do=${deed}`, abortAfterMs)
        ends[end] = (ends[end] ?? 0) + 1
      }
    }
    const killer = async (): Promise<void> => {
      while (performance.now() < endsAt) {
        await new Promise(resolve => setTimeout(resolve, 60))
        const runtime = random.pick(RUNTIMES)
        const deed = random.below(10)
        const victims = deed < 6 ? runtimeProcesses() : []
        if (victims.length > 0) killIfThere(random.pick(victims).pid)
        else if (deed < 9) bed.tree.write({ [`f-${runtime}/fn.config.json`]: { json: configOf() } })
        else
          bed.tree.write({
            [`f-${runtime}/${handlerFile(runtime)}`]: `${UNRULY[runtime]}${'\n'.repeat(random.below(9))}`,
          })
        if (deed >= 6) await bed.gateway.reload()
      }
    }
    await Promise.all([killer(), ...RUNTIMES.flatMap(runtime => Array.from({ length: 8 }, () => client(runtime)))])
    t.comment(JSON.stringify(ends))
    const counted = () =>
      bed.health().functions.states.map(({ key, worker_pool: { active, queued } }) => [key, active, queued])
    await bed.until(() => counted().every(([, active, queued]) => active === 0 && queued === 0), 'every place is free')
    t.same(
      Object.keys(ends).filter(end => !['0', '200', '413', '429', '500', '502', '503', '504', 'cut'].includes(end)),
      [],
      'every call ended in a way that calls end',
    )
    for (const runtime of RUNTIMES) {
      // Crash loops delay starts for up to five seconds.
      let status = 0
      for (let tries = 0; tries < 60 && status !== 200; tries++) {
        if (tries > 0) await new Promise(resolve => setTimeout(resolve, 100))
        status = (await fetch(`${bed.url}/f-${runtime}`)).status
      }
      t.equal(status, 200, `${runtime} serves`)
      const { max_workers: most } = bed.stateOf(keyOf(runtime, `f-${runtime}`)).worker_pool
      const together = await Promise.all(Array.from({ length: most }, () => fetch(`${bed.url}/f-${runtime}?do=slow`)))
      t.same(
        together.map(answer => answer.status),
        together.map(() => 200),
        `${runtime}: all of its ${most} places are there`,
      )
    }
    await bed.gateway.close()
    t.same(runtimeProcesses(), [], 'no process is left')
  },
)

t.test(
  '[invocation/admission.8, gateway/gateway.9] close: what runs and what waits is answered, and every place is free',
  async t => {
    const pool = { max_workers: 1, max_queue: 5, queue_timeout_ms: 9000 }
    const bed = await serveTree(t, inEach('f', { timeout_ms: 9000, worker_pool: pool }))
    const gate = bed.tree.path('open')
    const names = RUNTIMES.map(runtime => [runtime, `f-${runtime}`] as const)
    const isAt = (active: number, queued: number) => () =>
      names.every(([runtime, name]) => {
        const counts = bed.stateOf(keyOf(runtime, name)).worker_pool
        return counts.active === active && counts.queued === queued
      })
    const held = names.map(([, name]) => get(`${bed.url}/${name}?gate=${encodeURIComponent(gate)}`))
    await bed.until(isAt(1, 0), 'one runs')
    const waiting = names.flatMap(([, name]) => [get(`${bed.url}/${name}`), get(`${bed.url}/${name}`)])
    await bed.until(isAt(1, 2), 'two wait')
    const closed = bed.gateway.close({ timeoutMs: 15_000 })
    writeFileSync(gate, '')
    for (const answer of await Promise.all([...held, ...waiting])) t.equal(answer.status, 200)
    await closed
    t.match(bed.health().functions.summary, { pool_active: 0, pool_queued: 0 })
  },
)

t.test(
  '[discovery/entry-file.1, discovery/entry-file.8, core/errors.3] one entrypoint, two languages, one route',
  async t => {
    const js = (text: string) => `exports.handler = () => ({ status: 200, body: '${text}' })\n`
    const { url, gateway } = await serveTree(t, {
      'twin.js': js('twin'),
      'twin.py': 'def handler(event):\n    return "twin"\n',
      'get.item.js': js('item'),
      'item.py': 'def handler(event):\n    return "item"\n',
      'post.item.js': js('posted'),
      'whole/app.js': js('app'),
      'whole/get.js': js('get'),
      'whole/post.py': 'def handler(event):\n    return "post"\n',
      'whole/get.more.js': js('more'),
      'whole/fn.config.json': { json: { entrypoint: 'app.js' } },
      'same.js': js('same'),
      'same.mjs': 'export const handler = () => "mjs"\n',
    })
    const asked: [string, string, number, string][] = [
      ['GET', '/twin', 409, 'ambiguous route'],
      ['POST', '/twin', 405, 'method not allowed'],
      ['GET', '/item', 409, 'ambiguous route'],
      ['POST', '/item', 200, 'posted'],
      ['GET', '/whole', 200, 'app'],
      ['POST', '/whole', 200, 'app'],
      ['GET', '/whole/more', 200, 'more'],
      ['GET', '/same', 200, 'same'],
      ['GET', '/none', 404, 'not found'],
    ]
    for (const [method, path, status, text] of asked) {
      const response = await fetch(url + path, { method })
      t.equal(response.status, status, `${method} ${path}`)
      t.match(await response.text(), text, `${method} ${path}`)
    }
    const catalog = (await (await fetch(`${url}/_fn/catalog`)).json()) as { mapped_route_conflicts: object }
    t.match(catalog.mapped_route_conflicts, {
      '/twin': [{ file: 'twin.js' }, { file: 'twin.py' }],
      '/item': [{ file: 'get.item.js' }, { file: 'item.py' }],
    })
    const explained = gateway.explain('GET', '/twin')
    t.match(explained, { winner: null, refusal: { status: 409 }, losers: [{ rule: 'conflict' }, { rule: 'conflict' }] })
    t.match(gateway.warnings, [
      { code: 'DUPLICATE_ROUTE', path: 'same.js' },
      { code: 'ROUTE_CONFLICT', message: /GET \/item .*get\.item\.js, .*item\.py/ },
      { code: 'ROUTE_CONFLICT', message: /GET \/twin .*twin\.js, .*twin\.py/ },
    ])
    t.equal(gateway.warnings.length, 3)
  },
)

t.test(
  '[discovery/layouts.51] a config that cannot be parsed refuses calls through every door until it is fixed',
  async t => {
    const closed = {
      'admin/fn.config.json': '{ "invoke": { "allow_hosts": ["internal.test"] }',
      'admin/list.js': 'export const handler = () => "secret"\n',
      'admin/nightly/handler.py': 'def handler(event):\n    return "secret"\n',
      'admin/nightly/fn.config.json': { json: { schedule: { every_seconds: 3600 }, methods: ['GET', 'POST'] } },
      'open.js': 'export const handler = () => "open"\n',
    }
    const { tree, gateway, url } = await serveTree(t, closed, { adminToken: 'token' })
    const message = /^admin\/fn\.config\.json is not JSON: line 1/
    for (const path of ['/admin/list', '/admin/nightly']) {
      for (const method of ['GET', 'POST']) {
        const { status, body } = await get(url + path, { method })
        t.match([status, body.error], [503, message], `${method} ${path}`)
      }
    }
    t.equal((await fetch(`${url}/open`)).status, 200)
    const invoked = await gateway.invoke('admin/nightly')
    t.match([invoked.status, invoked.error?.message], [503, message])
    await t.rejects(gateway.jobs.create({ name: 'admin/nightly' }), { status: 503, message })
    const run = await fetch(`${url}/_fn/schedules/run`, {
      method: 'POST',
      headers: { 'x-fn-admin-token': 'token', 'content-type': 'application/json' },
      body: '{ "name": "admin/nightly" }',
    })
    t.match(await run.json(), { status: 503, error: message })
    t.match(gateway.explain('GET', '/admin/list').refusal, { status: 503, code: 'CONFIG_BROKEN', message })
    t.match(gateway.health(), { functions: { summary: { closed: 2 } } })
    t.match(gateway.catalog().warnings, [
      { code: 'CONFIG_NOT_JSON' },
      { code: 'CONFIG_CLOSED', path: 'admin/fn.config.json' },
    ])
    const production = await serveTree(t, closed, { production: true })
    const neutral = await fetch(`${production.url}/admin/list`)
    t.same([neutral.status, await neutral.json()], [503, { error: 'function is not available' }])
    tree.write({ 'admin/fn.config.json': { json: { invoke: { methods: ['GET'] } } } })
    await gateway.reload()
    t.equal(await (await fetch(`${url}/admin/list`)).text(), '"secret"')
    tree.write({ 'admin/fn.config.json': '{' })
    await gateway.reload()
    t.equal((await fetch(`${url}/admin/list`)).status, 200, 'the last good version stays in force')
  },
)
