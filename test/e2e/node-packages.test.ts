import { spawnSync } from 'node:child_process'
import t from 'tap'
import { createGateway } from '../../lib/index.ts'
import { serveTree } from '../helpers/gateway-bed.ts'
import { startNpmRegistry } from '../helpers/npm-registry.ts'
import { TEST_PACKAGES } from '../helpers/npm-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { makeWheels } from '../helpers/wheels.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(120_000)

const HANDLER = "const left = require('left')\nexports.handler = () => ({ left })\n"
const manifest = (range: string) => JSON.stringify({ dependencies: { left: range } })

t.test(
  '[dependencies/node.14] two functions with conflicting versions answer side by side, and one without any',
  async t => {
    const registry = await startNpmRegistry(TEST_PACKAGES)
    t.teardown(() => registry.close())
    const cache = t.testdir()
    const { url } = await serveTree(
      t,
      {
        'old/handler.js': HANDLER,
        'old/package.json': manifest('^1.0.0'),
        'new/handler.mjs': "import left from 'left'\nexport const handler = () => ({ left })\n",
        'inferred/handler.ts': "import left from 'left'\nexport const handler = (): unknown => ({ left })\n",
        'plain/handler.js': 'exports.handler = () => ({ left: null })\n',
        'wrong/handler.js': "\nrequire('lefft')\nexports.handler = () => 1\n",
        'new/package.json': manifest('^2.0.0'),
      },
      {
        runtimes: ['node'],
        depsWaitMs: 100_000,
        logLevel: 'silent',
        env: { ...process.env, npm_config_registry: registry.url, npm_config_cache: cache },
      },
    )
    const names = ['old', 'new', 'inferred', 'plain']
    const answers = await Promise.all(names.map(async name => (await fetch(`${url}/${name}`)).json()))
    t.same(answers, [{ left: 'left 1' }, { left: 'left 2' }, { left: 'left 2' }, { left: null }])
    const wrong = await fetch(`${url}/wrong`)
    t.equal(wrong.status, 500)
    t.match(await wrong.json(), {
      error: /install failed: wrong\/handler\.js:2: wrong: npm: code E404/,
    })
    const record = await fetch(`${url}/_fn/function?runtime=node&name=inferred`)
    t.match(await record.json(), {
      metadata: {
        dependency_resolution: {
          mode: 'inferred',
          manifest_generated: true,
          resolved_packages: ['left@2.1.0'],
          last_install_status: 'ok',
        },
      },
    })
  },
)

t.test(
  '[files/own-folder.12] git takes sources, manifests and lock files of a tree that has run, and nothing else',
  async t => {
    const registry = await startNpmRegistry(TEST_PACKAGES)
    t.teardown(() => registry.close())
    const away = makeTree()
    t.teardown(away.cleanup)
    const sources = {
      'mixed/get.a.js': HANDLER,
      'mixed/get.b.py': 'import alpha\ndef handler(event):\n    return alpha.VERSION\n',
      'tick/handler.js': 'exports.handler = event => ({ status: 200, body: event.body })\n',
      'tick/fn.config.json': '{ "schedule": { "enabled": true, "every_seconds": 3600 } }',
      '.svc/packs/node/base/package.json': '{}',
    }
    const { root, cleanup } = makeTree(sources)
    t.teardown(cleanup)
    const gateway = await createGateway({
      functionsRoot: root,
      runtimes: ['node', 'python'],
      consoleWriteEnabled: true,
      depsWaitMs: 100_000,
      hotReload: false,
      env: {
        ...makeWheels(away.root, [{ name: 'alpha', version: '1.0' }]),
        npm_config_registry: registry.url,
        npm_config_cache: away.path('npm'),
      },
    })
    t.teardown(() => gateway.close())
    t.equal((await gateway.inject('/mixed/a')).status, 200)
    t.equal((await gateway.inject('/mixed/b')).status, 200)
    const payload = { name: 'tick', method: 'POST', body: 'private' }
    const { id } = (await gateway.inject({ url: '/_fn/jobs', method: 'POST', payload })).json() as { id: string }
    const isDone = async () =>
      ((await gateway.inject(`/_fn/jobs/${id}`)).json() as { status: string }).status === 'done'
    await until(isDone, 100_000)
    await gateway.close()

    const git = (...words: string[]) => spawnSync('git', words, { cwd: root, encoding: 'utf8' }).stdout
    git('init', '--quiet')
    git('add', '--all')
    const written = ['package.json', 'package-lock.json', 'requirements.txt', 'requirements.lock.txt']
    t.same(
      git('ls-files').trim().split('\n'),
      [...Object.keys(sources), ...written.map(name => `mixed/${name}`)].sort(),
    )
  },
)
