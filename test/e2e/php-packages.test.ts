import { readdirSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { LIBRARIES, manifest, NO_COMPOSER, shapeOf } from '../helpers/composer-bed.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

t.setTimeout(180_000)

const HANDLER = "<?php function handler(array $event) { return ['shape' => Acme\\Shape::VERSION]; }\n"
const textOf = (require: Record<string, string>) => JSON.stringify((manifest(require) as { json: unknown }).json)

t.test(
  '[dependencies/php.9, control/function.10, bin/deps.4] functions with conflicting packages answer side by side, and tell what they have',
  { skip: NO_COMPOSER },
  async t => {
    const { gateway, url, tree } = await serveTree(
      t,
      {
        ...LIBRARIES,
        'old/handler.php': HANDLER,
        'old/composer.json': manifest({ 'acme/shape': '^1' }),
        'new/handler.php': HANDLER,
        'new/composer.json': manifest({ 'acme/shape': '^2' }),
        'routes/get.php': HANDLER,
        'routes/post.php': HANDLER,
        'routes/composer.json': manifest({ 'acme/shape': '*' }),
        'plain/handler.php': "<?php function handler() { return ['shape' => class_exists('Acme\\Shape')]; }\n",
        'wrong/handler.php': HANDLER,
        'wrong/composer.json': manifest({ 'acme/none': '*' }),
      },
      { runtimes: ['php'], logLevel: 'silent', hotReload: false },
    )
    t.same(gateway.warnings, [], 'what is to be installed is no warning')
    const names = ['old', 'new', 'routes', 'plain']
    const answers = await Promise.all(names.map(async name => (await fetch(`${url}/${name}`)).json()))
    t.same(answers, [{ shape: '1.2' }, { shape: '2.0' }, { shape: '2.0' }, { shape: false }])
    t.same(await (await fetch(`${url}/routes`, { method: 'POST' })).json(), { shape: '2.0' })
    const wrong = await fetch(`${url}/wrong`)
    t.equal(wrong.status, 500)
    t.match(await wrong.json(), {
      error: /install failed: wrong\/composer\.json:1: wrong: composer: Root composer\.json/,
    })
    const record = async (name: string) => (await fetch(`${url}/_fn/function?runtime=php&name=${name}`)).json()
    t.match(await record('new'), {
      metadata: {
        dependency_resolution: {
          mode: 'manifest',
          manifest_generated: false,
          infer_backend: null,
          inference_duration_ms: 0,
          inferred_imports: [],
          resolved_packages: ['acme/shape:2.0.0'],
          unresolved_imports: [],
          last_install_status: 'ok',
          last_error: null,
        },
      },
    })
    t.match(await record('wrong'), {
      metadata: { dependency_resolution: { last_install_status: 'error', last_error: /acme\/none/ } },
    })
    const isOne = ({ key }: { key: string }) => /^php\/(?:old|new)@/.test(key)
    const rows = gateway.dependencies.list().filter(isOne)
    t.same(rows.map(({ key, installed }) => `${key} ${installed}`).sort(), [
      'php/new@default acme/shape 2.0.0',
      'php/old@default acme/shape 1.2.0',
    ])
    const ways = gateway.dependencies.why('acme/shape').filter(isOne)
    t.same(ways.map(({ way }) => way.join()).sort(), ['acme/shape 1.2.0', 'acme/shape 2.0.0'])
    t.ok(gateway.dependencies.clean(true).includes('vendor of php/old@default'))
    t.same(readdirSync(tree.path('old')).sort(), ['composer.json', 'composer.lock', 'handler.php'])
    t.same(readdirSync(tree.path('.svc/deps')), [])
  },
)

t.test(
  '[dependencies/php.1, dependencies/php.3, dependencies/php.6] an edit of composer.json is installed while the version before answers',
  { skip: NO_COMPOSER },
  async t => {
    const { gateway, url, tree } = await serveTree(
      t,
      { ...LIBRARIES, 'f/handler.php': HANDLER, 'f/composer.json': manifest({ 'acme/shape': '^1' }) },
      { runtimes: ['php'], logLevel: 'silent', hotReload: false },
    )
    const ask = async () => {
      const answer = await fetch(`${url}/f`)
      return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
    }
    t.same(await ask(), { status: 200, body: { shape: '1.2' } })
    writeFileSync(tree.path('f/composer.json'), textOf({ 'acme/shape': '^2' }))
    let isOver = false
    const asking = (async () => {
      const answers = []
      while (!isOver) {
        answers.push(await ask())
        // Composer needs the processor too.
        await new Promise(resolve => setTimeout(resolve, 5))
      }
      return answers
    })()
    await gateway.reload()
    await gateway.dependencies.install(() => {})
    isOver = true
    const answers = await asking
    t.ok(
      answers.every(({ status }) => status === 200),
      'nobody got an error',
    )
    t.same(await ask(), { status: 200, body: { shape: '2.0' } })

    writeFileSync(tree.path('_lib/shape2/src/Shape.php'), shapeOf('2.0 edited'))
    await gateway.reload()
    await gateway.dependencies.install(() => {})
    t.same(await ask(), { status: 200, body: { shape: '2.0 edited' } }, 'a package in a path is a helper too')

    writeFileSync(tree.path('f/composer.json'), textOf({ 'acme/shape': '^9' }))
    await gateway.reload()
    await gateway.dependencies.install(() => {})
    const broken = await fetch(`${url}/f`)
    t.match(broken.headers.get('x-fn-load-error'), /^install failed: f\/composer\.json:1: f: composer: /)
    t.same([broken.status, await broken.json()], [200, { shape: '2.0 edited' }], 'the previous version serves')
    writeFileSync(tree.path('f/composer.json'), textOf({ 'acme/shape': '^1' }))
    await gateway.reload()
    await gateway.dependencies.install(() => {})
    t.same(await ask(), { status: 200, body: { shape: '1.2' } })
  },
)
