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
    failure: /build failed: fn\/handler\.go:4/,
  },
  {
    runtime: 'rust',
    tool: { program: 'cargo', work: 'build*', setting: 'FN_CARGO_BIN' },
    files: (code, version) => ({
      'fn/handler.rs': `use serde_json::{json, Value};\n\npub fn handler(_event: Value) -> Value {\n    json!({"status": 200, "body": "${code}"})${version === 99 ? ' nope' : ''}\n}\n`,
    }),
    answer: code => code,
    failure: /build failed: fn\/handler\.rs:4/,
  },
]

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
    { skip: missing ?? (program === null && `${tool.program} is not installed`) },
    async t => {
      const away = makeTree()
      t.teardown(away.cleanup)
      const tree = makeTree({ ...(runtime === 'php' && LIBRARIES), ...files('one', 1) })
      t.teardown(tree.cleanup)
      const registry = await startNpmRegistry(TEST_PACKAGES)
      t.teardown(() => registry.close())
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
          npm_config_registry: registry.url,
          npm_config_cache: away.path('cache'),
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
      gateway.on('log', ({ message }) => told.push(message))
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
      await isTold(/failed: /)
      last = await ask(gateway)
      while (last.status === 200) last = await ask(gateway)
      t.match(last, { status: 500, text: failure })

      // What failed never served: nothing stands in for the correction.
      tree.write(files('four', 2))
      await gateway.reload()
      t.same(await ask(gateway), { status: 200, text: answer('four', 2) })
    },
  )
}
