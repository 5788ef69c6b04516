import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, readdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import t from 'tap'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { isAlive } from '../helpers/processes.ts'
import { makeTree } from '../helpers/tree.ts'
import {
  type Answer,
  type DaemonClient,
  type DaemonOptions,
  FrameClient,
  startDaemon,
  until,
  type WorkerClient,
  type WorkerStart,
} from '../helpers/worker-client.ts'

const RUNTIME = resolve(import.meta.dirname, '../../runtimes/php')
const FIXTURES = resolve(import.meta.dirname, '../fixtures/php')

if (spawnSync('php', ['-v']).error !== undefined) {
  t.plan(0, 'php is not installed')
  process.exit(0)
}

// The many processes of a busy machine may take longer than the 30 seconds of a file that is run by itself.
t.setTimeout(180_000)

const tree = makeTree()
const daemon = await startDaemon('php', { root: tree.root })
t.teardown(async () => {
  await daemon.close()
  tree.cleanup()
})

/** True while a process runs; one that has ended and waits for its parent to notice does not. */

let functions = 0

/** A worker of `on` for a function with this handler file, and files beside it. */
async function serve(
  code: string,
  start: Partial<WorkerStart> & { files?: Record<string, string> } = {},
  on: DaemonClient = daemon,
): Promise<WorkerClient> {
  functions += 1
  const name = `f${functions}`
  const { files, ...fields } = start
  tree.write({ [`${name}/handler.php`]: `<?php\n${code}` })
  for (const [path, text] of Object.entries(files ?? {})) tree.write({ [`${name}/${path}`]: text })
  return on.worker({ dir: tree.path(name), entry: tree.path(`${name}/handler.php`), name, ...fields })
}

/** One call of a fresh function. */
async function callOnce(code: string, header: Record<string, unknown> = {}, body: Buffer | string | null = null) {
  const worker = await serve(code)
  const answer = await worker.call(header, body)
  await worker.close()
  return answer
}

async function ownDaemon(options: Partial<DaemonOptions> = {}): Promise<DaemonClient> {
  return startDaemon('php', { root: tree.root, ...options })
}

const json = (answer: Answer) => JSON.parse(answer.text)

t.test('[runtimes/php.28] large frames among small ones come out whole, however they are read', async t => {
  const { stdout, stderr } = spawnSync('php', [join(FIXTURES, 'large-frames.php')], { encoding: 'utf8' })
  t.equal(stderr, '')
  const { right, beyond } = JSON.parse(stdout)
  t.same(right, [true, true, true, true, true, true])
  t.ok(beyond > 0, 'also more than was wanted')
})

t.test(
  '[runtimes/php.1] frames: vectors cut at every byte, and 30,000 rounds of garbage in bounded memory',
  async t => {
    const vectors = spawnSync('php', [join(FIXTURES, 'vectors.php')], { encoding: 'utf8' })
    t.same(JSON.parse(vectors.stdout), [])
    const seed = '20261'
    const fuzz = spawnSync('php', [join(FIXTURES, 'fuzz-frames.php'), seed, '30000'], { encoding: 'utf8' })
    t.equal(fuzz.status, 0, fuzz.stderr)
    const { frames, errors, peak, mismatch } = JSON.parse(fuzz.stdout)
    t.equal(mismatch, null, `seed ${seed}`)
    t.ok(frames > 30_000)
    t.ok(peak < 4 * 1024 * 1024, `${peak} bytes`)
    // The rare ones depend on a byte of chance: none is unknown, the common ones came up.
    const known = [
      'body of a frame of kind N is N bytes, above N',
      'frame header is longer than its frame',
      'frame header is not JSON',
      'frame length N is above N',
      'frame length N is below N',
      'header of a frame of kind N is N bytes, above N',
      'unknown frame kind N',
    ]
    t.same(
      Object.keys(errors).filter(text => !known.includes(text)),
      [],
    )
    t.ok(Object.keys(errors).length >= 3)
  },
)

t.test('[runtimes/php.2] a missing function or a wrong flag ends the daemon with one clear line', async t => {
  const run = (...args: string[]) => spawnSync('php', args, { encoding: 'utf8', input: '' })
  const file = join(RUNTIME, 'daemon.php')
  const cases: [string[], RegExp][] = [
    [['-d', 'disable_functions=pcntl_fork', file, '--socket', 'x'], /needs the function pcntl_fork: install or enable/],
    [[file], /--socket is missing: give a path/],
    [[file, '--socket', 'tcp://nowhere'], /--socket must be tcp:\/\/<host>:<port>, got "tcp:\/\/nowhere"/],
    [[file, '--socket', daemon.uri], /another daemon serves it/],
    [
      [file, '--socket', '/nonexistent/x.sock'],
      /cannot listen on unix:\/\/\/nonexistent\/x\.sock: the folder does not exist/,
    ],
  ]
  for (const [args, message] of cases) {
    const result = run(...args)
    t.equal(result.status, 1, args.join(' '))
    t.match(result.stderr, message)
    t.equal(result.stderr.trim().split('\n').length, 1)
  }
})

t.test(
  '[runtimes/php.3] the daemon answers hello, start and ping; a bad frame closes that connection alone',
  async t => {
    t.match(daemon.info, { runtime: 'php', version: /^8\./, pid: daemon.child.pid })
    const worker = await serve('function handler($event) { return "ok"; }')
    t.match(worker.id, new RegExp(`^${daemon.child.pid}-\\d+$`))
    t.ok(isAlive(worker.pid))
    t.same((await worker.ready()).header.max_inflight, 1)
    t.equal((await worker.call()).text, '"ok"')
    const refused: [Buffer, RegExp][] = [
      [Buffer.from([0, 0, 0, 0]), /frame length 0 is below 9/],
      [Buffer.from([255, 255, 255, 255]), /frame length 4294967295 is above/],
      [Buffer.from('0000000b630000000000000002', 'hex'), /unknown frame kind 99/],
      [Buffer.from('00000009100000000000000000', 'hex'), /first frame must be hello/],
      [Buffer.from('0000000a01000000000000000009', 'hex'), /protocol version 9 is not spoken/],
    ]
    for (const [bytes, message] of refused) {
      const client = new FrameClient(daemon.uri)
      client.socket.write(bytes)
      const frame = await client.wait(frame => frame.kind === KIND.error)
      t.equal(frame.header.code, 'protocol')
      t.match(frame.header.message, message)
      await client.closed
    }
    const foreign = new FrameClient(daemon.uri)
    foreign.send(KIND.hello, 0, { role: 'control' }, Buffer.from([1]))
    foreign.send(KIND.call, 1)
    t.match((await foreign.wait(frame => frame.kind === KIND.error)).header.message, /does not take frames of kind 16/)
    await foreign.closed
    daemon.control.send(KIND.ping, 77)
    t.ok(await daemon.control.wait(frame => frame.kind === KIND.pong && frame.id === 77))
    t.equal((await worker.call()).text, '"ok"')
    await worker.close()
  },
)

t.test('[runtimes/php.4] every worker is a fresh fork: nothing of one function is seen by another', async t => {
  const code = `
    class Thing { public static int $n = 0; }
    function helper() { return __DIR__; }
    $GLOBALS['mark'] = ($GLOBALS['mark'] ?? 0) + 1;
    function handler($event) {
      Thing::$n++;
      return [Thing::$n, $GLOBALS['mark'], getenv('SECRET'), array_values(array_filter(array_keys($GLOBALS),
        fn ($name) => stripos($name, 'fngw') !== false || in_array($name, ['argv', 'worker', 'job', 'flags', 'needed'])))];
    }`
  const first = await serve(code, { env: { SECRET: 'one' } })
  t.same(json(await first.call()), [1, 1, 'one', []])
  t.same(json(await first.call()), [2, 1, 'one', []])
  const second = await serve(code)
  t.same(json(await second.call()), [1, 1, false, []])
  await first.close()
  await second.close()
})

t.test('[runtimes/php.5] ends: each is told once with its cause, and takes the process group along', async t => {
  const code = `function handler($event) {
    if ($event['path'] === '/child') { exec('sleep 600 > /dev/null 2>&1 & echo $!', $out); return (int) $out[0]; }
    if ($event['path'] === '/sleep') { echo 'begun'; usleep(200000); return 'slept'; }
    if ($event['path'] === '/kill') { posix_kill(getmypid(), SIGSEGV); sleep(1); }
    echo 'begun';
    while (true);
  }`
  const killed = await serve(code)
  const child = json(await killed.call({ path: '/child' }))
  t.ok(isAlive(child))
  killed.open({ path: '/loop' })
  daemon.control.send(KIND.stop, 0, { worker: killed.id, grace_ms: 0 })
  t.match((await daemon.ended(killed)).header, { code: null, signal: 'SIGKILL', reason: 'stopped by the gateway' })
  t.notOk(isAlive(killed.pid))
  await until(() => !isAlive(child))

  const crashed = await serve(code)
  crashed.open({ path: '/kill' })
  t.match((await daemon.ended(crashed)).header, { code: null, signal: 'SIGSEGV', reason: 'ended by SIGSEGV' })

  const graceful = await serve(code)
  await graceful.ready()
  const slow = graceful.open({ path: '/sleep' })
  await graceful.wait(frame => frame.kind === KIND.log)
  daemon.control.send(KIND.stop, 0, { worker: graceful.id, grace_ms: 3000 })
  t.equal((await graceful.collect(slow)).text, '"slept"', 'a call that runs is finished within the grace')
  t.match((await daemon.ended(graceful)).header, { code: 0, signal: null })

  const stuck = await serve(code)
  await stuck.ready()
  stuck.open({ path: '/loop' })
  await stuck.wait(frame => frame.kind === KIND.log)
  daemon.control.send(KIND.stop, 0, { worker: stuck.id, grace_ms: 50 })
  t.match((await daemon.ended(stuck)).header, { signal: 'SIGKILL' })

  const idle = await serve(code)
  await idle.ready()
  idle.socket.end()
  t.match((await daemon.ended(idle)).header, { code: 0, reason: 'exited with code 0' })
  daemon.control.send(KIND.ping, 78)
  await daemon.control.wait(frame => frame.kind === KIND.pong && frame.id === 78)
  const ids = [killed, crashed, graceful, stuck, idle].map(worker => worker.id)
  t.notOk(
    daemon.control.frames.some(frame => frame.kind === KIND.exited && ids.includes(frame.header.worker)),
    'no end is told twice',
  )
})

t.test('[runtimes/php.6] no orphans: daemon stopped, killed, or left by its gateway', async t => {
  const code = 'function handler($event) { while (true); }'
  const start = async (own: DaemonClient) => {
    const busy = await serve(code, {}, own)
    await busy.ready()
    busy.open()
    const idle = await serve(code, {}, own)
    await idle.ready()
    return [busy, idle]
  }
  const sockets = (own: DaemonClient) => {
    const folder = dirname(own.uri.slice('unix:'.length))
    return existsSync(folder) ? readdirSync(folder).filter(name => name.endsWith('.sock')) : []
  }

  const stopped = await ownDaemon()
  let workers = await start(stopped)
  const forker = await serve(
    'function handler($event) { return (int) exec("setsid sleep 600 > /dev/null 2>&1 & echo $!"); }',
    {},
    stopped,
  )
  const escaped = json(await forker.call())
  await forker.close()
  await stopped.ended(forker)
  // It was killed before; the system takes a moment.
  await until(() => !isAlive(escaped))
  stopped.child.stdin!.end()
  t.equal(await stopped.exited, 0)
  await until(() => !workers.some(worker => isAlive(worker.pid)))
  t.same(sockets(stopped), [])
  await stopped.close()

  const killed = await ownDaemon()
  workers = await start(killed)
  killed.child.kill('SIGKILL')
  await until(() => !workers.some(worker => isAlive(worker.pid)))
  await killed.close()

  const left = await ownDaemon()
  workers = await start(left)
  await left.control.close()
  await until(() => !workers.some(worker => isAlive(worker.pid)))
  const again = new FrameClient(left.uri)
  again.send(KIND.hello, 0, { role: 'control' }, Buffer.from([1]))
  t.match((await again.wait(frame => frame.kind === KIND.ready)).header, { runtime: 'php' })
  again.send(KIND.start, 5, { key: 'x' })
  const started = await again.wait(frame => frame.id === 5)
  t.equal(started.kind, KIND.started, 'a gateway that comes back is served')
  await again.close()
  await until(() => !isAlive(started.header.pid))
  await left.close()
})

t.test(
  '[runtimes/php.7] what goes to descriptors 1 and 2 becomes log frames of the daemon, within a budget',
  async t => {
    const worker = await serve(`function handler($event) {
    if ($event['path'] === '/flood') { for ($i = 0; $i < 600; $i++) fwrite(STDOUT, str_repeat('x', 4095) . "\\n"); return 'done'; }
    fwrite(STDOUT, "raw out é\\n");
    fwrite(STDERR, "raw err\\n");
    file_put_contents('php://stdout', "by name\\n");
    system('echo child out; echo child err >&2');
    return 'ok';
  }`)
    const answer = await worker.call()
    t.equal(answer.text, '"ok"')
    t.match(answer.stdout, /child out/, 'system() prints what its child wrote: that is captured')
    const seen = { stdout: '', stderr: '' }
    const log = (frame: { kind: number; header: Record<string, unknown> }) =>
      frame.kind === KIND.log && frame.header.worker === worker.id
    while (!/by name/.test(seen.stdout) || !/child err/.test(seen.stderr)) {
      const frame = await daemon.control.wait(log)
      seen[frame.header.stream as 'stdout' | 'stderr'] += frame.body.toString()
    }
    t.equal(seen.stdout, 'raw out é\nby name\n')
    t.equal(seen.stderr, 'raw err\nchild err\n')

    t.equal((await worker.call({ path: '/flood' })).text, '"done"', 'a flood ends')
    let bytes = 0
    let note = ''
    while (note === '') {
      const text = (await daemon.control.wait(log)).body.toString()
      bytes += text.length
      note = /\[\d+ bytes of output dropped\]/.exec(text)?.[0] ?? ''
    }
    t.ok(bytes < 1024 * 1024, `${bytes} bytes of 2.4 MB`)
    await worker.close()
    t.equal(daemon.output, '', 'nothing leaks to the daemon itself')
  },
)

t.test('[runtimes/php.8] over tcp: workers listen on a free port of the address the gateway reached', async t => {
  const own = await ownDaemon({ socket: `tcp://127.0.0.1:${20_000 + (process.pid % 20_000)}` })
  const { id, uri } = await own.startWorker()
  t.match(uri, /^tcp:\/\/127\.0\.0\.1:\d+$/)
  own.control.send(KIND.stop, 0, { worker: id, grace_ms: 0 })
  const worker = await serve('function handler($event) { return $event["query"]; }', {}, own)
  t.same(json(await worker.call({ query: { a: '1' } })), { a: '1' })
  await worker.close()
  await own.close()
})

t.test(
  '[runtimes/php.9] a memory limit ends the call that passes it, and the kernel would take a worker first',
  async t => {
    const own = await ownDaemon({ env: { FNGW_WORKER_MEMORY_MB: '32' } })
    const worker = await serve(
      `function handler($event) {
      if ($event['path'] === '/ok') return [ini_get('memory_limit'), trim(file_get_contents('/proc/self/oom_score_adj')),
        preg_match('/Max core file size +0 /', file_get_contents('/proc/self/limits')), getenv('FNGW_WORKER_MEMORY_MB')];
      $a = []; while (true) $a[] = str_repeat('x', 1000000);
    }`,
      {},
      own,
    )
    t.same(json(await worker.call({ path: '/ok' })), ['32M', '1000', 1, false])
    const answer = await worker.call({ path: '/eat' })
    t.equal(answer.kind, 'error')
    t.match(answer.header, {
      code: 'exception',
      message: /^out of memory: limit 32 MB, FN_WORKER_MEMORY_MB \(Allowed memory size of 33554432 bytes exhausted/,
      ends: true,
    })
    t.match((await own.ended(worker)).header, { code: 255 })
    const native = await serve(
      `function handler($event) { $memory = FFI::cdef('void *malloc(size_t); void *memset(void *, int, size_t); void abort(void);');
        while (true) { $block = $memory->malloc(1000000); if ($block === null) $memory->abort(); $memory->memset($block, 1, 1000000); } }`,
      {},
      own,
    )
    await t.rejects(native.call())
    t.match((await own.ended(native)).header, {
      signal: 'SIGABRT',
      reason: /^out of memory: limit 32 MB, .*SIGABRT\)$/,
    })
    const killed = await serve('function handler($event) { posix_kill(posix_getpid(), SIGKILL); }', {}, own)
    await t.rejects(killed.call())
    t.match((await own.ended(killed)).header, { reason: 'ended by SIGKILL, perhaps out of memory' })
    await own.close()
  },
)

t.test(
  '[runtimes/php.10] the handler file is run once, in the global scope, in its folder, after vendor/autoload.php',
  async t => {
    const worker = await serve(
      `require 'lib.php';
    $counter = ($counter ?? 0) + 1;
    function handler($event) {
      global $counter;
      return ['counter' => $counter++, 'cwd' => getcwd(), 'lib' => LIB, 'package' => Package::NAME,
        'env' => [$_ENV['GREETING'], getenv('GREETING'), $_SERVER['GREETING'], $event['env']['GREETING']],
        'own' => array_filter(array_keys(getenv()), fn ($name) => str_starts_with($name, 'FNGW_'))];
    }`,
      {
        env: { GREETING: 'hi there' },
        files: {
          'lib.php': '<?php const LIB = "lib";',
          'vendor/autoload.php': '<?php spl_autoload_register(function ($c) { require __DIR__ . "/src/$c.php"; });',
          'vendor/src/Package.php': '<?php class Package { const NAME = "package"; }',
        },
      },
    )
    const { files } = (await worker.ready()).header
    const folder = dirname(files.find((file: string) => file.endsWith('/handler.php')))
    t.same(files.map((file: string) => file.slice(folder.length + 1)).sort(), [
      'handler.php',
      'lib.php',
      'vendor/autoload.php',
    ])
    for (const counter of [1, 2]) {
      const expected = { counter, cwd: folder, lib: 'lib', package: 'package', env: Array(4).fill('hi there'), own: [] }
      t.same(json(await worker.call()), expected)
    }
    await worker.close()

    const packaged = await serve('', {
      files: {
        'vendor/autoload.php': '<?php require __DIR__ . "/functions.php";',
        'vendor/functions.php': '<?php function handler() { return "not this one"; }',
      },
    })
    t.match((await packaged.ready()).header, { message: /has no function "handler"/ }, 'a package is no handler')
    await packaged.close()
  },
)

const CALLABLES: { name: string; code: string; handler?: string; params?: object; answer: unknown }[] = [
  { name: 'handler', code: 'function handler($event) { return $event["params"]; }', answer: { id: '7' } },
  { name: 'any case', code: 'function Handler() { return 1; }', answer: 1 },
  { name: 'second argument', code: 'function handler($event, array $params) { return $params["id"]; }', answer: '7' },
  { name: 'optional second', code: 'function handler($event, $params = null) { return $params["id"]; }', answer: '7' },
  { name: 'variadic', code: 'function handler(...$all) { return count($all); }', answer: 1 },
  { name: 'one parameter', code: 'function handler($event) { return func_num_args(); }', answer: 1 },
  {
    name: 'in a namespace',
    code: 'namespace App\\Web; function handler($event) { return __FUNCTION__; }',
    answer: 'App\\Web\\handler',
  },
  {
    name: 'named',
    code: 'function handler() { return 1; } function other() { return 2; }',
    handler: 'other',
    answer: 2,
  },
  { name: 'named in a namespace', code: 'namespace A; function other() { return 3; }', handler: 'other', answer: 3 },
  { name: 'returned closure', code: 'return function ($event, $params) { return $params["id"]; };', answer: '7' },
  { name: 'returned arrow function', code: 'return fn ($event) => $event["method"];', answer: 'GET' },
  {
    name: 'returned invokable object',
    code: 'class H { function __invoke($event, $params) { return $params; } } return new H();',
    answer: { id: '7' },
  },
]

t.test(
  '[runtimes/php.11] callables: the named function, in the global or the own namespace, or a returned closure',
  async t => {
    for (const { name, code, handler, answer } of CALLABLES) {
      const worker = await serve(code, { handler: handler ?? null })
      t.same(json(await worker.call({ params: { id: '7' } })), answer, name)
      await worker.close()
    }
  },
)

const LOAD_ERRORS: { name: string; code: string; start?: Partial<WorkerStart>; fields: Record<string, unknown> }[] = [
  {
    name: 'syntax error',
    code: '\nfunction handler( {',
    fields: {
      message: /^syntax error in .*handler\.php:3: unexpected token "{"/,
      line: 3,
      stack: /handler\.php:3\n {4}2 \| $\n {4}3 \| function handler\( \{$/m,
    },
  },
  {
    name: 'syntax error of another kind',
    code: 'function handler() { return [1\n}',
    fields: { message: /^syntax error in .*handler\.php:3: Unclosed '\[' on line 2 does not match '}'$/ },
  },
  {
    name: 'missing function',
    code: 'function hello() {} function Other() {}',
    fields: {
      message: /has no function "handler" \(it defines hello, Other\)$/,
      hint: /define function handler\(array \$event\), or name another function/,
    },
  },
  {
    name: 'no function',
    code: 'echo 1;',
    fields: { message: /has no function "handler" \(it defines none\)$/ },
  },
  {
    name: 'missing named function',
    code: 'function handler() {} return fn () => 1;',
    start: { handler: 'phpinfo' },
    fields: { message: /has no function "phpinfo" \(it defines handler\)$/ },
  },
  {
    name: 'too many parameters',
    code: 'function handler($a, $b, $c) {}',
    fields: { message: 'handler() requires 3 parameters, but is called with two', line: 2, hint: /declare it as/ },
  },
  {
    name: 'exception',
    code: '\nthrow new RuntimeException("no database");',
    fields: { message: /^cannot load .*handler\.php:3: no database$/, line: 3 },
  },
  {
    name: 'missing class',
    code: 'new Acme\\Shape();',
    fields: {
      message: /Class "Acme\\Shape" not found$/,
      hint: /has Acme\\Shape \(composer require .*"autoload" in the function's composer\.json/,
    },
  },
  { name: 'exit', code: 'exit(0);', fields: { message: 'the handler file called exit() or die()' } },
  {
    name: 'declared twice',
    code: 'function handler() {}\nfunction handler() {}',
    fields: { message: /^cannot load .*handler\.php:3: Cannot redeclare/, line: 3 },
  },
  {
    name: 'missing file',
    code: '',
    start: { entry: '/nonexistent/handler.php' },
    fields: { message: 'the handler file is missing or cannot be read', file: '/nonexistent/handler.php' },
  },
  { name: 'missing folder', code: '', start: { dir: '/nonexistent' }, fields: { message: /folder cannot be entered/ } },
  {
    name: 'adapter',
    code: 'function handler() {}',
    start: { adapter: 'edge-worker' },
    fields: { message: 'invoke.adapter "edge-worker" is not available in php' },
  },
]

t.test('[runtimes/php.12] a file that cannot be loaded is told with message, file, line and hint', async t => {
  for (const { name, code, start, fields } of LOAD_ERRORS) {
    const worker = await serve(code, start)
    const frame = await worker.ready()
    t.equal(frame.kind, KIND.error, name)
    t.equal(frame.header.code, 'load', name)
    t.match(frame.header, { file: /handler\.php$/, ...fields }, name)
    await worker.closed
    await daemon.ended(worker)
  }
})

t.test('[runtimes/php.13] the event is an array with every field present', async t => {
  const worker = await serve('function handler($event) { return ["status" => 200, "body" => $event]; }', {
    env: { A: '1' },
    context: { runtime: 'php', function_name: 'f', version: 'v2', timeout_ms: 100 },
  })
  const event = json(await worker.call({ path: '/x', query: { a: ['1', '2'] }, headers: { host: 'h' } }, 'naïve'))
  t.same(event, {
    id: 'req-1',
    ts: 1_700_000_000_000,
    method: 'GET',
    path: '/x',
    raw_path: '/x',
    params: [],
    path_params: [],
    query: { a: ['1', '2'] },
    headers: { host: 'h' },
    body: 'naïve',
    is_base64: false,
    body_base64: null,
    session: null,
    client: { ip: '127.0.0.1', ua: null },
    env: { A: '1' },
    context: {
      request_id: 'req-1',
      runtime: 'php',
      function_name: 'f',
      version: 'v2',
      timeout_ms: 100,
      user: null,
      trigger: null,
      trace: null,
      trace_state: null,
    },
    version: 'v2',
  })
  const bytes = Buffer.from([0xff, 0x00, 0xfe])
  t.match(json(await worker.call({}, bytes)), { body: null, is_base64: true, body_base64: bytes.toString('base64') })
  t.match(json(await worker.call()), { body: null, is_base64: false, body_base64: null })
  const more = { user: { id: 1 }, trigger: { type: 'schedule' }, trace: 'tp', session: { id: 's' } }
  const full = json(await worker.call(more))
  t.match(full, { context: { user: { id: 1 }, trigger: { type: 'schedule' }, trace: 'tp' }, session: { id: 's' } })
  t.match(json(await worker.call()), { context: { user: null, trigger: null } }, 'nothing stays from the call before')
  await worker.close()
})

const JSON_TYPE = { 'content-type': 'application/json' }
const TEXT_TYPE = { 'content-type': 'text/plain; charset=utf-8' }
const BYTES_TYPE = { 'content-type': 'application/octet-stream' }
const OBJECTS = `class J implements JsonSerializable { function __construct(private $v) {} function jsonSerialize(): mixed { return $this->v; } }
  class Point { public $x = 1; protected $y = 2; private $z = 3; }`

/** Return expression, status, headers, body. */
const ENVELOPES: [string, number, Record<string, unknown>, string][] = [
  ['["a" => 1]', 200, JSON_TYPE, '{"a":1}'],
  ['[1, "é/", null, 1.0]', 200, JSON_TYPE, '[1,"é/",null,1.0]'],
  ['[]', 200, JSON_TYPE, '[]'],
  ['"text"', 200, JSON_TYPE, '"text"'],
  ['42', 200, JSON_TYPE, '42'],
  ['1.5', 200, JSON_TYPE, '1.5'],
  ['false', 200, JSON_TYPE, 'false'],
  ['null', 200, {}, ''],
  ['new stdClass()', 200, JSON_TYPE, '{}'],
  ['new Point()', 200, JSON_TYPE, '{"x":1}'],
  ['new J(["a" => 1])', 200, JSON_TYPE, '{"a":1}'],
  ['new J(["status" => 201])', 201, {}, ''],
  ['(object) ["status" => 202, "body" => "o", "headers" => (object) ["x" => "1"]]', 202, { x: '1', ...TEXT_TYPE }, 'o'],
  ['["status" => 201, "body" => ["a" => []]]', 201, JSON_TYPE, '{"a":[]}'],
  ['["status" => 200, "body" => new Point()]', 200, JSON_TYPE, '{"x":1}'],
  ['["statusCode" => 404, "body" => "no"]', 404, TEXT_TYPE, 'no'],
  ['["headers" => ["X-A" => "b"], "body" => "hi"]', 200, { 'X-A': 'b', ...TEXT_TYPE }, 'hi'],
  ['["headers" => [], "data" => 1]', 200, JSON_TYPE, '{"headers":[],"data":1}'],
  [
    '["status" => 200, "headers" => ["Content-Type" => "text/html"], "body" => "<p>"]',
    200,
    { 'Content-Type': 'text/html' },
    '<p>',
  ],
  ['["status" => 200, "headers" => ["content-type" => "application/json"], "body" => "{}"]', 200, JSON_TYPE, '{}'],
  ['["status" => 200, "body" => 7]', 200, JSON_TYPE, '7'],
  ['["status" => 204]', 204, {}, ''],
  [
    '["status" => 200, "headers" => ["set-cookie" => ["a=1", "b=2"], "x-n" => 5, "x-b" => true, "x-0" => null]]',
    200,
    { 'set-cookie': ['a=1', 'b=2'], 'x-n': '5', 'x-b': 'true' },
    '',
  ],
  ['["status" => 200, "is_base64" => true, "body_base64" => "aGk="]', 200, BYTES_TYPE, 'hi'],
  [
    '["body_base64" => "aGk=", "headers" => ["content-type" => "image/png"]]',
    200,
    { 'content-type': 'image/png' },
    'hi',
  ],
  ['["status" => 200, "isBase64Encoded" => true, "body" => "aGk="]', 200, BYTES_TYPE, 'hi'],
  ['["status" => 200, "is_base64" => false, "body" => "aGk="]', 200, TEXT_TYPE, 'aGk='],
]

t.test('[runtimes/php.14] every return value becomes the reply that the response page says', async t => {
  const cases = ENVELOPES.map(([code], index) => `case '/${index}': return ${code};`).join('\n')
  const worker = await serve(`${OBJECTS} function handler($event) { switch ($event['path']) { ${cases} } }`)
  for (const [index, [code, status, headers, body]] of ENVELOPES.entries()) {
    for (const round of ['first', 'again']) {
      const answer = await worker.call({ path: `/${index}` })
      t.same(answer.header, { status, headers }, `${code}, ${round}`)
      t.equal(answer.text, body, `${code}, ${round}`)
    }
  }
  await worker.close()
})

t.test('[runtimes/php.14] bytes that are no UTF-8 are sent as they are', async t => {
  const bytes = Buffer.from([0xff, 0x00, 0x80])
  for (const code of ['"\\xff\\0\\x80"', '["status" => 200, "body" => "\\xff\\0\\x80"]']) {
    const answer = await callOnce(`function handler($event) { return ${code}; }`)
    t.same(answer.header, { status: 200, headers: BYTES_TYPE })
    t.same(answer.body, bytes)
  }
  const echo = await serve('function handler($event) { return base64_decode($event["body_base64"]); }')
  const large = Buffer.alloc(900_000, Buffer.from([0, 255, 128, 10]))
  t.ok((await echo.call({}, large)).body.equals(large))
  await echo.close()
})

t.test(
  '[runtimes/php.29] long bodies lie in memory that the worker keeps, and are gone when their call is over',
  async t => {
    const echo = await serve(`function handler($event) {
    $now = ['faults' => getrusage()['ru_minflt'], 'used' => memory_get_usage(), 'chunks' => memory_get_usage(true)];
    $headers = ['x-now' => json_encode($now)];
    if (!$event['is_base64']) return ['status' => 200, 'headers' => $headers, 'body' => 'small'];
    return ['status' => 200, 'headers' => $headers, 'is_base64' => true, 'body_base64' => $event['body_base64']];
  }`)
    const call = async (body: Buffer) => {
      const answer = await echo.call({}, body)
      return { now: JSON.parse(answer.header.headers['x-now']), body: answer.body }
    }
    const small = Buffer.from('small')
    const first = (await call(small)).now
    const sizes = [64 << 10, (64 << 10) + 1, 1 << 20, (1 << 20) - 1, 700_001]
    const bodies = sizes.map((bytes, at) => Buffer.alloc(bytes, Buffer.from([0xff, at, 0x80])))
    const round = async () => {
      for (const body of bodies)
        if (!(await call(body)).body.equals(body)) t.fail(`${body.length} bytes came back otherwise`)
      return (await call(small)).now
    }
    await round()
    const before = await round()
    for (let n = 0; n < 4; n++) await round()
    const after = (await call(small)).now
    const faults = (after.faults - before.faults) / (4 * bodies.length)
    t.ok(faults < 40, `${faults} new pages a call: 1 MiB and its base64 text have 600`)
    t.ok(after.used - first.used < 256 << 10, 'nothing of a body is left in the next call')
    t.ok(after.chunks - first.chunks <= 6 << 20, 'two chunks are kept, and one that the allocator keeps by itself')
    await echo.close()
  },
)

t.test(
  '[runtimes/php.30] headers say what they are now, also when what they are made of is the same as before',
  async t => {
    const makes: [string, string][] = [
      ['a reference', '$headers ??= ["x-n" => &$n];'],
      ['a reference in a list', '$headers ??= ["x-n" => [&$n]];'],
      ['a list that is one', '$list = [$n]; $headers ??= ["x-n" => &$list];'],
      ['an object', '$text ??= new Text(); $text->is = $n; $headers = ["x-n" => $text];'],
      ['an object in a list', '$text ??= new Text(); $text->is = $n; $headers = ["x-n" => [$text]];'],
    ]
    for (const [name, make] of makes) {
      const worker =
        await serve(`final class Text { public $is = ''; function __toString(): string { return (string) $this->is; } }
      function handler($event) {
        static $headers = null, $text = null, $list = null, $n;
        $n = $event['id'];
        ${make}
        return ['status' => 200, 'headers' => $headers, 'body' => ''];
      }`)
      for (const id of ['one', 'two', 'two', 'three']) {
        const answer = await worker.call({ id })
        t.same([answer.header.headers['x-n']].flat(), [id], name)
      }
      await worker.close()
    }
  },
)

t.test('[runtimes/php.15] proxy: the directive in the header, its body as the frame body', async t => {
  const directive = '["path" => "/up", "method" => "POST", "headers" => ["x" => 1], "timeout_ms" => 50'
  const cases: [string, Record<string, unknown>, string][] = [
    [`${directive}, "body" => "raw"]`, { x: '1' }, 'raw'],
    [`${directive}, "body" => ["a" => 1]]`, { x: '1', ...JSON_TYPE }, '{"a":1}'],
    [`${directive}, "is_base64" => true, "body_base64" => "aGk="]`, { x: '1' }, 'hi'],
    [`${directive}]`, { x: '1' }, ''],
  ]
  for (const [code, headers, body] of cases) {
    const answer = await callOnce(`function handler($event) { return ["proxy" => ${code}]; }`)
    t.same(answer.header, { proxy: { path: '/up', method: 'POST', headers, timeout_ms: 50 } })
    t.equal(answer.text, body)
  }
  const plain = await callOnce('function handler($event) { return ["proxy" => ["path" => "/"]]; }')
  t.same(plain.header, { proxy: { path: '/', headers: {} } }, 'headers stay an object when empty')
})

const BROKEN: [string, string | RegExp][] = [
  ['["status" => "200"]', 'status must be an integer from 100 to 599, got "200" (string)'],
  ['["status" => 99]', /got 99 \(number\)$/],
  ['["status" => 600]', /got 600 \(number\)$/],
  ['["status" => 200.5]', /got 200\.5 \(number\)$/],
  ['["status" => null]', /got null$/],
  ['["status" => true]', /got true \(boolean\)$/],
  ['["statusCode" => []]', /got an array of 0 items$/],
  ['["status" => str_repeat("é", 500)]', /got "é{60}\.\.\." \(string\)$/],
  ['["status" => 200, "headers" => "x"]', 'headers must be an object, got "x" (string)'],
  ['["status" => 200, "headers" => ["X: 1"]]', 'headers must be an object, got an array of 1 item'],
  ['["status" => 200, "headers" => ["a b" => "1"]]', 'header name "a b" is not allowed in HTTP'],
  [
    '["status" => 200, "headers" => ["x" => "a\\r\\nb: c"]]',
    'header "x" holds the character U+000D, which HTTP does not allow there',
  ],
  ['["status" => 200, "headers" => ["x" => "€"]]', /header "x" holds the character/],
  ['["status" => 200, "headers" => ["x" => "\\xe9"]]', /header "x" holds bytes that are not UTF-8/],
  [
    '["status" => 200, "headers" => ["x" => new stdClass()]]',
    'header "x" must be a string, a number, a boolean or a list of them, got an object',
  ],
  ['["status" => 200, "is_base64" => true]', 'is_base64 is true, but body_base64 is missing'],
  ['["status" => 200, "is_base64" => 1]', 'is_base64 must be true or false, got 1 (number)'],
  [
    '["status" => 200, "is_base64" => true, "body_base64" => "a!"]',
    'body_base64 must be base64 text, got "a!" (string)',
  ],
  ['["proxy" => "x"]', 'proxy must be an object, got "x" (string)'],
  ['["a" => INF]', /^the answer cannot be written as JSON: inf and NaN/],
  ['NAN', /^the answer cannot be written as JSON/],
  ['["a" => "\\xff"]', /cannot be written as JSON: malformed UTF-8/],
  ['["a" => fopen("php://memory", "r")]', /cannot be written as JSON: type is not supported/],
  ['fn () => 1', 'the answer is a Closure, which cannot be sent'],
]

t.test('[runtimes/php.16] an answer that breaks the contract is told with value and type', async t => {
  const cases = BROKEN.map(([code], index) => `case '/${index}': return ${code};`).join('\n')
  const worker = await serve(`function handler($event) { switch ($event['path']) { ${cases} } }`)
  for (const [index, [code, message]] of BROKEN.entries()) {
    const answer = await worker.call({ path: `/${index}` })
    t.match(answer.header, { code: 'contract', message }, code)
  }
  t.equal((await worker.call({ path: '/none' })).header.status, 200, 'the worker goes on')
  await worker.close()
})

t.test('[runtimes/php.17] exceptions, warnings, fatal errors and exit answer their own call', async t => {
  const worker = await serve(`
    class Oops extends Exception {}
    function deep($n) { return $n === 0 ? throw new Oops("broken \\xff", 5, new LogicException('root cause')) : deep($n - 1); }
    function handler($event) {
      switch ($event['path']) {
        case '/throw': return deep(3);
        case '/empty': throw new Oops();
        case '/undefined': return nosuch();
        case '/type': return strlen([]);
        case '/user-error': trigger_error('stop here', E_USER_ERROR);
        case '/warn': $x = $undefined; trigger_error('careful', E_USER_WARNING); @file_get_contents('/nope');
          error_log('logged'); return error_get_last()['message'];
      }
      return 'ok';
    }`)
  const thrown = await worker.call({ path: '/throw' })
  t.match(thrown.header, { code: 'exception', message: 'broken \ufffd', line: 4, file: /handler\.php$/ })
  t.match(thrown.header.stack, /^Oops: broken .+caused by LogicException: root cause/s)
  t.equal(thrown.header.stack.match(/\(deep\)/g).length, 8, 'frames of both causes')
  t.notMatch(thrown.header.stack, /runtimes\/php/, 'frames of the runtime are left out')
  t.match((await worker.call({ path: '/empty' })).header, { message: 'Oops' })
  t.match((await worker.call({ path: '/undefined' })).header, { message: 'Call to undefined function nosuch()' })
  t.match((await worker.call({ path: '/type' })).header, { message: /strlen\(\): Argument #1/ })
  t.match((await worker.call({ path: '/user-error' })).header, { code: 'exception', message: 'stop here' })
  const warned = await worker.call({ path: '/warn' })
  t.match(json(warned), /^file_get_contents\(\/nope\)/, 'a silenced warning is still the last error')
  t.match(
    warned.stderr,
    /^PHP Warning: {2}Undefined variable \$undefined in .+handler\.php on line \d+\nPHP Warning: {2}careful in .+\nlogged\n$/,
  )
  t.equal(warned.stdout, '')
  t.equal((await worker.call()).text, '"ok"', 'one worker served them all')
  await worker.close()

  const enders: [string, RegExp, number][] = [
    ['exit(3);', /^the handler called exit\(\) or die\(\)$/, 3],
    ['die("bye");', /^the handler called exit\(\) or die\(\)$/, 0],
    ['set_time_limit(1); while (true);', /^Maximum execution time of 1 second exceeded$/, 255],
    ['eval("class A { abstract function f(); }");', /^Class A contains 1 abstract method/, 255],
  ]
  for (const [code, message, exit] of enders) {
    const ender = await serve(`function handler($event) { if ($event['path'] === '/end') { ${code} } return 'ok'; }`)
    t.equal((await ender.call()).text, '"ok"')
    const ended = ender.call({ path: '/end' })
    const behind = ender.open()
    t.match((await ended).header, { code: 'exception', message, ends: true }, code)
    await ender.closed
    t.notOk(
      ender.frames.some(frame => frame.id === behind),
      'a call sent ahead was not begun',
    )
    t.equal((await daemon.ended(ender)).header.code, exit, code)
  }
})

t.test(
  '[runtimes/php.18] prints are captured per call, bounded, whatever the handler does to output buffers',
  async t => {
    const worker = await serve(`
    echo "at load\\n";
    function handler($event) {
      switch ($event['path']) {
        case '/print': echo 'a'; print 'b'; printf('%s', 'c'); var_dump(1); ?>html<?php return 1;
        case '/much': for ($i = 0; $i < 20000; $i++) echo "0123456789"; return 1;
        case '/bytes': echo "x\\xffy"; return 1;
        case '/open': ob_start(); echo 'kept '; ob_start(); echo 'open'; return 1;
        case '/own': ob_start(); echo 'mine'; return ob_get_clean();
        case '/close': while (ob_get_level()) ob_end_clean(); echo "raw\\n"; return 1;
        case '/hang': echo 'before '; error_log('also'); while (true);
      }
    }`)
    const atLoad = await worker.wait(frame => frame.kind === KIND.log)
    t.same([atLoad.id, atLoad.body.toString()], [0, 'at load\n'])
    t.equal((await worker.call({ path: '/print' })).stdout, 'abcint(1)\nhtml')
    const before = worker.frames.length
    const much = await worker.call({ path: '/much' })
    t.equal(much.stdout.length, 64 * 1024 + '\n[output beyond 64 KiB dropped]\n'.length)
    t.equal(before, worker.frames.length)
    t.equal((await worker.call({ path: '/bytes' })).stdout, 'x\ufffdy')
    t.equal((await worker.call({ path: '/open' })).stdout, 'kept open')
    const own = await worker.call({ path: '/own' })
    t.same([own.text, own.stdout], ['"mine"', ''])
    t.equal((await worker.call({ path: '/close' })).text, '1')
    t.equal((await worker.call({ path: '/print' })).stdout, 'abcint(1)\nhtml', 'captured again')
    const id = worker.open({ path: '/hang' })
    const seen = [await worker.wait(frame => frame.id === id), await worker.wait(frame => frame.id === id)]
    t.same(
      seen.map(frame => [frame.header.stream, frame.body.toString()]),
      [
        ['stdout', 'before '],
        ['stderr', 'also\n'],
      ],
      'what a call that hangs has printed is known',
    )
    daemon.control.send(KIND.stop, 0, { worker: worker.id, grace_ms: 0 })
    await daemon.ended(worker)
  },
)

t.test('[runtimes/php.19] calls sent ahead run in order; each is answered before the next begins', async t => {
  const worker = await serve(`function handler($event) {
    static $n = 0;
    if ($event['path'] === '/slow') { echo 'begun'; usleep(50000); }
    if ($event['path'] === '/loop') while (true);
    return ++$n;
  }`)
  const ids = Array.from({ length: 50 }, () => worker.open())
  const answers = await Promise.all(ids.map(id => worker.collect(id)))
  t.same(
    answers.map(json),
    ids.map((_, index) => index + 1),
  )

  const quick = worker.open()
  const slow = worker.open({ path: '/slow' })
  const canceled = worker.open()
  const last = worker.open()
  worker.send(KIND.cancel, canceled)
  t.equal(json(await worker.collect(quick)), 51)
  t.equal(json(await worker.collect(slow)), 52)
  t.same((await worker.collect(canceled)).end, { canceled: true })
  t.equal(json(await worker.collect(last)), 53, 'a cancelled call did not run')

  const late = worker.open({ path: '/slow' })
  const behind = worker.open()
  await worker.wait(frame => frame.kind === KIND.log && frame.id === late)
  worker.send(KIND.cancel, behind)
  t.equal(json(await worker.collect(late)), 54)
  t.same((await worker.collect(behind)).end, { canceled: true }, 'cancelled while the one before it ran')

  const done = worker.open()
  worker.open({ path: '/loop' })
  t.equal(json(await worker.collect(done)), 55, 'answered although the next call never ends')
  worker.send(KIND.ping, 0)
  daemon.control.send(KIND.stop, 0, { worker: worker.id, grace_ms: 0 })
  await daemon.ended(worker)
})

t.test('[runtimes/php.20] a body above 1 MiB goes out in chunks, at most 256 KiB ahead of the reader', async t => {
  const worker = await serve(`function handler($event) {
    return ['status' => 200, 'headers' => ['content-type' => 'x/y'], 'body' => str_repeat('0123456789abcdef', 1024 * 1024)];
  }`)
  const id = worker.open()
  const head = await worker.wait(frame => frame.id === id)
  t.same(head.header, { status: 200, headers: { 'content-type': 'x/y' }, stream: true, length: 16 * 1024 * 1024 })
  let bytes = 0
  for (let chunks = 0; chunks < 4; chunks++) bytes += (await worker.wait(frame => frame.id === id)).body.length
  t.equal(bytes, 256 * 1024)
  worker.send(KIND.ping, 1000)
  await worker.wait(frame => frame.kind === KIND.pong)
  t.notOk(
    worker.frames.some(frame => frame.id === id),
    'waits for more',
  )
  worker.send(KIND.more, id, { bytes })
  const rest = await worker.collect(id)
  t.equal(rest.body.length + bytes, 16 * 1024 * 1024)
  t.same(rest.end, {})

  const abandoned = worker.open()
  await worker.wait(frame => frame.id === abandoned)
  worker.send(KIND.cancel, abandoned)
  const left = await worker.collect(abandoned)
  t.same(left.end, { canceled: true })
  t.equal((await worker.call()).body.length, 16 * 1024 * 1024, 'the next call is served')
  await worker.close()
})

t.test('[runtimes/php.21] a generator is streamed: each piece at once, its end and its failures told', async t => {
  const worker = await serve(`function handler($event) {
    $pieces = (function () use ($event) {
      try {
        if ($event['path'] === '/early') throw new Exception('too early');
        yield 'one';
        if ($event['path'] === '/fail') throw new Exception('too late');
        if ($event['path'] === '/type') yield [];
        if ($event['path'] === '/endless') while (true) yield str_repeat('x', 100000);
        yield 2;
      } finally { error_log('cleaned up'); }
    })();
    if ($event['path'] === '/events') return ['headers' => ['content-type' => 'text/event-stream'], 'body' => $pieces];
    return $pieces;
  }`)
  const whole = await worker.call()
  t.same(whole.header, { status: 200, headers: TEXT_TYPE, stream: true })
  t.same([whole.text, whole.chunks, whole.end, whole.stderr], ['one2', [3, 1], {}, 'cleaned up\n'])
  t.match(await worker.call({ path: '/events' }), {
    text: 'one2',
    header: { headers: { 'content-type': 'text/event-stream' } },
  })
  t.match((await worker.call({ path: '/early' })).header, { code: 'exception', message: 'too early' })
  t.match(await worker.call({ path: '/fail' }), { text: 'one', end: { error: 'too late' } })
  t.match((await worker.call({ path: '/type' })).end, { error: /must be text or bytes, got an array of \d items?/ })
  const id = worker.open({ path: '/endless' })
  await worker.wait(frame => frame.id === id && frame.kind === KIND.chunk)
  worker.send(KIND.cancel, id)
  const canceled = await worker.collect(id)
  t.same([canceled.end, canceled.stderr], [{ canceled: true }, 'cleaned up\n'])
  t.equal((await worker.call()).text, 'one2')
  await worker.close()
})

t.test('[runtimes/php.22] a worker refuses peers that do not greet it, and ends with its connection', async t => {
  const cases: [string, RegExp][] = [
    ['00000009100000000000000000', /first frame must be hello/],
    ['ffffffff', /is above/],
    ['00000009630000000000000000', /unknown frame kind 99/],
  ]
  const started = await daemon.startWorker()
  const silent = new FrameClient(started.uri)
  for (const [hex, message] of cases) {
    const client = new FrameClient(started.uri)
    client.socket.write(Buffer.from(hex, 'hex'))
    t.match((await client.wait(frame => frame.kind === KIND.error)).header, { code: 'protocol', message })
    await client.closed
  }
  const gateway = new FrameClient(started.uri)
  gateway.send(KIND.hello, 0, { role: 'worker' }, Buffer.from([1]))
  gateway.send(KIND.call, 1)
  const refused = await gateway.wait(frame => frame.kind === KIND.error)
  t.match(refused.header, { code: 'protocol', message: 'the second frame must be start' }, 'they did not use it up')
  await gateway.closed
  t.match((await daemon.ended(started)).header, { code: 0 })
  await silent.close()

  const worker = await serve('function handler($event) { return "ok"; }')
  await worker.ready()
  worker.send(KIND.call, 9, '[1]')
  t.match((await worker.wait(frame => frame.kind === KIND.error)).header, { message: /not a JSON object/ })
  await worker.closed
  t.match((await daemon.ended(worker)).header, { code: 0 })
})

t.test('[runtimes/php.23] programs a handler starts get none of the worker’s descriptors', async t => {
  const answer = await callOnce(
    'function handler($event) { exec("ls -l /proc/self/fd | grep -c socket", $out); return $out; }',
  )
  t.same(json(answer), ['0'])
})

t.test('[runtimes/php.23] what the gateway’s own process inherited stays out of daemon and workers', async t => {
  tree.write({ secret: 'of somebody else' })
  const path = tree.path('secret')
  const own = await ownDaemon({ wrap: ['sh', '-c', `exec "$0" "$@" 3<${path} 6<${path} 9<${path}`] })
  const worker = await serve(
    `function handler($event) {
      foreach ([posix_getpid(), posix_getppid(), ${own.child.pid}] as $pid)
        foreach (glob("/proc/$pid/fd/*") as $fd) $open[] = @readlink($fd);
      return array_values(array_filter($open, fn ($path) => str_contains((string) $path, 'secret')));
    }`,
    {},
    own,
  )
  t.same(json(await worker.call()), [])
  await worker.close()
  await own.close()
})

t.test(
  '[runtimes/php.26, runtime/wire-protocol.3] frames above their kind’s limit are refused, and none is sent',
  async t => {
    const limits = spawnSync('php', [join(FIXTURES, 'frame-limits.php')], { encoding: 'utf8' })
    t.same(JSON.parse(limits.stdout), [], limits.stderr)
    const client = new FrameClient(daemon.uri)
    client.send(KIND.hello, 0, { role: 'control' }, Buffer.from([1]))
    await client.wait(frame => frame.kind === KIND.ready)
    // Refused by its first bytes: the rest never comes.
    client.socket.write(Buffer.from('00a00009050000000000a00000', 'hex'))
    t.match((await client.wait(frame => frame.kind === KIND.error)).header.message, /^header of a frame of kind 5 is/)
    await client.closed
    const worker = await serve(`function handler($event) {
    switch ($event['path']) {
      case '/header': return ['status' => 200, 'headers' => array_fill_keys(array_map(fn ($n) => "x-$n", range(1, 600)), str_repeat('v', 1000))];
      case '/proxy': return ['proxy' => ['path' => str_repeat('x', 600000)]];
      case '/message': throw new Exception(str_repeat("\0", 100000));
      case '/contract': return ['status' => 200, 'headers' => [str_repeat('x', 100000) . ' ' => '1']];
      case '/print': echo str_repeat("\\xff", 70000); return 1;
      case '/raw': fwrite(STDOUT, str_repeat("\\x80", 25000)); return 'done';
    }
  }`)
    t.match((await worker.call({ path: '/header' })).header, { code: 'contract', message: /larger than 512 KiB$/ })
    t.match((await worker.call({ path: '/proxy' })).header, { code: 'contract', message: /larger than 512 KiB$/ })
    t.match((await worker.call({ path: '/message' })).header, { code: 'exception', message: '\0'.repeat(4096) })
    t.match((await worker.call({ path: '/contract' })).header, { code: 'contract', message: /^header name/ })
    const printed = worker.open({ path: '/print' })
    await worker.wait(frame => frame.kind === KIND.reply && frame.id === printed)
    const captured = worker.frames.filter(frame => frame.kind === KIND.log && frame.id === printed)
    t.ok(captured.length > 1)
    for (const { body } of captured) t.ok(body.length <= 64 * 1024, `${body.length} bytes`)
    t.equal((await worker.call({ path: '/raw' })).text, '"done"')
    await worker.close()
    await daemon.ended(worker)
    const raw = daemon.control.frames.filter(f => f.kind === KIND.log && f.header.worker === worker.id)
    t.ok(raw.length > 1)
    for (const { body } of raw) t.ok(body.length <= 64 * 1024, `${body.length} bytes`)
  },
)

t.test(
  '[runtimes/php.27, runtime/wire-protocol.11] what is included is told, wherever it lies, also by a call',
  async t => {
    const site = makeTree({
      'vendor/root/handler.php': `<?php
      require '../../elsewhere/helper.php';
      require 'vendor/autoload.php';
      function handler($event) {
        if (isset($event['query']['lazy'])) { require_once '../../elsewhere/lazy.php'; require_once 'vendor/installed/more.php'; return LAZY; }
        return [HELPER, LINKED];
      }`,
      'vendor/root/vendor/autoload.php':
        '<?php require __DIR__ . "/linked/a.php"; require __DIR__ . "/installed/b.php";',
      'vendor/root/vendor/installed/b.php': '<?php',
      'vendor/root/vendor/installed/more.php': '<?php',
      'vendor/root/vendor/linked': { symlink: '../../../workspace/linked' },
      'workspace/linked/a.php': '<?php const LINKED = "linked";',
      'elsewhere/helper.php': '<?php const HELPER = "helper";',
      'elsewhere/lazy.php': '<?php const LAZY = "lazy";',
    })
    t.teardown(() => site.cleanup())
    const dir = site.path('vendor/root')
    const start = { dir, root: dir, entry: `${dir}/handler.php` }
    const worker = await daemon.worker(start)
    const first = [
      'elsewhere/helper.php',
      'vendor/root/handler.php',
      'vendor/root/vendor/autoload.php',
      'workspace/linked/a.php',
    ]
    t.same((await worker.ready()).header.files.sort(), first.map(site.path))
    t.same(json(await worker.call()), ['helper', 'linked'])
    t.equal(json(await worker.call({ query: { lazy: '1' } })), 'lazy')
    t.same((await worker.wait(frame => frame.kind === KIND.loaded)).header, {
      files: [site.path('elsewhere/lazy.php')],
    })
    t.equal(json(await worker.call({ query: { lazy: '1' } })), 'lazy')
    t.notOk(
      worker.frames.some(frame => frame.kind === KIND.loaded),
      'told once',
    )
    await worker.close()
    const served = await daemon.worker({ ...start, production: true })
    for (let i = 0; i < 2; i++) t.equal(json(await served.call({ query: { lazy: '1' } })), 'lazy')
    t.notOk(
      served.frames.some(frame => frame.kind === KIND.loaded),
      'in development only',
    )
    await served.close()
  },
)

t.test('[runtimes/php.17] a stack shows the user’s own frames, and the place is the innermost of them', async t => {
  const worker = await serve(
    `
function parse() {
  return Package::fail();
}
function deep($n) { return $n === 0 ? parse() : deep($n - 1); }
function handler($event) { return deep((int) $event['query']['n']); }`,
    {
      files: {
        'vendor/autoload.php': '<?php require __DIR__ . "/package.php";',
        'vendor/package.php': '<?php class Package { static function fail() { throw new Exception("no good"); } }',
      },
    },
  )
  const { header } = await worker.call({ query: { n: '0' } })
  t.match(header, { message: 'no good', file: /handler\.php$/, line: 4 })
  t.match(header.stack, /^Exception: no good\n {4}at .*handler\.php:4 \(Package::fail\)\n/)
  t.notMatch(header.stack, /vendor|runtimes\/php/)
  const deep = (await worker.call({ query: { n: '5000' } })).header.stack
  t.ok(Buffer.byteLength(deep) <= 8 * 1024 && deep.length > 6 * 1024, `${deep.length}`)
  await worker.close()
})

t.test('[runtimes/php.24] without FFI: same answers, output through the daemon, an alarm against orphans', async t => {
  const own = await ownDaemon({ env: { PHP_INI_SCAN_DIR: `:${makeIniFolder()}` } })
  const worker = await serve(
    'function handler($event) { fwrite(STDOUT, "plain\\n"); echo "captured"; return class_exists("FFI") && ini_get("ffi.enable"); }',
    { context: { timeout_ms: 1000 } },
    own,
  )
  const answer = await worker.call()
  t.same([answer.text, answer.stdout], ['false', 'captured'])
  await until(() => own.output.includes('plain\n'))
  await worker.close()
  t.match((await own.ended(worker)).header, { code: 0 })
  await own.close()
})

t.test(
  '[runtimes/php.25] without descriptors left a start is refused with a reason, and the daemon serves on',
  async t => {
    const php = spawnSync('sh', ['-c', 'command -v php'], { encoding: 'utf8' }).stdout.trim()
    tree.write({ 'bin/php': `#!/bin/sh\nulimit -n 32\nexec ${php} "$@"\n` })
    chmodSync(tree.path('bin/php'), 0o755)
    const own = await ownDaemon({ env: { PATH: `${tree.path('bin')}:${process.env.PATH}` } })
    const started: Awaited<ReturnType<typeof own.startWorker>>[] = []
    let why = ''
    while (why === '' && started.length < 40) {
      await own.startWorker().then(
        worker => started.push(worker),
        error => (why = error.message),
      )
    }
    t.match(why, /too many open files/i)
    t.ok(started.length > 3)
    const count = () => readdirSync(`/proc/${own.child.pid}/fd`).length
    const before = count()
    for (let i = 0; i < 5; i++) await t.rejects(own.startWorker(), /too many open files/i)
    t.equal(count(), before, 'a refused start leaves nothing open')
    const [first] = started
    own.control.send(KIND.stop, 0, { worker: first!.id, grace_ms: 0 })
    await own.ended(first!)
    t.match(await own.startWorker(), { pid: Number })
    await own.close()
  },
)

function makeIniFolder(): string {
  tree.write({ 'ini/no-ffi.ini': 'ffi.enable=0\n' })
  return tree.path('ini')
}
