import { existsSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { createGateway } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'
import { makeWheels } from '../helpers/wheels.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(180_000)

const HANDLER = 'import alpha\ndef handler(event):\n    return {"version": alpha.VERSION, "file": alpha.__file__}\n'

t.test(
  '[dependencies/python.12, dependencies/install.8, control/function.10] functions with packages of their own answer, and tell what they have',
  async t => {
    const { root, path, cleanup } = makeTree({
      'one/handler.py': `#@requirements alpha==1.0\n${HANDLER}`,
      'two/handler.py': HANDLER,
      'two/requirements.txt': 'alpha==2.0\n',
      'packed/handler.py': HANDLER,
      'packed/fn.config.json': '{ "shared_deps": ["tools"], "invoke": { "methods": ["GET"] } }',
      'lost/handler.py': 'def handler(event):\n    return 1\n',
      'lost/fn.config.json': '{ "shared_deps": ["nowhere"], "invoke": { "methods": ["GET"] } }',
      'plain/handler.py': 'def handler(event):\n    return 1\n',
      '.svc/packs/python/tools/requirements.txt': 'alpha\n',
    })
    const away = makeTree()
    t.teardown(away.cleanup)
    t.teardown(cleanup)
    const wheels = ['1.0', '2.0', '3.0'].map(version => ({ name: 'alpha', version }))
    const env = makeWheels(away.root, wheels)
    const gateway = await createGateway({
      functionsRoot: root,
      runtimes: ['python'],
      hotReload: false,
      depsWaitMs: 150_000,
      env,
    })
    t.teardown(() => gateway.close())
    const told: string[] = []
    gateway.on('build', ({ state, action, key }) => told.push(`${state} ${action} ${key}`))

    const [one, two, packed, lost, plain] = await Promise.all(
      ['one', 'two', 'packed', 'lost', 'plain'].map(name => gateway.inject({ url: `/${name}` })),
    )
    t.match(one!.json(), { version: '1.0', file: path('one/.deps/alpha/__init__.py') })
    t.match(two!.json(), { version: '2.0', file: path('two/.deps/alpha/__init__.py') })
    t.match(packed!.json(), { version: '3.0', file: path('.svc/packs/python/tools/.deps/alpha/__init__.py') })
    t.match(lost!, { status: 500 })
    t.match(lost!.json(), { error: /^shared pack not found: nowhere \(looked in: \.svc\/packs\/python\/nowhere/ })
    t.equal(plain!.status, 200)
    t.ok(told.includes('ended installing packages of python/one@default'))

    const record = async (name: string) =>
      (await gateway.inject({ url: `/_fn/function?name=${name}` })).json() as { metadata: Record<string, unknown> }
    t.match((await record('two')).metadata.dependency_resolution, {
      mode: 'manifest',
      manifest_generated: false,
      infer_backend: 'native',
      inferred_imports: ['alpha'],
      resolved_packages: ['alpha==2.0'],
      unresolved_imports: [],
      last_install_status: 'ok',
      last_error: null,
    })
    t.notOk('dependency_resolution' in (await record('plain')).metadata)

    // A manifest that is edited is in force when what it asks for is there.
    writeFileSync(path('two/requirements.txt'), 'alpha==1.0\n# changed\n')
    await gateway.reload()
    const version = async () => ((await gateway.inject({ url: '/two' })).json() as { version: string }).version
    // While it is installed the version before answers.
    await until(async () => (await version()) !== '2.0', 100_000)
    t.equal(await version(), '1.0')
    t.ok(existsSync(path('two/.deps')))
  },
)
