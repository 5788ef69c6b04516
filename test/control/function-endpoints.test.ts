import {
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import t from 'tap'
import { RUNTIMES } from '../../lib/core/identity.ts'
import { makeControlBed } from '../helpers/control-bed.ts'
import { makeTree } from '../helpers/tree.ts'

// A machine with other work to do is many times slower.
t.setTimeout(180_000)

const LUA = 'function handler() return { n = 1 } end\n'
const NODE = 'export const handler = () => ({ n: 1 })\n'

t.test('[control/function.1] a function with its code, policy, routes and masked environment', async t => {
  const { ask, say, tree } = await makeControlBed(t, {
    'hello/handler.lua': LUA,
    'hello/fn.config.json': { json: { runtime: 'lua', timeout_ms: 77, worker_pool: { max_queue: 3 }, odd: 1 } },
    'hello/fn.env.json': { json: { A: 'open', B: { value: 'planted', is_secret: true } } },
    'hello/v2/handler.lua': LUA,
    'users/[id].js': NODE,
    'both/handler.js': NODE,
    'lua/both/handler.lua': LUA,
  })
  const answer = await ask('GET', '/_fn/function?name=hello')
  t.equal(answer.status, 200)
  t.notMatch(answer.text(), 'planted')
  t.match(answer.headers.etag, /^"[\w-]{22}"$/)
  t.match(answer.json(), {
    runtime: 'lua',
    name: 'hello',
    version: null,
    kind: 'function',
    file: 'hello/handler.lua',
    function_dir: tree.path('hello'),
    file_path: tree.path('hello/handler.lua'),
    config_path: tree.path('hello/fn.config.json'),
    policy: { timeout_ms: 77, max_concurrency: 20, methods: [/GET/], worker_pool: { max_queue: 3 }, keep_warm: null },
    fn_env: { A: { value: 'open', is_secret: false }, B: { value: '<hidden>', is_secret: true } },
    runtime_health: { up: true },
    metadata: {
      endpoints: { mapped_routes: ['/hello', '/hello/*'], public_route: '/hello' },
      env: { keys: ['A', 'B'] },
    },
    code: LUA,
    code_truncated: false,
    warnings: [/odd/],
  })
  const [, without] = await say('GET', '/_fn/function?name=hello&include_code=0')
  t.notOk('code' in without)
  t.match(await say('GET', '/_fn/function?name=hello&version=v2'), [200, { version: 'v2', key: 'lua/hello@v2' }])
  t.match(await say('GET', '/_fn/function?name=users/%5Bid%5D'), [200, { kind: 'file', runtime: 'node' }])
  t.match(await say('GET', '/_fn/function?name=both'), [409, { error: /ambiguous function: "both"/ }])
  t.match(await say('GET', '/_fn/function?name=both&runtime=lua'), [200, { file: 'lua/both/handler.lua' }])
  t.match(await say('GET', '/_fn/function?name=none'), [404, { error: 'unknown function or version' }])
  t.match(await say('GET', '/_fn/function?name=hello&version=v9'), [404, {}])
  t.match(await say('GET', '/_fn/function'), [400, { error: /field name is missing/ }])
  t.match(await say('GET', '/_fn/function?name=hello&runtime=perl'), [400, { error: /runtime must be one of.*"perl"/ }])
  t.match(await say('GET', '/_fn/function?name=hello&version=..'), [400, { error: /version must be/ }])
})

t.test('[control/function.2] a caller who may see no paths sees no code and no value', async t => {
  const { gateway } = await makeControlBed(
    t,
    { 'hello/handler.lua': LUA, 'hello/fn.env.json': { json: { A: 'planted-value' } } },
    { consoleLocalOnly: false },
  )
  for (const url of ['/_fn/function?name=hello', '/_fn/function-config?name=hello', '/_fn/function-env?name=hello']) {
    const answer = await gateway.inject({ url, remoteAddress: '203.0.113.9' })
    t.equal(answer.status, 200, url)
    t.notMatch(answer.text(), /planted-value|function handler|\/tmp\/|_dir|_path/, url)
  }
})

t.test(
  '[control/function.3, control/function.4] every language is made from its template and answers at once',
  async t => {
    for (const runtime of RUNTIMES) {
      const bed = await makeControlBed(t, {}, { runtimes: [runtime], inspect: true })
      const [status, record] = await bed.say('POST', `/_fn/function?runtime=${runtime}&name=api/hello`, {})
      t.equal(status, 201, runtime)
      t.match(record, { runtime, name: 'api/hello', version: null, code: /handler/, policy: { methods: ['GET'] } })
      t.same(
        bed.gateway.warnings.filter(({ path }) => path.startsWith('api')),
        [],
        `${runtime}: no warning`,
      )
      t.match(bed.gateway.explain('GET', '/api/hello').winner, { runtime })
    }
    const { ask, say, tree } = await makeControlBed(t, {})
    await say('POST', '/_fn/function?runtime=lua&name=hello', {})
    t.match((await ask('GET', '/hello?name=you')).json(), { message: 'Hello, you!' })
    t.same(readdirSync(tree.path('hello')).sort(), ['fn.config.json', 'handler.lua'])
    const body = {
      filename: 'main.lua',
      methods: ['POST'],
      summary: 'Mine',
      query_example: { a: 1 },
      body_example: { b: 2 },
      routes: ['/x/:id'],
      code: 'function handler(e) return e.params.id end\n',
      other: 1,
    }
    t.match(await say('POST', '/_fn/function?runtime=lua&name=own', body), [
      201,
      { warnings: [/other is not a known key/] },
    ])
    t.equal((await ask('POST', '/x/7')).text(), '"7"')
    t.match(JSON.parse(readFileSync(tree.path('own/fn.config.json'), 'utf8')), {
      runtime: 'lua',
      entrypoint: 'main.lua',
      invoke: { methods: ['POST'], summary: 'Mine', query: { a: 1 }, body: { b: 2 }, routes: ['/x/:id'] },
    })
  },
)

t.test('[control/function.3] a version stands below its function, a group takes what is of its runtime', async t => {
  const { ask, say, tree } = await makeControlBed(t, { 'hello/handler.lua': LUA, 'node/a/handler.js': NODE })
  const code = 'function handler() return 2 end\n'
  t.match(await say('POST', '/_fn/function?runtime=lua&name=hello&version=v2', { code }), [201, { version: 'v2' }])
  t.equal((await ask('GET', '/hello@v2')).text(), '2')
  t.ok(existsSync(tree.path('hello/v2/handler.lua')))
  t.match(await say('POST', '/_fn/function?runtime=node&name=b', {}), [201, { file: 'node/b/handler.js' }])
  t.match(await say('POST', '/_fn/function?runtime=lua&name=new&version=v1', {}), [201, { version: 'v1' }])
})

t.test('[control/function.5] what cannot be made is refused, and nothing is left behind', async t => {
  const outside = makeTree({ kept: '' })
  t.teardown(outside.cleanup)
  const { say, tree } = await makeControlBed(t, {
    'hello/handler.lua': LUA,
    'files/data.txt': 'x',
    'routes/get.js': NODE,
    'lua/deep/handler.lua': LUA,
    link: { symlink: outside.root },
  })
  const before = readdirSync(tree.root, { recursive: true }).sort()
  const q = (name: string, more = '') => `/_fn/function?runtime=node&name=${name}${more}`
  const cases: [url: string, body: unknown, status: number, error: RegExp][] = [
    ['/_fn/function?name=a', {}, 400, /runtime is missing/],
    ['/_fn/function?runtime=node', {}, 400, /name is missing/],
    ['/_fn/function?runtime=php&name=a', {}, 400, /php is not enabled; set FN_RUNTIMES=lua,node,php/],
    ['/_fn/function?runtime=lua&name=hello', {}, 409, /function already exists: lua hello/],
    ['/_fn/function?runtime=lua&name=hello&version=default', {}, 409, /function already exists: lua hello$/],
    [q('hello'), {}, 409, /already contains a function or routes/],
    [q('routes'), {}, 409, /already contains a function or routes/],
    [q('link/a'), {}, 403, /link is a symbolic link/],
    [q('link'), {}, 403, /link is a symbolic link/],
    [q('_a'), {}, 400, /never served: private/],
    [q('node_modules/a'), {}, 400, /never served/],
    [q('_fn/a'), {}, 400, /never served|reserved/],
    [q('console'), {}, 400, /reserved/],
    [q('a', '&version=_x'), {}, 400, /never served/],
    [q('a'), { filename: '../x.js' }, 400, /filename must be/],
    [q('a'), { filename: 'handler.lua' }, 400, /filename must be handler, main or index with .js .ts/],
    [q('a'), { filename: 5 }, 400, /filename must be/],
    [q('a'), { code: 5 }, 400, /code must be a text/],
    [q('a'), { code: 'x'.repeat(2 * 1024 * 1024 + 1) }, 413, /2097152/],
    [q('a'), { methods: ['BREW'] }, 400, /body: invoke.methods.* must be one of GET.*"BREW"/],
    [q('a'), { routes: ['/_fn/a'] }, 400, /body: invoke.routes must be/],
    [q('a'), { query_example: 5 }, 400, /invoke.query must be an object/],
    [q('a'), '[]', 400, /JSON object/],
    [q('lua/a/b/c/d/e'), {}, 400, /would not be served/],
    [q('x'.repeat(256)), {}, 400, /name is too long/],
    ...['../a', 'a/../b', 'a//b', '/a', '%2e%2e/a', 'a%00', 'a%5cb', 'a.b', 'é', 'x'.repeat(600)].map(
      (name): [string, unknown, number, RegExp] => [q(name), {}, 400, /name must be|NUL/],
    ),
  ]
  for (const [url, body, status, error] of cases) {
    const [got, answer] = await say('POST', url, body)
    t.equal(got, status, url.slice(0, 60))
    t.match(answer.error, error, url.slice(0, 60))
  }
  t.same(readdirSync(tree.root, { recursive: true }).sort(), before)
  t.same(readdirSync(outside.root), ['kept'])
})

t.test('[control/function.9] what is made has the mode of any folder, and the owner of the tree', async t => {
  const { say, tree } = await makeControlBed(t, {})
  const isRoot = process.geteuid?.() === 0
  if (isRoot) chownSync(tree.root, 12_345, 54_321)
  mkdirSync(tree.path('plain'))
  t.equal((await say('POST', '/_fn/function?runtime=lua&name=api/v1/hello', {}))[0], 201)
  const names = ['api', 'api/v1', 'api/v1/hello', 'api/v1/hello/handler.lua', 'api/v1/hello/fn.config.json']
  for (const name of names) {
    const { mode, uid, gid } = statSync(tree.path(name))
    const wanted = name.includes('.') ? 0o644 : statSync(tree.path('plain')).mode & 0o777
    t.equal(mode & 0o777, wanted, name)
    if (isRoot) t.same([uid, gid], [12_345, 54_321], name)
  }
  if (isRoot) chownSync(tree.path('api/v1/hello/handler.lua'), 777, 777)
  await say('PUT', '/_fn/function-code?name=api/v1/hello', { code: 'function handler() return 1 end\n' })
  if (isRoot) t.equal(statSync(tree.path('api/v1/hello/handler.lua')).uid, 777, 'a file keeps its owner')
})

t.test('[control/function.6] a folder of one function goes with everything in it', async t => {
  const { ask, say, tree } = await makeControlBed(t, {
    'hello/handler.lua': LUA,
    'hello/data/x.txt': 'x',
    'hello/_shared.lua': '',
    'api/users/handler.js': NODE,
    'api/[id].js': NODE,
  })
  t.equal((await ask('GET', '/hello')).status, 200)
  t.same(await say('DELETE', '/_fn/function?name=hello'), [
    200,
    { ok: true, runtime: 'lua', name: 'hello', version: null },
  ])
  t.equal((await ask('GET', '/hello')).status, 404)
  t.notOk(existsSync(tree.path('hello')))
  t.same(readdirSync(tree.path('.svc/trash')), [])
  t.match(await say('DELETE', '/_fn/function?name=hello'), [404, {}])
  t.equal((await say('DELETE', '/_fn/function?name=api/%5Bid%5D'))[0], 200)
  t.same(readdirSync(tree.path('api')), ['users'], 'a file route is one file')
})

t.test('[control/function.6] where others live in the folder only its own files go', async t => {
  const { ask, say, tree } = await makeControlBed(t, {
    'hello/handler.lua': LUA,
    'hello/fn.config.json': { json: { runtime: 'lua' } },
    'hello/fn.env.json': { json: {} },
    'hello/notes.md': 'mine',
    'hello/v2/handler.lua': LUA,
    'mixed/handler.js': NODE,
    'mixed/get.extra.js': NODE,
    'mixed/core.js': NODE,
  })
  t.equal((await say('DELETE', '/_fn/function?name=hello'))[0], 200)
  t.same(readdirSync(tree.path('hello')).sort(), ['notes.md', 'v2'])
  const refused = await say('DELETE', '/_fn/function?name=mixed')
  t.match(refused, [409, { error: /^mixed is not deleted: .* core\.js would become a route/ }])
  t.ok(existsSync(tree.path('mixed/handler.js')))
  t.equal((await ask('GET', '/mixed/core')).status, 404)
  tree.write({ 'one/handler.lua': LUA, 'one/v1/handler.lua': LUA })
  await ask('POST', '/_fn/reload')
  t.equal((await say('DELETE', '/_fn/function?name=one&version=v1'))[0], 200)
  t.same(readdirSync(tree.path('one')), ['handler.lua'])
})

t.test('[control/function.7] nothing is deleted through a link', async t => {
  const outside = makeTree({ 'far/handler.lua': LUA, 'far.lua': LUA })
  t.teardown(outside.cleanup)
  const { say, tree } = await makeControlBed(t, {
    near: { symlink: outside.path('far') },
    'file.lua': { symlink: outside.path('far.lua') },
  })
  for (const name of ['near', 'file']) {
    t.match(await say('DELETE', `/_fn/function?name=${name}`), [403, { error: /is a symbolic link/ }])
    t.ok(lstatSync(tree.path(name === 'near' ? name : 'file.lua')).isSymbolicLink())
  }
  t.same(readdirSync(outside.root).sort(), ['far', 'far.lua'])
  t.same(readdirSync(outside.path('far')), ['handler.lua'])
})

t.test('[control/function.8] many at once: one is made, the others are told', async t => {
  const { say, tree } = await makeControlBed(t, {})
  const tries = await Promise.all(
    Array.from({ length: 6 }, () => say('POST', '/_fn/function?runtime=lua&name=hello', {})),
  )
  t.same(tries.map(([status]) => status).sort(), [201, 409, 409, 409, 409, 409])
  writeFileSync(tree.path('hello/extra.txt'), '')
  const deletes = await Promise.all(Array.from({ length: 3 }, () => say('DELETE', '/_fn/function?name=hello')))
  t.same(deletes.map(([status]) => status).sort(), [200, 404, 404])
})
