/** Handlers that do what handlers should not, by language: `GET /<language>/<name>` runs one. */

export interface HostileHandler {
  source: string
  /** Statuses of its own call that are right. */
  allowed: readonly number[]
  /** Its answer may break off. */
  mayBeCut?: boolean
}

const node = (body: string): string => `import fs from 'node:fs'
import os from 'node:os'
import { spawn, spawnSync, execSync } from 'node:child_process'
export const handler = async event => {
${body}
}
`
const python = (body: string): string => `import os, sys, signal, socket, time, builtins, json, threading
def handler(event):
${body
  .split('\n')
  .map(line => `    ${line}`)
  .join('\n')}
`
const php = (body: string): string => `<?php
function handler($event) {
${body}
}
`

/** 1,000,000 headers, a large reply, endless ones. */
export const NODE: Record<string, HostileHandler> = {
  'many-headers': {
    source: node(`  const headers = {}
  for (let i = 0; i < 1e6; i++) headers['h' + i] = 'v'
  return { status: 200, headers, body: 'x' }`),
    allowed: [500, 502, 504],
  },
  'long-header': {
    source: node(`  return { status: 200, headers: { a: 'x'.repeat(20e6) }, body: 'x' }`),
    allowed: [500, 502, 504],
  },
  'huge-reply': { source: node(`  return 'x'.repeat(48 * 1024 * 1024)`), allowed: [200], mayBeCut: true },
  endless: {
    source: node(
      `  return { status: 200, headers: {}, body: (async function* () { for (;;) yield 'x'.repeat(65536) })() }`,
    ),
    allowed: [200],
    mayBeCut: true,
  },
  'endless-sync': {
    source: node(`  return { status: 200, headers: {}, body: (function* () { for (;;) yield 'x'.repeat(65536) })() }`),
    allowed: [200],
    mayBeCut: true,
  },
  loop: { source: node('  for (;;) {}'), allowed: [504] },
  exit: { source: node('  process.exit(0)'), allowed: [500, 503] },
  'exit-1': { source: node('  process.reallyExit(1)'), allowed: [500, 503] },
  abort: { source: node('  process.abort()'), allowed: [500, 503] },
  segv: { source: node(`  process.kill(process.pid, 'SIGSEGV'); for (;;) {}`), allowed: [500, 503] },
  'kill-parent': {
    source: node(`  process.kill(process.ppid, 'SIGKILL'); await new Promise(r => setTimeout(r, 100)); return 'alive'`),
    allowed: [200, 500, 503],
  },
  'kill-group': {
    source: node(`  process.kill(0, 'SIGKILL'); return 'alive'`),
    allowed: [200, 500, 503],
  },
  'stop-itself': { source: node(`  process.kill(process.pid, 'SIGSTOP'); return 'resumed'`), allowed: [504, 503, 200] },
  fork: {
    source: node(`  spawn('sleep', ['300'], { stdio: 'ignore' }); return 'forked'`),
    allowed: [200],
  },
  daemonise: {
    source: node(`  spawn('setsid', ['sleep', '3'], { stdio: 'inherit', detached: true }).unref(); return 'away'`),
    allowed: [200],
  },
  signals: {
    source: node(
      `  for (const s of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGPIPE']) process.on(s, () => {}); for (;;) {}`,
    ),
    allowed: [504],
  },
  chdir: { source: node(`  process.chdir('/'); return process.cwd()`), allowed: [200] },
  umask: { source: node('  process.umask(0o777); return 1'), allowed: [200] },
  'close-fds': {
    source: node('  for (let fd = 0; fd < 64; fd++) { try { fs.closeSync(fd) } catch {} }\n  return 1'),
    allowed: [200, 500, 503, 504],
  },
  'write-fds': {
    source: node(
      `  for (let fd = 3; fd < 64; fd++) { try { fs.writeSync(fd, 'garbage garbage garbage') } catch {} }\n  return 1`,
    ),
    allowed: [200, 500, 503, 504],
  },
  patch: {
    source: node(`  JSON.stringify = () => { throw new Error('no') }
  JSON.parse = () => 7
  Buffer.from = () => null
  Promise.prototype.then = () => 0
  Map.prototype.get = () => undefined
  globalThis.setTimeout = () => {}
  globalThis.setImmediate = () => {}
  process.nextTick = () => {}
  Object.prototype.status = 99
  Object.prototype.stream = true
  return { status: 200, headers: {}, body: 'patched' }`),
    allowed: [200, 500, 502, 503, 504],
  },
  throw: {
    source: node(`  setTimeout(() => { throw new Error('later') }, 1); await new Promise(() => {})`),
    allowed: [500, 503],
  },
  'throw-null': { source: node('  throw null'), allowed: [500] },
  proxy: {
    source: node(
      `  return new Proxy({}, { get() { throw new Error('trap') }, ownKeys() { throw new Error('trap') } })`,
    ),
    allowed: [500, 502],
  },
  circular: { source: node('  const a = {}; a.a = a; return a'), allowed: [500, 502] },
  deep: { source: node('  let a = []; for (let i = 0; i < 1e6; i++) a = [a]; return a'), allowed: [500, 502, 503] },
  recursion: { source: node('  const f = () => f() + 1; return f()'), allowed: [500] },
  memory: {
    source: node(`  const all = []; for (;;) all.push(new Array(1e6).fill(Math.random()))`),
    allowed: [500, 503, 504],
  },
  'native-memory': {
    source: node(`  const all = []; for (;;) all.push(Buffer.alloc(64e6, 1))`),
    allowed: [500, 503, 504],
  },
  unhandled: { source: node(`  Promise.reject(new Error('nobody')); return 1`), allowed: [200, 500] },
  flood: { source: node(`  for (let i = 0; i < 2e5; i++) console.log(i); return 1`), allowed: [200, 504] },
  'raw-flood': {
    source: node(
      `  const b = Buffer.alloc(65536, 10); for (let i = 0; i < 400; i++) { try { fs.writeSync(1, b) } catch {} }; return 1`,
    ),
    allowed: [200, 504],
  },
  status: { source: node(`  return { status: '200', headers: {}, body: '' }`), allowed: [502] },
  'status-nan': { source: node(`  return { status: NaN, headers: {}, body: '' }`), allowed: [502] },
  'status-99': { source: node(`  return { status: 99, headers: {}, body: '' }`), allowed: [502] },
  'headers-list': { source: node(`  return { status: 200, headers: ['a'], body: '' }`), allowed: [502] },
  'header-split': {
    source: node(`  return { status: 200, headers: { a: 'x\\r\\nset-cookie: y' }, body: '' }`),
    allowed: [502],
  },
  'fill-tmp': {
    source: node(
      `  fs.writeFileSync(os.tmpdir() + '/fngw-hostile-file', 'x'); fs.unlinkSync(os.tmpdir() + '/fngw-hostile-file'); return 1`,
    ),
    allowed: [200],
  },
}

export const PYTHON: Record<string, HostileHandler> = {
  'many-headers': {
    source: python(`return {'status': 200, 'headers': {'h%d' % i: 'v' for i in range(1000000)}, 'body': 'x'}`),
    allowed: [500, 502, 504],
  },
  'huge-reply': { source: python(`return 'x' * (48 * 1024 * 1024)`), allowed: [200], mayBeCut: true },
  endless: {
    source: python(
      `def pieces():\n    while True: yield 'x' * 65536\nreturn {'status': 200, 'headers': {}, 'body': pieces()}`,
    ),
    allowed: [200],
    mayBeCut: true,
  },
  loop: { source: python('while True: pass'), allowed: [504] },
  exit: { source: python('sys.exit(0)'), allowed: [500, 503] },
  'exit-now': { source: python('os._exit(3)'), allowed: [503] },
  segv: { source: python('os.kill(os.getpid(), signal.SIGSEGV)\ntime.sleep(5)'), allowed: [503] },
  'kill-parent': {
    source: python(`os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(0.2)\nreturn 'alive'`),
    allowed: [200, 500, 503],
  },
  'kill-group': { source: python(`os.killpg(0, signal.SIGKILL)\nreturn 'alive'`), allowed: [200, 503] },
  'stop-itself': { source: python('os.kill(os.getpid(), signal.SIGSTOP)\nreturn 1'), allowed: [200, 503, 504] },
  fork: { source: python(`if os.fork() == 0:\n    time.sleep(300)\nreturn 'forked'`), allowed: [200] },
  'fork-return': { source: python(`os.fork()\nreturn 'both'`), allowed: [200, 500, 503] },
  daemonise: {
    source: python(
      `if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(3)\n    os._exit(0)\nreturn 'away'`,
    ),
    allowed: [200],
  },
  signals: {
    source: python(
      `for s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nwhile True: pass`,
    ),
    allowed: [504],
  },
  chdir: { source: python(`os.chdir('/')\nreturn os.getcwd()`), allowed: [200] },
  umask: { source: python('os.umask(0o777)\nreturn 1'), allowed: [200] },
  'close-fds': { source: python('os.closerange(0, 256)\nreturn 1'), allowed: [200, 500, 503, 504] },
  'write-fds': {
    source: python(
      `for fd in range(3, 64):\n    try: os.write(fd, b'garbage garbage garbage')\n    except OSError: pass\nreturn 1`,
    ),
    allowed: [200, 500, 503, 504],
  },
  patch: {
    source: python(
      `json.dumps = json.loads = None\nbuiltins.len = builtins.isinstance = builtins.open = None\nsocket.socket.sendall = socket.socket.recv = None\nos.read = os.write = None\ntime.sleep = None\nreturn 'patched'`,
    ),
    allowed: [200, 500, 502, 503, 504],
  },
  recursion: { source: python('def f(): return f()\nreturn f()'), allowed: [500] },
  memory: { source: python(`x = []\nwhile True: x.append('y' * 10000000)`), allowed: [500, 503, 504] },
  threads: {
    source: python(
      `for i in range(20): threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\nreturn 1`,
    ),
    allowed: [200, 504],
  },
  'base-exception': { source: python('raise BaseException()'), allowed: [500, 503] },
  interrupt: { source: python('raise KeyboardInterrupt()'), allowed: [500, 503] },
  flood: { source: python('for i in range(200000): print(i)\nreturn 1'), allowed: [200, 504] },
  'raw-flood': {
    source: python(`for i in range(400): os.write(1, b'\\n' * 65536)\nreturn 1`),
    allowed: [200, 504, 500],
  },
  status: { source: python(`return {'status': '200', 'headers': {}, 'body': ''}`), allowed: [502] },
  'status-nan': { source: python(`return {'status': float('nan'), 'headers': {}, 'body': ''}`), allowed: [502] },
  'headers-list': { source: python(`return {'status': 200, 'headers': ['a'], 'body': ''}`), allowed: [502] },
  circular: { source: python('a = []\na.append(a)\nreturn a'), allowed: [500, 502] },
  nan: { source: python(`return {'x': float('nan')}`), allowed: [200, 500, 502] },
}

export const PHP: Record<string, HostileHandler> = {
  'many-headers': {
    source: php(
      `  $h = []; for ($i = 0; $i < 1000000; $i++) $h["h$i"] = 'v'; return ['status' => 200, 'headers' => $h, 'body' => 'x'];`,
    ),
    allowed: [500, 502, 503, 504],
  },
  'huge-reply': {
    source: php(`  return str_repeat('x', 48 * 1024 * 1024);`),
    allowed: [200, 500, 503],
    mayBeCut: true,
  },
  endless: {
    source: php(
      `  return ['status' => 200, 'headers' => [], 'body' => (function () { while (true) yield str_repeat('x', 65536); })()];`,
    ),
    allowed: [200],
    mayBeCut: true,
  },
  loop: { source: php('  while (true) {}'), allowed: [504] },
  exit: { source: php('  exit(0);'), allowed: [500, 503] },
  segv: { source: php('  posix_kill(getmypid(), SIGSEGV); sleep(5);'), allowed: [503, 500] },
  'kill-parent': {
    source: php(`  posix_kill(posix_getppid(), SIGKILL); usleep(200000); return 'alive';`),
    allowed: [200, 500, 503],
  },
  'kill-group': { source: php(`  posix_kill(0, SIGKILL); return 'alive';`), allowed: [200, 500, 503] },
  fork: { source: php(`  if (pcntl_fork() === 0) { sleep(300); } return 'forked';`), allowed: [200, 500] },
  'fork-return': { source: php(`  pcntl_fork(); return 'both';`), allowed: [200, 500, 503] },
  daemonise: {
    source: php(
      `  if (pcntl_fork() === 0) { posix_setsid(); if (pcntl_fork() === 0) sleep(3); posix_kill(getmypid(), SIGKILL); } return 'away';`,
    ),
    allowed: [200, 500],
  },
  signals: {
    source: php(
      `  for ($s = 1; $s < 32; $s++) if (!in_array($s, [9, 19])) @pcntl_signal($s, SIG_IGN); pcntl_sigprocmask(SIG_BLOCK, range(1, 31)); while (true) {}`,
    ),
    allowed: [504, 500],
  },
  chdir: { source: php(`  chdir('/'); return getcwd();`), allowed: [200] },
  umask: { source: php('  umask(0777); return 1;'), allowed: [200] },
  'close-fds': {
    source: php(`  foreach (get_resources('stream') as $r) @fclose($r); return 1;`),
    allowed: [200, 500, 503, 504],
  },
  'write-fds': {
    source: php(
      `  for ($i = 3; $i < 64; $i++) { $f = @fopen("php://fd/$i", 'w'); if ($f) { @fwrite($f, 'garbage garbage'); } } return 1;`,
    ),
    allowed: [200, 500, 503, 504],
  },
  handlers: {
    source: php(
      `  set_error_handler(function () { throw new Exception('all'); }); set_exception_handler(function () { exit; }); ob_start(function () { return ''; }); register_shutdown_function(function () { while (true) {} }); ini_set('memory_limit', '-1'); set_time_limit(1); return 1;`,
    ),
    allowed: [200],
  },
  recursion: {
    source: php('  $f = function () use (&$f) { return $f() + 1; }; return $f();'),
    allowed: [500, 503, 504],
  },
  memory: { source: php(`  $x = []; while (true) $x[] = str_repeat('y', 10000000);`), allowed: [500, 503, 504] },
  flood: { source: php('  for ($i = 0; $i < 200000; $i++) echo "$i\\n"; return 1;'), allowed: [200, 504] },
  status: { source: php(`  return ['status' => '200', 'headers' => [], 'body' => ''];`), allowed: [502] },
  'status-nan': { source: php(`  return ['status' => NAN, 'headers' => [], 'body' => ''];`), allowed: [502, 500] },
  'headers-list': { source: php(`  return ['status' => 200, 'headers' => ['a'], 'body' => ''];`), allowed: [502] },
}

export const EXTENSION = { node: 'js', python: 'py', php: 'php' } as const
export const HOSTILE = { node: NODE, python: PYTHON, php: PHP }
