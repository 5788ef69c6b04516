import { chmodSync, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs'
import t from 'tap'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { makeControlBed } from '../helpers/control-bed.ts'
import { makeTree } from '../helpers/tree.ts'

// A machine with other work to do is many times slower.
t.setTimeout(180_000)

const LUA = 'function handler(event) return { env = event.env, n = 1 } end\n'
const CONFIG = `{
    "odd": [1, 2],
    "timeout_ms": 100, "runtime": "lua"
}
`
const CONFIG_URL = '/_fn/function-config?name=hello'
const ENV_URL = '/_fn/function-env?name=hello'
const CODE_URL = '/_fn/function-code?name=hello'

t.test(
  '[control/function-config.5, control/function-config.6] the file is read with its tag, changed in place, in force at once',
  async t => {
    const { ask, say, tree } = await makeControlBed(t, { 'hello/handler.lua': LUA, 'hello/fn.config.json': CONFIG })
    const before = await ask('GET', CONFIG_URL)
    t.match(before.json(), { config: { odd: [1, 2], timeout_ms: 100 }, policy: { timeout_ms: 100 }, warnings: [/odd/] })
    chmodSync(tree.path('hello/fn.config.json'), 0o640)
    const body = { timeout_ms: 200, methods: ['POST'], max_workers: 3 }
    const answer = await ask('PUT', CONFIG_URL, body, { 'if-match': before.headers.etag! })
    t.equal(answer.status, 200)
    t.match(answer.json(), {
      policy: { timeout_ms: 200, methods: ['POST'] },
      config: { odd: [1, 2], timeout_ms: 200, runtime: 'lua', invoke: { methods: ['POST'] } },
      warnings: [/^body: max_workers is not a known key/, /odd/],
    })
    t.equal(
      readFileSync(tree.path('hello/fn.config.json'), 'utf8'),
      CONFIG.replace('100', '200').replace(
        '"lua"',
        '"lua", "invoke": {\n        "methods": [\n            "POST"\n        ]\n    }',
      ),
    )
    t.equal(statSync(tree.path('hello/fn.config.json')).mode & 0o777, 0o640, 'its mode is kept')
    t.same(readdirSync(tree.path('hello')).sort(), ['fn.config.json', 'handler.lua'], 'no draft is left')
    t.equal((await ask('GET', '/hello')).status, 405)
    t.equal((await ask('POST', '/hello')).status, 200)
    const stale = await ask('PUT', CONFIG_URL, { timeout_ms: 1 }, { 'if-match': before.headers.etag! })
    t.match([stale.status, stale.json()], [409, { error: 'hello/fn.config.json was changed meanwhile: read it again' }])
    t.equal(stale.headers.etag, answer.headers.etag)
    t.equal((await say('PUT', CONFIG_URL, { timeout_ms: 300 }, { 'if-match': '*' }))[0], 200)
  },
)

t.test(
  '[control/function-config.10, control/function-env.6] a file names the other functions that read it',
  async t => {
    const { say } = await makeControlBed(t, {
      'shop/cart.lua': LUA,
      'shop/post.cart.lua': LUA,
      'shop/list.lua': LUA,
      'shop/deep/item.lua': LUA,
      'shopping/handler.lua': LUA,
    })
    const shared = async (path: string, name: string) => {
      const [, { shared_with: keys, shared_with_count: count }] = await say('GET', `/_fn/${path}?name=${name}`)
      return [keys, count]
    }
    const others = ['lua/shop/cart@default', 'lua/shop/post.cart@default']
    t.same(await shared('function-env', 'shop/list'), [others, 2])
    t.same(await shared('function-config', 'shop/list'), [
      ['lua/shop/cart@default', 'lua/shop/deep/item@default', 'lua/shop/post.cart@default'],
      3,
    ])
    t.same(await shared('function-config', 'shopping'), [[], 0])
  },
)

t.test('[control/function-config.4, control/function-config.7] what is wrong changes nothing', async t => {
  const { say, tree } = await makeControlBed(t, {
    'hello/handler.lua': LUA,
    'hello/fn.config.json': CONFIG,
    'broken/handler.lua': LUA,
    'broken/fn.config.json': '{ // mine\n}',
    'list/handler.lua': LUA,
    'list/fn.config.json': '[]',
  })
  const cases: [url: string, body: unknown, status: number, error: RegExp][] = [
    [CONFIG_URL, { timeout_ms: 'x', group: 'a' }, 400, /^body: timeout_ms must be an integer .*got "x" \(string\)/],
    [CONFIG_URL, { invoke: { routes: ['nope'] } }, 400, /invoke.routes/],
    [CONFIG_URL, { entrypoint: 'none.lua' }, 400, /none.lua.*the file is as it was$/],
    [CONFIG_URL, { runtime: 'python' }, 400, /the file is as it was$/],
    [CONFIG_URL, '[]', 400, /JSON object/],
    [CONFIG_URL, '', 400, /got nothing/],
    [CONFIG_URL, `{"a":${'['.repeat(70)}${']'.repeat(70)}}`, 400, /nested deeper/],
    [CONFIG_URL, { group: 'x'.repeat(1024 * 1024) }, 413, /1048576/],
    ['/_fn/function-config?name=broken', { group: 'a' }, 409, /line 1, column 3.*a comment; mend it by hand/],
    ['/_fn/function-config?name=list', { group: 'a' }, 409, /is not a JSON object; mend it by hand/],
    ['/_fn/function-config?name=none', { group: 'a' }, 404, /unknown function/],
    ['/_fn/function-config?name=../hello', { group: 'a' }, 404, /unknown function/],
    ['/_fn/function-config?name=hello%00', {}, 400, /name must be the name of a function/],
  ]
  for (const [url, body, status, error] of cases) {
    const [got, answer] = await say('PUT', url, body)
    t.equal(got, status, `${url} ${JSON.stringify(body).slice(0, 50)}`)
    t.match(answer.error, error)
  }
  t.equal(readFileSync(tree.path('hello/fn.config.json'), 'utf8'), CONFIG)
  t.equal(readFileSync(tree.path('broken/fn.config.json'), 'utf8'), '{ // mine\n}')
  t.match(await say('GET', '/_fn/function-config?name=hello'), [200, { policy: { timeout_ms: 100 } }])
})

t.test('[control/function-config.8] a name that changes, a file route, a function without a file', async t => {
  const { ask, say, tree } = await makeControlBed(t, {
    'hello/handler.lua': LUA,
    'users/[id].lua': LUA,
    'users/other.lua': LUA,
  })
  t.match(await say('GET', CONFIG_URL), [200, { config: null, etag: '"none"' }])
  t.match(await say('PUT', CONFIG_URL, { name: 'renamed', runtime: 'lua' }, { 'if-match': '"none"' }), [
    200,
    { name: 'renamed' },
  ])
  t.equal((await ask('GET', '/renamed')).status, 200)
  t.match(await say('PUT', '/_fn/function-config?name=users/%5Bid%5D', { timeout_ms: 9 }), [
    200,
    { policy: { timeout_ms: 9 } },
  ])
  t.match(await say('GET', '/_fn/function-config?name=users/other'), [200, { policy: { timeout_ms: 9 } }])
  t.same(JSON.parse(readFileSync(tree.path('users/fn.config.json'), 'utf8')), { timeout_ms: 9 })
})

t.test(
  '[control/function-env.1, control/function-env.3, control/function-env.5] the environment is set, masked and in force',
  async t => {
    const { ask, say, tree } = await makeControlBed(t, {
      'hello/handler.lua': LUA,
      'hello/.env': 'OUTSIDE_TOKEN=planted-0\n',
    })
    t.match(await say('GET', ENV_URL), [200, { fn_env: {}, other_keys: ['OUTSIDE_TOKEN'], etag: '"none"' }])
    const [status, first] = await say('PUT', ENV_URL, { A: 'x', B: { value: 'planted-1', is_secret: true }, N: 5 })
    t.equal(status, 200)
    t.same(first.fn_env, {
      A: { value: 'x', is_secret: false },
      B: { value: '<hidden>', is_secret: true },
      N: { value: '5', is_secret: false },
    })
    t.equal(statSync(tree.path('hello/fn.env.json')).mode & 0o777, 0o600, 'it may hold secrets')
    t.match((await ask('GET', '/hello')).json(), {
      env: { A: 'x', B: 'planted-1', N: '5', OUTSIDE_TOKEN: 'planted-0' },
    })
    const [, again] = await say('PUT', ENV_URL, { ...(first.fn_env as object), N: null, OUTSIDE_TOKEN: '<hidden>' })
    t.same(Object.keys(again.fn_env as object), ['A', 'B'])
    t.match((await ask('GET', '/hello')).json(), { env: { A: 'x', B: 'planted-1', OUTSIDE_TOKEN: 'planted-0' } })
    const shown = await say('PUT', ENV_URL, { B: { value: '<hidden>', is_secret: false } })
    t.match(shown, [400, { error: /"B" cannot be shown from now on without its value/ }])
    t.match(await say('PUT', ENV_URL, { C: ['planted-2'] }), [400, { error: /^body: C must be/ }])
    t.match(await say('PUT', ENV_URL, { A: 1 }, { 'if-match': '"none"' }), [409, {}])
    const everything = JSON.stringify([first, again, shown])
    t.notMatch(everything, /planted-/)
  },
)

t.test('[control/function-code.1, control/function-code.2] the next request runs the new code', async t => {
  const { ask, say, tree } = await makeControlBed(t, { 'hello/handler.lua': LUA, 'hello/v2/handler.lua': LUA })
  t.equal((await ask('GET', '/hello')).status, 200, 'the old one has a worker')
  for (let n = 2; n < 6; n++) {
    const code = `function handler() return { n = ${n} } end\n`
    t.match(await say('PUT', CODE_URL, { code, odd: 1 }), [200, { code, code_truncated: false, warnings: [/odd/] }])
    t.match((await ask('GET', '/hello')).json(), { n }, `the code of ${n}`)
  }
  t.equal((await say('PUT', `${CODE_URL}&version=v2`, { code: 'function handler() return 9 end' }))[0], 200)
  t.equal((await ask('GET', '/hello@v2')).text(), '9')
  const read = await ask('GET', '/_fn/function?name=hello')
  t.equal((await say('PUT', CODE_URL, { code: LUA }, { 'if-match': read.headers.etag! }))[0], 200)
  t.equal((await say('PUT', CODE_URL, { code: LUA }, { 'if-match': read.headers.etag! }))[0], 409)
  t.match(await say('PUT', CODE_URL, { code: 'function (' }), [200, { warnings: [/handler.lua/] }], 'told at once')
  t.match(await say('PUT', CODE_URL, {}), [400, { error: 'code is missing' }])
  t.match(await say('PUT', CODE_URL, { code: null }), [400, {}])
  t.equal((await say('PUT', CODE_URL, { code: 'é'.repeat(1024 * 1024 + 1) }))[0], 413)
  const full = '-'.repeat(2 * 1024 * 1024 - LUA.length) + LUA
  t.equal((await say('PUT', CODE_URL, { code: full }))[0], 200, '2 MiB')
  t.equal((await say('PUT', '/_fn/function-code?name=none', { code: 'x' }))[0], 404)
  t.equal((await say('GET', CODE_URL))[0], 405)
  t.same(readdirSync(tree.path('hello')).sort(), ['handler.lua', 'v2'])
})

t.test('[control/function.7, control/function-code.3] nothing is written through a link', async t => {
  const outside = makeTree({ 'far/handler.lua': LUA, 'far.lua': LUA, 'env.json': '{}' })
  t.teardown(outside.cleanup)
  const { say, tree } = await makeControlBed(t, {
    near: { symlink: outside.path('far') },
    'file.lua': { symlink: outside.path('far.lua') },
    'own/handler.lua': LUA,
    'own/fn.env.json': { symlink: outside.path('env.json') },
    'own/fn.config.json': { symlink: 'none' },
  })
  const cases: [method: string, url: string, body: unknown][] = [
    ['PUT', 'function-code?name=near', { code: 'x' }],
    ['PUT', 'function-code?name=file', { code: 'x' }],
    ['PUT', 'function-config?name=near', { group: 'a' }],
    ['PUT', 'function-env?name=near', { A: 1 }],
    ['PUT', 'function-env?name=own', { A: 1 }],
    ['PUT', 'function-config?name=own', { group: 'a' }],
  ]
  for (const [method, url, body] of cases)
    t.match(await say(method, `/_fn/${url}`, body), [403, { error: /is a symbolic link, not a / }], url)
  t.equal(readFileSync(outside.path('far/handler.lua'), 'utf8'), LUA)
  t.equal(readFileSync(outside.path('env.json'), 'utf8'), '{}')
  t.ok(lstatSync(tree.path('own/fn.env.json')).isSymbolicLink())
})

t.test('[control/function-config.9] writers at once: each sees the work of the one before', async t => {
  const { say, tree } = await makeControlBed(t, { 'hello/handler.lua': LUA, 'hello/fn.config.json': CONFIG })
  const keys = Array.from({ length: 12 }, (_, n) => `K${n}`)
  const [envs, configs] = await Promise.all([
    Promise.all(keys.map(key => say('PUT', ENV_URL, { [key]: key }))),
    Promise.all([{ group: 'g' }, { timeout_ms: 5 }, { max_concurrency: 3 }].map(body => say('PUT', CONFIG_URL, body))),
  ])
  t.same(new Set([...envs, ...configs].map(([status]) => status)), new Set([200]))
  t.same(Object.keys(JSON.parse(readFileSync(tree.path('hello/fn.env.json'), 'utf8'))).sort(), [...keys].sort())
  t.match(JSON.parse(readFileSync(tree.path('hello/fn.config.json'), 'utf8')), {
    group: 'g',
    timeout_ms: 5,
    max_concurrency: 3,
  })
  const [, { etag }] = await say('GET', ENV_URL)
  const tagged = await Promise.all([1, 2, 3].map(n => say('PUT', ENV_URL, { A: n }, { 'if-match': etag as string })))
  t.same(tagged.map(([status]) => status).sort(), [200, 409, 409])
})

const LANGUAGES: Readonly<Record<string, (n: number) => string>> = {
  node: n => `export const handler = event => ({ n: ${n}, a: event.env.A })\n`,
  python: n => `def handler(event):\n    return {"n": ${n}, "a": event["env"].get("A")}\n`,
  php: n =>
    `<?php\nfunction handler(array $event): array { return ['n' => ${n}, 'a' => $event['env']['A'] ?? null]; }\n`,
  lua: n => `function handler(event) return { n = ${n}, a = event.env.A } end\n`,
}

t.test(
  '[control/function-code.1, control/function-env.5, control/function.3] in every language the next request sees the change',
  async t => {
    for (const [runtime, toCode] of Object.entries(LANGUAGES)) {
      const { problem } = findProgram(runtime as 'node', {}, process.env.PATH ?? '')
      if (problem !== null) {
        t.comment(`${runtime} is not run: ${problem}`)
        continue
      }
      const { ask, say } = await makeControlBed(t, {}, { runtimes: [runtime as 'node'], env: process.env })
      const call = async () => (await ask('GET', '/hello')).json()
      t.equal((await say('POST', `/_fn/function?runtime=${runtime}&name=hello`, { code: toCode(1) }))[0], 201, runtime)
      t.match(await call(), { n: 1 }, runtime)
      t.equal((await say('PUT', ENV_URL, { A: 'x' }))[0], 200)
      t.match(await call(), { n: 1, a: 'x' }, runtime)
      t.equal((await say('PUT', CODE_URL, { code: toCode(2) }))[0], 200)
      t.match(await call(), { n: 2, a: 'x' }, runtime)
      t.equal((await say('PUT', CONFIG_URL, { invoke: { methods: ['POST'] } }))[0], 200)
      t.equal((await ask('GET', '/hello')).status, 405, runtime)
      t.equal((await say('DELETE', '/_fn/function?name=hello'))[0], 200)
      t.equal((await ask('POST', '/hello')).status, 404, runtime)
    }
  },
)

t.test('[control/function.1] of a long file the beginning is shown, and it has no tag', async t => {
  const { ask, say } = await makeControlBed(t, { 'hello/handler.lua': `${LUA}--${'x'.repeat(2 * 1024 * 1024)}` })
  const answer = await ask('GET', '/_fn/function?name=hello')
  const { code, ...rest } = answer.json() as { code: string; code_truncated: boolean; etag: unknown }
  t.match([code.length, rest.code_truncated, rest.etag, answer.headers.etag], [2 * 1024 * 1024, true, null, undefined])
  t.equal((await say('PUT', CODE_URL, { code: LUA }))[0], 200, 'it can be replaced all the same')
})
