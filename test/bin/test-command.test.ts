import { existsSync } from 'node:fs'
import { delimiter } from 'node:path'
import { once } from 'node:events'
import { spawn, spawnSync } from 'node:child_process'
import { createInterface } from 'node:readline'
import t from 'tap'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { gateway, type TestInjectRequest } from '../../lib/test.ts'
import { FNGW, runCli, toEnv } from '../helpers/cli.ts'
import { shareCrates } from '../helpers/compiled.ts'
import { isRunning } from '../helpers/processes.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(240_000)

interface Summary {
  passed: number
  failed: number
  skipped: number
  runs: { runtime: string; runner: string | null; files: string[]; failed: number; problem: string | null }[]
}

const SECRET = 'a-secret-of-the-function'
const isThere = (name: string): boolean => findOnPath(name, process.env.PATH ?? '') !== null

const NODE = {
  // The type that npm init writes.
  'package.json': '{ "type": "commonjs" }',
  'hello.js': 'export const handler = event => ({ hello: event.query.name })\n',
  'fn.env.json': JSON.stringify({ API_TOKEN: SECRET }),
  'hello.test.js': `
    const assert = require('node:assert')
    const { test } = require('node:test')
    const { gateway } = require('fngw/test')
    test('environment', () => {
      console.log('token ' + process.env.API_TOKEN)
      assert.equal(process.env.API_TOKEN, ${JSON.stringify(SECRET)})
      assert.equal(process.env.OUTSIDE, undefined)
    })
    test('left out', { skip: true }, () => {})
    test('body and headers', async () => {
      const sent = { method: 'POST', url: '/echo', body: { a: 1 }, headers: { 'X-Two': ['1', '2'] }, query: { q: 'x' } }
      const response = await gateway.inject(sent)
      assert.deepEqual(response.json(), { a: 1, q: 'x' })
      assert.equal(response.headers['content-type'], 'application/json')
    })
  `,
  'post.echo.js': `export const handler = event => ({ ...JSON.parse(event.body), q: event.query.q })\n`,
  // Brackets are not a pattern.
  'users/[id].ts': 'export const handler = (event: { params: { id: string } }) => ({ id: event.params.id })\n',
  'users/[id].test.ts': `
    import assert from 'node:assert/strict'
    import { describe, it } from 'node:test'
    import { gateway, type TestGateway } from 'fngw/test'
    import { handler } from './[id].ts'
    describe('users', () => {
      it('by id', async () => {
        const served: TestGateway = gateway
        assert.deepEqual((await served.inject('/users/7')).json(), handler({ params: { id: '7' } }))
      })
    })
  `,
}
const OTHERS = {
  'py/handler.py': 'import packed\ndef handler(event):\n    return {"sum": packed.one + int(event["query"]["a"])}\n',
  'py/.deps/packed.py': 'one = 1\n',
  'py/handler.test.py': `
import unittest
from fngw_test import gateway
from handler import handler

class HandlerTest(unittest.TestCase):
    def test_call(self):
        self.assertEqual(handler({"query": {"a": "1"}}), {"sum": 2})

    def test_request(self):
        answer = gateway.inject("/py", query={"a": 2})
        self.assertEqual((answer.status, answer.json(), answer.headers["content-type"]), (200, {"sum": 3}, "application/json"))

    def test_wrong(self):
        self.assertEqual(gateway.inject("/py", "DELETE").status, 200)

    @unittest.skip("later")
    def test_skipped(self):
        pass
`,
  // For pytest a bracket in an argument begins parameters.
  'items/[id].py': 'def handler(event):\n    return {"id": event["params"]["id"]}\n',
  'items/[id].test.py': `
import unittest
from fngw_test import gateway

class ItemTest(unittest.TestCase):
    def test_request(self):
        self.assertEqual(gateway.inject("/items/7").json(), {"id": "7"})
`,
  'php/handler.php': '<?php function handler(array $event): array { return json_decode($event["body"], true); }\n',
  'php/handler.test.php': `<?php
use PHPUnit\\Framework\\TestCase;
require_once __DIR__ . '/handler.php';
final class TestHandler extends TestCase {
    public function testCall(): void { $this->assertSame(['a' => 1], handler(['body' => '{"a":1}'])); }
    public function testRequest(): void {
        $answer = Fngw\\gateway()->inject('/php', 'POST', body: ['a' => 2]);
        $this->assertSame([200, ['a' => 2], 'application/json'], [$answer->status, $answer->json(), $answer->headers['content-type']]);
    }
}
`,
  'php/fn.config.json': '{ "invoke": { "methods": ["POST"] } }',
  'lua/handler.lua': `
local count = 0
function handler(event)
  count = count + 1
  return { status = event.method == "PUT" and 201 or 200, headers = { ["x-a"] = { "1", "2" } }, body = { count = count, q = event.query.q, body = event.body } }
end
`,
  'lua/handler.test.lua': `
require("handler")
function test_first() assert(handler({ query = {} }).body.count == 1) end
function test_second() assert(handler({ query = {} }).body.count == 1) end
function test_request()
  local gateway = require("fngw_test").gateway
  local response = gateway.inject("/lua", { method = "PUT", query = { q = { "a b", "\u00fc&" } }, body = { n = 1 } })
  assert(response.status == 201 and response.headers["x-a"] == "1, 2", response:text())
  assert(response:json().q[2] == "\u00fc&" and response:json().body == '{"n":1}', response.body)
  assert(gateway.inject("/none").status == 404)
end
function test_endless() while true do end end
`,
  'lua/fn.config.json': '{ "timeout_ms": 200 }',
}

t.test('[bin/test.1, bin/test.2, bin/test.3, bin/test.5] one run over the languages that need no compiler', async t => {
  const tree = makeTree({ ...NODE, ...OTHERS })
  t.teardown(tree.cleanup)
  const run = runCli(['test', '--json'], { cwd: tree.root, env: { FN_FUNCTIONS_ROOT: tree.root, OUTSIDE: '1' } })
  const { runs, ...counts } = JSON.parse(run.stdout) as Summary
  const byRuntime = (runtime: string) => runs.filter(one => one.runtime === runtime)
  t.same(
    byRuntime('node').map(({ runner, files, failed, problem }) => ({ runner, files, failed, problem })),
    [
      { runner: 'node:test', files: ['hello.test.js'], failed: 0, problem: null },
      { runner: 'node:test', files: ['users/[id].test.ts'], failed: 0, problem: null },
    ],
  )
  t.match(byRuntime('python'), [
    { files: ['items/[id].test.py'], passed: 1, failed: 0 },
    { files: ['py/handler.test.py'], passed: 2, failed: 1, skipped: 1 },
  ])
  t.match(byRuntime('lua'), [{ passed: 3, failed: 1, problem: null }])
  t.match(run.stderr, /failed {2}test_endless: .*200 ms|failed {2}test_endless: .*time/)
  if (isThere('phpunit')) t.match(byRuntime('php'), [{ runner: 'phpunit', passed: 2, failed: 0, problem: null }])
  else t.match(byRuntime('php'), [{ problem: /composer require --dev phpunit/ }])
  t.equal(counts.failed, 2)
  t.equal(run.status, 1)
  t.match(run.stderr, 'token <hidden>')
  t.notMatch(run.stdout + run.stderr, SECRET)

  const some = runCli(['test', 'users/', '.'], { cwd: tree.root, env: { FN_STORE_URL: 'redis://127.0.0.1:1' } })
  t.match(some.stdout, /^passed {3}node:test {2}users\/\[id\]\.test\.ts: 1 passed, 0 failed\n1 passed, 0 failed$/m)
  t.equal(some.status, 0)
  const none = runCli(['test', 'nothing', '.'], { cwd: tree.root })
  t.match(none.stderr, /no tests in .* whose path contains "nothing"/)
  t.equal(none.status, 2)
})

t.test('[bin/test.3, bin/test.6] files that do not load, vitest, and runners that are missing', async t => {
  const tree = makeTree({
    'functions/broken.js': 'export const handler = () => 1\n',
    'functions/broken.test.js': 'import "./nowhere.js"\n',
    'functions/empty/handler.js': 'export const handler = () => 1\n',
    'functions/empty/empty.test.js': 'export {}\n',
    'functions/py/handler.py': 'def handler(event):\n    return 1\n',
    'functions/py/test_broken.py': 'import nowhere\n',
    'functions/php/handler.php': '<?php function handler() { return 1; }\n',
    'functions/php/handler.test.php': '<?php\n',
    'functions/go/handler_test.go': 'package handler\n',
    // A stand-in that reports as vitest does: the package would be fetched.
    'node_modules/vitest/package.json': '{ "name": "vitest", "version": "4.0.0" }',
    'node_modules/vitest/vitest.mjs': `
      import { writeFileSync } from 'node:fs'
      const [, , , , root, , , out, ...files] = process.argv
      const counts = { numPassedTests: files.length, numFailedTests: 0, numPendingTests: 0, numFailedTestSuites: 0 }
      writeFileSync(out.split('=')[1], JSON.stringify(counts))
    `,
  })
  t.teardown(tree.cleanup)
  const run = (pattern: string, env: Record<string, string> = {}) => {
    const { stdout, stderr, status } = runCli(['test', pattern, 'functions', '--json'], { cwd: tree.root, env })
    return { ...(JSON.parse(stdout) as Summary), stderr, status }
  }
  // PHP without phpunit.
  const php = findOnPath('php', process.env.PATH ?? '')
  const python = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout.trim()
  const all = run('', {
    ...{ PATH: ['/bin', '/usr/sbin'].filter(folder => !existsSync(`${folder}/phpunit`)).join(delimiter) },
    ...{ FN_PHP_BIN: php ?? 'php', FN_PYTHON_BIN: python },
  })
  const vitest = all.runs.filter(({ runner }) => runner === 'vitest')
  t.match(vitest, [
    { passed: 1, files: ['broken.test.js'] },
    { passed: 1, files: ['empty/empty.test.js'] },
  ])
  t.match(
    all.runs.find(({ runtime }) => runtime === 'python'),
    { passed: 0, failed: 1 },
    all.stderr,
  )
  t.match(all.runs.find(({ runtime }) => runtime === 'php')?.problem, /phpunit is not installed: run "composer require/)
  t.match(all.runs.find(({ runtime }) => runtime === 'go')?.problem, /go is not enabled.*FN_RUNTIMES=/)
  t.equal(all.status, 1)

  tree.remove('node_modules')
  const { runs, stderr } = run('.test.js')
  t.match(runs, [
    { runner: 'node:test', files: ['broken.test.js'], passed: 0, failed: 1, problem: null },
    { runner: 'node:test', passed: 0, failed: 0, problem: 'there are no tests in these files' },
  ])
  t.match(stderr, /nowhere\.js/)
})

const COMPILED = {
  'go/get.js': 'export const handler = () => 1\n',
  'go/get.sum.go':
    'package handler\n\nfunc handler(event map[string]any) map[string]any {\n\treturn map[string]any{"status": 200, "body": add(2)}\n}\n\nfunc add(n int) int { return n + 1 }\n',
  // The same names once more in the folder.
  'go/post.sum.go': 'package handler\n\nfunc handler(event map[string]any) map[string]any { return nil }\n',
  'go/get.sum_test.go':
    'package handler\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tif add(2) != 3 {\n\t\tt.Fatal(add(2))\n\t}\n}\n\nfunc TestWrong(t *testing.T) { t.Fatal("wrong") }\n',
  'rust/handler.rs':
    'use serde_json::{json, Value};\n\npub fn handler(_event: Value) -> Value {\n    json!({ "body": 1 })\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn body() {\n        assert_eq!(handler(json!({}))["body"], 1);\n    }\n\n    #[test]\n    #[ignore]\n    fn later() {}\n}\n',
}

t.test(
  '[bin/test.4] go test and cargo test',
  { skip: !isThere('go') && !isThere('cargo') && 'no compilers' },
  async t => {
    const tree = makeTree(COMPILED)
    t.teardown(tree.cleanup)
    const env = { ...shareCrates(), FN_RUNTIMES: 'node,go,rust' }
    const { stdout, stderr, status } = runCli(['test', '--json', '', '.'], { cwd: tree.root, env })
    const { runs } = JSON.parse(stdout) as Summary
    const [go, rust] = ['go', 'rust'].map(name => runs.find(({ runtime }) => runtime === name))
    if (isThere('go')) t.match(go, { runner: 'go test', files: ['go/get.sum_test.go'], passed: 1, failed: 1 }, stderr)
    if (isThere('cargo'))
      t.match(rust, { runner: 'cargo test', passed: 1, failed: 0, skipped: 1, problem: null }, stderr)
    t.equal(status, 1)
  },
)

t.test('[bin/test.7] --watch runs again after a change, and a signal ends what runs', async t => {
  const tree = makeTree({
    'hello.lua': 'function handler() return { ok = true } end\n',
    'hello.test.lua': 'require("hello")\nfunction test_ok() assert(handler({}).ok) end\n',
  })
  t.teardown(tree.cleanup)
  const [program, ...words] = FNGW
  const child = spawn(program, [...words, 'test', '--watch', '', '.', '--runtimes', 'lua,node'], {
    ...{ cwd: tree.root, env: toEnv(), stdio: ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe'] },
  })
  const lines = createInterface({ input: child.stdout })
  const printed: string[] = []
  lines.on('line', line => printed.push(line))
  child.stderr.resume()
  const waitFor = async (pattern: RegExp): Promise<string> => {
    for (;;) {
      const at = printed.findIndex(line => pattern.test(line))
      if (at !== -1) return printed.splice(0, at + 1).at(-1)!
      await once(lines, 'line')
    }
  }
  await waitFor(/^1 passed, 0 failed$/)
  tree.write({ 'hello.lua': 'function handler() return { ok = false } end\n' })
  await waitFor(/^0 passed, 1 failed$/)
  tree.write({
    'slow.test.js':
      'require("node:test").test("slow", async () => { console.log("pid", process.pid); await new Promise(r => setTimeout(r, 1e6)) })\n',
  })
  const pid = Number((await waitFor(/pid \d+/)).split(' ').at(-1))
  child.kill('SIGTERM')
  const [code] = (await once(child, 'exit')) as [number]
  t.equal(code, 2)
  t.notOk(isRunning(pid), 'the process of the test has ended')
})

t.test('[bin/test.5] without a gateway the fixture says what to do', async t => {
  delete process.env.FNGW_TEST_URL
  await t.rejects(gateway.inject('/hello'), /run "fngw test", or set FNGW_TEST_URL/)
  process.env.FNGW_TEST_URL = 'http://127.0.0.1:1'
  t.teardown(() => delete process.env.FNGW_TEST_URL)
  const request: TestInjectRequest = { method: 'POST', url: '/hello', body: 'x' }
  await t.rejects(gateway.inject(request), /ECONNREFUSED/)
})
