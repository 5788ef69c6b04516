import t, { type Test } from 'tap'
import { createGateway } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'

type Sources = Record<string, { file: string | null; setting?: string }>

const handler = 'function handler() return 1 end\n'

async function setup(t: Test, entries: Record<string, string | { json: unknown }>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, runtimes: ['lua', 'node'] })
  t.teardown(() => gateway.close())
  const sourcesOf = async (name: string, version = '') => {
    const answer = await gateway.inject(`/_fn/function?name=${encodeURIComponent(name)}&version=${version}`)
    t.equal(answer.status, 200, `${name}: ${answer.body.toString()}`)
    const { policy, policy_sources } = answer.json() as { policy: object; policy_sources: Sources }
    t.same(Object.keys(policy_sources).sort(), Object.keys(policy).sort(), `${name}: every field has a source`)
    return policy_sources
  }
  return { tree, gateway, sourcesOf }
}

t.test('[control/function.11] each value names the file that sets it', async t => {
  const { sourcesOf } = await setup(t, {
    'fn.config.json': { json: { timeout_ms: 5000, group: 'all', cors: { origins: ['http://a.example'] } } },
    'a/fn.config.json': { json: { timeout_ms: 6000, max_body_bytes: 10, invoke: { allow_hosts: ['a.example'] } } },
    'a/b/handler.lua': handler,
    'a/b/fn.config.json': { json: { runtime: 'lua', max_body_bytes: 20, worker_pool: { max_workers: 2 } } },
    'plain.lua': handler,
  })
  const file = (name: string) => ({ file: name })
  t.match(await sourcesOf('a/b'), {
    timeout_ms: file('a/fn.config.json'),
    max_body_bytes: file('a/b/fn.config.json'),
    max_concurrency: { file: null, setting: 'defaultMaxConcurrency' },
    group: file('fn.config.json'),
    cors: file('fn.config.json'),
    allow_hosts: file('a/fn.config.json'),
    worker_pool: file('a/b/fn.config.json'),
    methods: { file: null },
    schedule: { file: null },
  })
  const plain = await sourcesOf('plain')
  t.match(plain, { timeout_ms: file('fn.config.json'), methods: file('plain.lua') })
  t.same(plain.max_body_bytes, { file: null, setting: 'defaultMaxBodyBytes' })
  t.same(plain.handler, { file: null })
})

t.test('[control/function.11] versions, file routes, manifests and schedules', async t => {
  const { sourcesOf } = await setup(t, {
    'f/handler.lua': handler,
    'f/fn.config.json': { json: { runtime: 'lua', invoke: { methods: ['PUT'] }, schedule: { every_seconds: 9999 } } },
    'f/v2/handler.lua': handler,
    'f/v2/fn.config.json': { json: { timeout_ms: 7000 } },
    'only/v1/handler.lua': handler,
    'only/fn.config.json': { json: { invoke: { summary: 'of the folder' } } },
    'users/post.[id].js': 'exports.handler = () => 1\n',
    'users/index.js': 'exports.handler = () => 1\n',
    'users/fn.config.json': {
      json: { invoke: { methods: ['DELETE'], summary: 'users' }, keep_warm: { enabled: true } },
    },
    'lone/x.js': 'exports.handler = () => 1\n',
    'lone/fn.config.json': { json: { schedule: { every_seconds: 9999 } } },
    'far/fn.routes.json': { json: { routes: { 'POST /far': 'inner/_deep.js' } } },
    'far/inner/_deep.js': 'exports.handler = () => 1\n',
    'index.js': 'exports.handler = () => 1\n',
  })
  const config = { file: 'f/fn.config.json' }
  t.match(await sourcesOf('f'), { methods: config, schedule: config, timeout_ms: { setting: 'defaultTimeoutMs' } })
  t.match(await sourcesOf('f', 'v2'), {
    methods: config,
    timeout_ms: { file: 'f/v2/fn.config.json' },
    schedule: { file: null },
  })
  const users = { file: 'users/fn.config.json' }
  t.match(await sourcesOf('users/post.[id]'), { methods: { file: 'users/post.[id].js' }, summary: users })
  t.match(await sourcesOf('users'), { methods: users, keep_warm: users })
  t.match(await sourcesOf('lone/x'), { schedule: { file: 'lone/fn.config.json' }, methods: { file: 'lone/x.js' } })
  t.match(await sourcesOf('far/inner/_deep'), { methods: { file: 'far/fn.routes.json' } })
  t.match(await sourcesOf('index'), { methods: { file: null } })
})

t.test('[control/function.11] a broken file is named while its last good version holds', async t => {
  const { tree, gateway, sourcesOf } = await setup(t, {
    'f/handler.lua': handler,
    'f/fn.config.json': { json: { runtime: 'lua', timeout_ms: 4000 } },
  })
  tree.write({ 'f/fn.config.json': '{ "timeout_ms": ' })
  await gateway.reload()
  t.match(await sourcesOf('f'), { timeout_ms: { file: 'f/fn.config.json' } })
  tree.write({ 'f/fn.config.json': '{ "runtime": "lua" }' })
  await gateway.reload()
  t.match(await sourcesOf('f'), { timeout_ms: { file: null, setting: 'defaultTimeoutMs' } })
})
