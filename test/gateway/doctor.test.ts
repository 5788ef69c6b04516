import { chmodSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { createGateway, type DoctorCheck, type GatewayOptions } from '../../lib/index.ts'
import { startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { makeTree } from '../helpers/tree.ts'

async function examine(t: Test, files: Record<string, string>, options: GatewayOptions = {}, loads = false) {
  const tree = makeTree(files)
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, env: process.env, ...options })
  t.teardown(() => gateway.close({ timeoutMs: 0 }))
  const checks = await gateway.doctor({ loads })
  const find = (id: string): DoctorCheck[] => checks.filter(check => check.id === id)
  return { tree, gateway, checks, find }
}

t.test('[gateway/doctor.1] a missing runtime is an error only where functions need it', async t => {
  const missing: GatewayOptions = { runtimes: ['lua', 'php'], binaries: { php: '/nowhere/php' } }
  const without = await examine(t, { 'a.lua': 'function handler() end\n' }, missing)
  t.match(without.find('runtime.php.version'), [{ status: 'ok', message: /not installed; no function needs it/ }])
  t.match(without.find('runtime.lua.version'), [{ status: 'ok', message: /1 function$/ }])
  t.match(without.find('runtime.node.version'), [{ status: 'ok', message: process.versions.node }])
  for (const id of ['folder.functions', 'disk.functions', 'clock.time', 'access.control', 'state.jobs'])
    t.match(without.find(id), [{ status: /ok|warning/ }], id)

  const needed = await examine(t, { 'a.php': '<?php function handler() {}\n' }, missing)
  const [php] = needed.find('runtime.php.version')
  t.match(php, { status: 'error', message: /\/nowhere\/php.*needed by 1 function/, fix: /install|https/ })
})

t.test('[gateway/doctor.2, gateway/doctor.3] functions are loaded, and a failure has its place', async t => {
  const files = {
    'good.js': 'exports.handler = () => 1\n',
    'bad.js': '\nexports.handler = () => { retur n 1 }\n',
    'light.lua': 'function handler() return 1 end\n',
  }
  const { gateway, find } = await examine(t, files, { runtimes: ['node', 'lua'] }, true)
  t.match(find('function.load'), [
    { status: 'ok', message: '2 functions loaded' },
    { status: 'error', message: /^node\/bad@default: syntax error in bad\.js:2/, fix: String },
  ])
  const workers = (await gateway.inject('/_fn/workers')).json() as {
    runtimes: Record<string, { workers: { state: string }[] }>
  }
  const left = Object.values(workers.runtimes).flatMap(runtime => runtime.workers)
  t.same(
    left.filter(({ state }) => state !== 'ending'),
    [],
    'no worker stays',
  )
  t.equal((await gateway.inject('/good')).status, 200)

  const known = (await gateway.inject('/_fn/doctor')).json() as { checks: DoctorCheck[] }
  t.match(
    known.checks.find(({ id }) => id === 'function.load'),
    { status: 'ok', message: /without a known failure/ },
  )
  const remote = await gateway.inject({ url: '/_fn/doctor', remoteAddress: '203.0.113.9' })
  t.equal(remote.status, 403)
})

t.test('[gateway/doctor.4] what others left, and networks that contain everyone', async t => {
  const wide: GatewayOptions = {
    runtimes: ['lua'],
    jobsEnabled: false,
    schedulerEnabled: false,
    consoleLocalCidrs: ['0.0.0.0/0'],
    trustedProxyCidrs: ['::/0'],
  }
  const { tree, gateway, find } = await examine(t, { 'a.lua': 'function handler() end\n' }, wide)
  t.match(find('access.local-networks'), [{ status: 'error', message: /0\.0\.0\.0\/0/ }])
  t.match(find('access.proxies'), [{ status: 'error', message: /::\/0/ }])
  t.match(find('state.lock'), [{ status: 'ok' }])
  tree.write({ '.svc/jobs/log': 'fngw jobs 99\n' })
  writeFileSync(tree.path('.svc/gateway.lock'), '{ "id": "cut off')
  const checks = await gateway.doctor()
  t.match(
    checks.filter(({ id }) => id.startsWith('state.')),
    [
      { id: 'state.lock', status: /ok|warning/ },
      { id: 'state.jobs', status: 'error', message: /\.svc\/jobs\/log/, fix: String },
    ],
  )
})

t.test(
  '[gateway/doctor.1] programs that are too old, that do not run, and package managers that are missing',
  async t => {
    const tools = makeTree({ php: '#!/bin/sh\necho "PHP 7.4.33 (cli)"\n', python3: '#!/bin/sh\nexit 3\n' })
    t.teardown(tools.cleanup)
    for (const name of ['php', 'python3']) chmodSync(tools.path(name), 0o755)
    const options: GatewayOptions = {
      inspect: true,
      env: { PATH: tools.root },
      runtimes: ['php', 'python', 'node', 'go'],
      runtimeSockets: { go: ['tcp://127.0.0.1:1'] },
      runtimeSecret: 's'.repeat(32),
    }
    const files = {
      'a.php': '<?php function handler() {}\n',
      'b.py': 'def handler(e): pass\n',
      'c.js': 'exports.handler = () => 1\n',
    }
    const { find } = await examine(t, files, options)
    t.match(find('runtime.php.version'), [{ status: 'error', message: /7\.4\.33 is too old/ }])
    t.match(find('runtime.python.version'), [{ status: 'error', message: /does not run or does not report a version/ }])
    t.match(find('runtime.rust.version'), [{ status: 'ok', message: /no function needs it/ }])
    t.match(find('runtime.go.version'), [{ status: 'ok', message: /go daemons: tcp:\/\/127\.0\.0\.1:1, 0 functions/ }])
    for (const name of ['python', 'node', 'php'])
      t.match(find(`tool.${name}`), [{ status: 'warning', fix: String }], name)
  },
)

t.test('[gateway/doctor.4] a state folder that is a link', async t => {
  const { tree, gateway } = await examine(t, { 'root/a.lua': 'function handler() end\n' }, { runtimes: ['lua'] })
  rmSync(tree.path('.svc'), { recursive: true, force: true })
  symlinkSync(tree.path('root'), tree.path('.svc'))
  const checks = await gateway.doctor()
  const found = checks.find(({ id }) => id === 'folder.state')
  t.match(found, { status: 'error', message: /\.svc is a symbolic link, which is not followed/ })
})

t.test('[gateway/doctor.4] warnings of the tree have the severity of what they break', async t => {
  const files = {
    'a.lua': 'function handler() end\n',
    'x/[id].lua': 'function handler() end\n',
    'x/[name].lua': 'function handler() end\n',
    'b/fn.config.json': '{ "timeout_ms": -1 }',
    'b/handler.lua': 'function handler() end\n',
  }
  const { tree, gateway, find, checks } = await examine(t, files, { runtimes: ['lua'], inspect: true })
  t.match(find('tree.route-conflict'), [{ status: 'error', message: /x\/\[/, fix: String }])
  const values = checks.filter(({ id }) => id.startsWith('tree.config'))
  t.match(values, [{ message: /b\/fn\.config\.json/ }])
  mkdirSync(tree.path('.svc/gateway.lock'), { recursive: true })
  tree.write({ '.svc/jobs/log.set-aside-1': 'x' })
  const later = await gateway.doctor()
  t.match(
    later.filter(({ id }) => id.startsWith('state.')),
    [
      { id: 'state.lock', status: 'error', fix: String },
      { id: 'state.jobs', status: 'warning', message: /log\.set-aside-1/ },
    ],
  )
})

t.test('[gateway/doctor.5] the store of a fleet', { skip: WITHOUT_REDIS }, async t => {
  const none = await examine(t, {}, { inspect: true })
  t.same(none.find('store.reachable'), [])
  const redis = await startRedis(t, [
    '--appendonly',
    'no',
    '--maxmemory-policy',
    'allkeys-lru',
    '--requirepass',
    'planted',
  ])
  const [, host] = redis.url.split('//')
  const storeUrl = `redis://:planted@${host}`
  const { checks, find } = await examine(t, {}, { storeUrl, inspect: true })
  t.match(find('store.reachable'), [{ status: 'ok', message: `the store ${redis.url} answers: version ` }])
  t.match(find('store.eviction'), [{ status: 'warning', message: /allkeys-lru/, fix: /noeviction/ }])
  t.match(find('store.persistence'), [{ status: 'warning', fix: /appendonly yes/ }])
  const member = await examine(t, {}, { storeUrl, runtimes: ['lua'] })
  t.equal(member.checks.filter(({ message }) => message.includes('maxmemory-policy')).length, 1, 'said once')
  const wrong = await examine(t, {}, { storeUrl: storeUrl.replace('planted', 'planted-2'), inspect: true })
  const refused = { status: 'error', message: /cannot be used: the user name or the password is wrong/, fix: String }
  t.match(wrong.find('store.reachable'), [refused])
  await redis.end()
  const away = (await member.gateway.doctor()).find(({ id }) => id === 'store.reachable')
  t.match(away, { status: 'error', message: /cannot be used: .*ECONNREFUSED/, fix: /Start the server/ })
  t.notMatch(JSON.stringify([checks, wrong.checks, away]), 'planted')
})

t.test('[gateway/doctor.6] a public address without a token, an old npm, and this package', async t => {
  const tools = makeTree({ npm: '#!/bin/sh\necho 6.14.18\n' })
  t.teardown(tools.cleanup)
  chmodSync(tools.path('npm'), 0o755)
  const options: GatewayOptions = { inspect: true, env: { PATH: tools.root }, host: '0.0.0.0' }
  const { find } = await examine(t, { 'a.js': 'exports.handler = () => 1\n' }, options)
  t.match(find('access.admin-token'), [{ status: 'warning', message: /0\.0\.0\.0/, fix: /FN_ADMIN_TOKEN/ }])
  t.match(find('tool.node'), [{ status: 'warning', message: /npm 6\.14\.18 is too old: 7/ }])
  t.match(find('fngw.version'), [{ status: 'ok', message: /^fngw \d.* on Node\.js \d/ }])
  t.same(find('isolation.files'), [])
})

t.test(
  '[gateway/doctor.6] files that are closed to the user of the gateway',
  { skip: process.getuid?.() === 0 ? false : 'only root changes users' },
  async t => {
    const files = { 'a/handler.js': 'exports.handler = () => 1\n', 'a/fn.config.json': '{}', 'b/c/handler.js': '' }
    const options: GatewayOptions = { isolation: 'user', inspect: true }
    const { tree, gateway, find } = await examine(t, files, options)
    chmodSync(tree.root, 0o755)
    const [fine] = (await gateway.doctor()).filter(({ id }) => id === 'isolation.files')
    t.match(fine, { status: 'ok' })
    chmodSync(tree.path('a/fn.config.json'), 0o600)
    chmodSync(tree.path('b/c'), 0o700)
    const [closed] = (await gateway.doctor()).filter(({ id }) => id === 'isolation.files')
    t.match(closed, { status: 'error', message: /: a\/fn\.config\.json \(600\), b\/c \(700\)$/, fix: /chgrp/ })
    t.equal(find('isolation.files').length, 1)
  },
)
