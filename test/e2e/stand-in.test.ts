import t from 'tap'
import { createGateway, type Gateway, type GatewayOptions } from '../../lib/index.ts'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { LIBRARIES, manifest } from '../helpers/composer-bed.ts'
import { missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { makeGatedTool } from '../helpers/gated-tool.ts'
import { TEST_PACKAGES } from '../helpers/npm-bed.ts'
import { startNpmRegistry } from '../helpers/npm-registry.ts'
import { makeTree } from '../helpers/tree.ts'
import { makeWheels } from '../helpers/wheels.ts'
import { until } from '../helpers/worker-client.ts'

// Compilers and installers are slow on a busy machine.
t.setTimeout(400_000)
// Of the buffered tests, which mostly wait for installers.
t.jobs = 3

interface Language {
  runtime: 'python' | 'node' | 'php' | 'go' | 'rust'
  /** The program that works, and the arguments with which it does. */
  tool: { program: string; work: string; setting: string }
  /** Files of a function that answers `<code> with <version of its package>`; for go and rust the version is none. */
  files(code: string, version: 1 | 2 | 99): Record<string, string>
  answer(code: string, version: 1 | 2): string
  failure: RegExp
}

const LANGUAGES: readonly Language[] = [
  {
    runtime: 'python',
    tool: { program: 'python3', work: '*pip*install*', setting: 'FN_PYTHON_BIN' },
    files: (code, version) => ({
      'fn/handler.py': `import alpha\ndef handler(event):\n    return {"status": 200, "body": "${code} with " + alpha.VERSION}\n`,
      'fn/requirements.txt': `alpha==${version}.0\n`,
    }),
    answer: (code, version) => `${code} with ${version}.0`,
    failure: /install failed: .*alpha==99\.0/s,
  },
  {
    runtime: 'node',
    tool: { program: 'npm', work: '*install*', setting: 'FN_NPM_BIN' },
    files: (code, version) => ({
      'fn/handler.js': `const left = require('left')\nexports.handler = () => ({ status: 200, body: '${code} with ' + left })\n`,
      'fn/package.json': JSON.stringify({ dependencies: { left: `^${version}.0.0` } }),
    }),
    answer: (code, version) => `${code} with left ${version}`,
    failure: /install failed: .*left/s,
  },
  {
    runtime: 'php',
    tool: { program: 'composer', work: '*install*|*update*', setting: 'FN_COMPOSER_BIN' },
    files: (code, version) => ({
      'fn/handler.php': `<?php function handler(array $event) { return ['status' => 200, 'body' => '${code} with ' . Acme\\Shape::VERSION]; }\n`,
      'fn/composer.json': JSON.stringify((manifest({ 'acme/shape': `^${version}` }) as { json: unknown }).json),
    }),
    answer: (code, version) => `${code} with ${version === 1 ? '1.2' : '2.0'}`,
    failure: /install failed: .*acme\/shape/s,
  },
  {
    runtime: 'go',
    tool: { program: 'go', work: 'build*', setting: 'FN_GO_BIN' },
    files: (code, version) => ({
      'fn/handler.go': `package handler\n\nfunc Handler(event map[string]any) any {\n\treturn map[string]any{"status": 200, "body": "${code}"${version === 99 ? ' nope' : ''}}\n}\n`,
    }),
    answer: code => code,
    failure: /build failed: fn\/handler\.go:4:.*4 \| {2}return map\[string\]any.* nope\}\n +\| +\^/s,
  },
  {
    runtime: 'rust',
    tool: { program: 'cargo', work: 'build*', setting: 'FN_CARGO_BIN' },
    files: (code, version) => ({
      'fn/handler.rs': `use serde_json::{json, Value};\n\npub fn handler(_event: Value) -> Value {\n    json!({"status": 200, "body": "${code}"})${version === 99 ? ' nope' : ''}\n}\n`,
    }),
    answer: code => code,
    failure: /build failed: fn\/handler\.rs:4:.*4 \| {5}json!.* nope\n +\| +\^/s,
  },
]

/** Files of a function that answers `<code>`, and ways to save them wrong: a syntax error, an exception while it loads, no callable. */
const INTERPRETED = [
  {
    runtime: 'node',
    file: 'fn.js',
    good: (code: string) => `exports.handler = () => ({ status: 200, body: '${code}' })\n`,
    broken: ['\nexports.handler = () => {\n  retur n 1\n}\n', '\n\nnull.x\n', 'exports.other = 1\n'],
    places: ['syntax error in fn.js:3', 'fn.js:3', 'fn.js has no function "handler"'],
    frame: '3 |   retur n 1',
  },
  {
    runtime: 'node',
    file: 'fn.ts',
    good: (code: string) => `export const handler = () => ({ status: 200, body: '${code}' as string })\n`,
    broken: ['\nconst x: = 1\n', 'const x: any = null\nx.y()\n', 'export const other = 1\n'],
    places: ['syntax error in fn.ts:2', 'fn.ts:2', 'fn.ts has no function "handler"'],
    frame: '2 | const x: = 1',
  },
  {
    runtime: 'python',
    file: 'fn.py',
    good: (code: string) => `def handler(event):\n    return {"status": 200, "body": "${code}"}\n`,
    broken: ['\ndef handler(event)\n', 'import _helper\n', 'x = 1\n'],
    places: ['syntax error in fn.py:2', 'fn.py:1', 'fn.py has no function "handler"'],
    frame: 'def handler(event)',
  },
  {
    runtime: 'php',
    file: 'fn.php',
    good: (code: string) => `<?php function handler($event) { return ['status' => 200, 'body' => '${code}']; }\n`,
    broken: ['<?php\nfunction handler($event) { return [1; }\n', '<?php\nnew Nope();\n', '<?php $x = 1;\n'],
    places: ['syntax error in fn.php:2', 'fn.php:2', 'fn.php has no function "handler"'],
    frame: '2 | function handler($event) { return [1; }',
  },
  {
    runtime: 'lua',
    file: 'fn.lua',
    good: (code: string) => `function handler(event) return {status = 200, body = '${code}'} end\n`,
    broken: ['\nfunction handler(\n', 'local x = nil\nx.y = 1\n', 'x = 1\n'],
    places: ['syntax error in fn.lua:3', 'fn.lua:2', 'fn.lua has no function "handler"'],
    frame: '2 | function handler(',
  },
] as const

const ALL_PROGRAMS = { node: 'node', python: 'python3', php: 'php', lua: 'node' } as const

interface HealthBody {
  functions: { summary: { stale: number }; states: { state: string; load_error: string | null }[] }
}

for (const { runtime, file, good, broken, places, frame } of INTERPRETED)
  t.test(
    `[runtime/stand-in.8, http/public.24] ${file}: a broken save is reported at once and is not served`,
    { skip: findOnPath(ALL_PROGRAMS[runtime], process.env.PATH ?? '') === null && `${runtime} is not installed` },
    async t => {
      const tree = makeTree({ [file]: good('one') })
      t.teardown(tree.cleanup)
      const gateway = await createGateway({ functionsRoot: tree.root, runtimes: [runtime], hotReload: false })
      t.teardown(() => gateway.close())
      const told: string[] = []
      gateway.on('log', ({ message, detail }) => told.push(message, detail?.stack ?? ''))
      const isTold = (text: string) => until(() => told.some(one => one.includes(text)), 30_000)
      const stateOf = () => (gateway.health() as unknown as HealthBody).functions
      t.equal((await ask(gateway)).text, 'one')
      for (const [index, text] of broken.entries()) {
        told.length = 0
        tree.write({ [file]: text })
        await gateway.reload()
        t.same(await ask(gateway), { status: 200, text: 'one' }, 'a call that comes before it has failed')
        await isTold(places[index]!)
        await isTold(`${file}: the previous version keeps serving`)
        if (index === 0)
          t.ok(
            told.some(text => text.includes(frame)),
            frame,
          )
        const response = await gateway.inject('/fn')
        t.same([response.status, response.text()], [200, 'one'])
        t.match(response.headers['x-fn-load-error'], places[index])
        t.match(stateOf(), { summary: { stale: 1 }, states: [{ state: 'stale' }] })
        t.match(stateOf().states[0]!.load_error, places[index])
      }
      tree.write({ [file]: good('two') })
      await gateway.reload()
      await isTold(`${file}: fixed`)
      const fixed = await gateway.inject('/fn')
      t.same([fixed.text(), fixed.headers['x-fn-load-error']], ['two', undefined])
      t.same(stateOf().states[0]!.load_error, null)

      // One that was never loaded has no previous version.
      tree.write({ [file]: broken[0] })
      const restarted = await createGateway({ functionsRoot: tree.root, runtimes: [runtime], hotReload: false })
      t.teardown(() => restarted.close())
      t.match(await ask(restarted), { status: 500, text: new RegExp(places[0]) })
    },
  )

async function ask(gateway: Gateway): Promise<{ status: number; text: string }> {
  const response = await gateway.inject('/fn')
  return { status: response.status, text: response.text() }
}

for (const language of LANGUAGES) {
  const { runtime, tool, files, answer, failure } = language
  const missing = runtime === 'go' || runtime === 'rust' ? missingToolchain(runtime) : null
  const program = findOnPath(tool.program, process.env.PATH ?? '')
  t.test(
    `[runtime/stand-in.1, runtime/stand-in.6] ${runtime}: an edit that takes long to prepare, and one that fails`,
    { buffered: true, skip: missing ?? (program === null && `${tool.program} is not installed`) },
    async t => {
      const away = makeTree()
      t.teardown(away.cleanup)
      const tree = makeTree({ ...(runtime === 'php' && LIBRARIES), ...files('one', 1) })
      t.teardown(tree.cleanup)
      const registry = runtime === 'node' ? await startNpmRegistry(TEST_PACKAGES) : null
      t.teardown(() => registry?.close())
      const gate = makeGatedTool(away.root, program!, tool.work)
      const wheels = ['1.0', '2.0'].map(version => ({ name: 'alpha', version }))
      const options: GatewayOptions = {
        functionsRoot: tree.root,
        runtimes: [runtime],
        hotReload: false,
        depsWaitMs: 300_000,
        env: {
          ...process.env,
          ...(runtime === 'python' && makeWheels(away.root, wheels)),
          ...shareCrates(),
          ...(registry !== null && { npm_config_registry: registry.url, npm_config_cache: away.path('cache') }),
          [tool.setting]: gate.path,
        },
      }
      const gateway = await createGateway(options)
      t.teardown(async () => {
        gate.open()
        await gateway.close()
      })
      const told: string[] = []
      gateway.on('build', ({ state }) => told.push(state))
      gateway.on('log', ({ message, detail }) => told.push(`${message}\n${detail?.stack ?? ''}`))
      const isTold = (text: RegExp) => until(() => told.some(one => text.test(one)), 150_000)
      t.same(await ask(gateway), { status: 200, text: answer('one', 1) })

      gate.close()
      tree.write(files('two', 2))
      told.length = 0
      await gateway.reload()
      await isTold(/^began$/)
      t.same(await ask(gateway), { status: 200, text: answer('one', 1) }, 'the version before answers')
      gate.open()
      await isTold(/^(?:built|installed) /)
      let last = await ask(gateway)
      // It is told when the tool is done, a moment before the new version is in force.
      while (last.text === answer('one', 1)) last = await ask(gateway)
      for (let count = 0; count < 5; count++)
        t.same(await ask(gateway), { status: 200, text: answer('two', 2) }, 'and never again')

      gate.close()
      tree.write(files('three', 99))
      told.length = 0
      await gateway.reload()
      await isTold(/^began$/)
      t.same(await ask(gateway), { status: 200, text: answer('two', 2) })
      gate.open()
      await isTold(failure)
      await isTold(/previous version keeps serving/)
      t.same(await ask(gateway), { status: 200, text: answer('two', 2) }, 'it goes on after the failure')
      t.match((await gateway.inject('/fn')).headers['x-fn-load-error'], /^(?:fn\/.*)?(?:build|install) failed: /)

      tree.write(files('four', 2))
      await gateway.reload()
      await isTold(/fixed, the new version serves/)
      t.same(await ask(gateway), { status: 200, text: answer('four', 2) })
    },
  )
}
