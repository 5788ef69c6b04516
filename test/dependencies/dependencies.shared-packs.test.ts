import t from 'tap'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { SharedPacks } from '../../lib/dependencies/dependencies.ts'
import { serveTree } from '../helpers/gateway-bed.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

const user = (name: string, runtime: RuntimeName, ...sharedDeps: string[]) =>
  makeFn({ name, runtime, entryFile: `${name}/handler`, policy: { sharedDeps } })

const TREE = {
  'python/.svc/packs/python/own/.deps/a.py': '',
  '.svc/packs/python/base/.deps/b.py': '',
  '.svc/packs/python/bare/requirements.txt': 'flask\n',
  '.svc/packs/node/base/node_modules/x/index.js': '',
  '.svc/packs/node/file': 'no folder',
  '.fastfn/packs/python/base/.deps/old.py': '',
  '.fastfn/packs/python/old/.deps/old.py': '',
}

t.test('[dependencies/shared-packs.1, dependencies/shared-packs.2] where packs are found', async t => {
  const tree = makeTree(TREE)
  t.teardown(tree.cleanup)
  const at = (root: string, ...paths: string[]) => paths.map(path => tree.path(root === '' ? path : `${root}/${path}`))
  const packs = new SharedPacks(tree.root)
  t.same(packs.dirsOf(user('f', 'python', 'base')), at('', '.svc/packs/python/base'), 'ours before the other')
  t.same(packs.dirsOf(user('f', 'python', 'old', 'base')), at('', '.fastfn/packs/python/old', '.svc/packs/python/base'))
  t.same(packs.dirsOf(user('f', 'node', 'base', 'gone', 'file')), at('', '.svc/packs/node/base'))
  t.same(packs.dirsOf(user('f', 'php', 'base')), [])
  for (const name of ['..', '../python/base', 'a/b', '', '.', '__proto__'])
    t.same(packs.dirsOf(user('f', 'node', name)), [], name)
  const scoped = new SharedPacks(tree.path('python'))
  t.same(scoped.dirsOf(user('f', 'python', 'own', 'base')), [
    ...at('python', '.svc/packs/python/own'),
    ...at('', '.svc/packs/python/base'),
  ])
})

t.test(
  '[dependencies/shared-packs.2, dependencies/shared-packs.3] what is missing is told once for each pack',
  async t => {
    const tree = makeTree(TREE)
    t.teardown(tree.cleanup)
    const packs = new SharedPacks(tree.root)
    t.same(packs.check([user('a', 'python', 'base'), user('b', 'node', 'base'), user('c', 'node')]), [])
    const warnings = packs.check([
      user('a', 'python', 'bare', 'gone', 'old'),
      user('b', 'python', 'gone'),
      user('c', 'php', 'base'),
    ])
    t.match(warnings, [
      {
        code: 'PACK_NOT_INSTALLED',
        path: '.svc/packs/python/bare',
        message: /is not installed: it has no \.deps; used by a\/handler$/,
        hint: /pip install/,
      },
      {
        code: 'PACK_MISSING',
        path: 'a/handler',
        message:
          /^a\/handler, b\/handler: shared pack not found: gone \(looked in: \.svc\/packs\/python\/gone, \.fastfn\/packs\/python\/gone\)$/,
      },
      { code: 'PACK_MISSING', message: /php has no packs/ },
      { code: 'FASTFN_PACKS', hint: /\.svc\/packs/ },
    ])
    t.equal(warnings.length, 4)
  },
)

t.test(
  '[dependencies/shared-packs.1, dependencies/shared-packs.4] workers use packs, and the start tells what is missing',
  async t => {
    const config = { json: { shared_deps: ['base'], invoke: { methods: ['GET'] } } }
    const tree = {
      '.svc/packs/node/base/node_modules/words/index.js': 'module.exports = "from a pack"\n',
      '.fastfn/packs/python/base/.deps/words.py': 'WORDS = "from an old pack"\n',
      'js/handler.js': 'const words = require("words")\nexports.handler = () => ({ words })\n',
      'js/fn.config.json': config,
      'js/package.json': { json: { dependencies: { absent: '*' } } },
      'py/handler.py': 'import words\ndef handler(event):\n    return {"words": words.WORDS}\n',
      'py/fn.config.json': config,
    }
    // Installs are somebody else's: the start says what nobody has installed.
    const { url, gateway } = await serveTree(t, tree, { autoNodeDeps: false })
    t.same(await (await fetch(`${url}/js`)).json(), { words: 'from a pack' })
    t.same(await (await fetch(`${url}/py`)).json(), { words: 'from an old pack' })
    t.match(gateway.warnings, [
      { code: 'FASTFN_PACKS' },
      { code: 'PACKAGES_MISSING', message: /js\/package\.json.*absent/ },
    ])
    t.equal(gateway.warnings.length, 2)
  },
)

t.test('[dependencies/shared-packs.6] a name that cannot be one fails like a missing pack', async t => {
  const handlers = {
    'js/handler.js': 'exports.handler = () => 1\n',
    'py/handler.py': 'def handler(event):\n    return 1\n',
  }
  const config = { json: { shared_deps: ['../base'], invoke: { methods: ['GET'] } } }
  const tree = { '.svc/packs/base/x': '', ...handlers, 'js/fn.config.json': config, 'py/fn.config.json': config }
  const { url, gateway } = await serveTree(t, tree)
  for (const path of ['/js', '/py']) {
    const response = await fetch(url + path)
    t.equal(response.status, 500, path)
    t.match(await response.json(), {
      error: 'shared pack not found: "../base" is not a pack name',
      detail: { hint: /^Fix the name in shared_deps: a pack name has letters/ },
    })
  }
  t.same(gateway.warnings.map(({ code }) => code).sort(), [
    'CONFIG_VALUE',
    'CONFIG_VALUE',
    'PACK_MISSING',
    'PACK_MISSING',
  ])
})

t.test('[dependencies/shared-packs.5] the packs that are there, as the control plane lists them', async t => {
  const { gateway, tree } = await serveTree(t, {
    ...TREE,
    '.svc/packs/node/base/package-lock.json': '{}',
    '.svc/packs/node/a b/x': '',
  })
  const { json } = await gateway.inject('/_fn/packs')
  const python = { requirements_txt: false, deps_dir: true }
  t.match(json(), { generated_at: Number, packs_root: tree.path('.svc/packs') })
  t.same((json() as { runtimes: unknown }).runtimes, {
    python: {
      packs: [
        { name: 'bare', dir: tree.path('.svc/packs/python/bare'), requirements_txt: true, deps_dir: false },
        { name: 'base', dir: tree.path('.svc/packs/python/base'), ...python },
        { name: 'old', dir: tree.path('.fastfn/packs/python/old'), ...python },
      ],
    },
    node: {
      packs: [
        {
          name: 'base',
          dir: tree.path('.svc/packs/node/base'),
          package_json: false,
          lock_file: 'package-lock.json',
          node_modules: true,
        },
      ],
    },
  })
  const none = await serveTree(t, {}, { consoleLocalOnly: false })
  const empty = (await none.gateway.inject({ url: '/_fn/packs', remoteAddress: '203.0.113.9' })).json()
  t.same(Object.keys(empty as object), ['generated_at', 'runtimes'])
  t.same((empty as { runtimes: unknown }).runtimes, {})
})
