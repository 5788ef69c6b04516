import { once } from 'node:events'
import { networkInterfaces } from 'node:os'
import t, { type Test } from 'tap'
import { importOptional, Store, type StoreOptions } from '../../lib/fleet/fleet-store.ts'
import { startRedis, startSentinel, WITHOUT_REDIS } from '../helpers/redis.ts'
import { hasOpenssl, makeCertificate } from '../helpers/remote-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { runCli } from '../helpers/cli.ts'

async function open(t: Test, url: string, more: Partial<StoreOptions> = {}) {
  const logs: string[] = []
  let take: () => void = () => {}
  const onLog = (level: string, message: string): void => {
    logs.push(`${level} ${message}`)
    if (message === 'the store is back') take()
  }
  const isBack = (): Promise<void> => new Promise(resolve => (take = resolve))
  const store = await Store.open({ url, prefix: 'test', isRequiredAtStart: true, onLog, ...more })
  t.teardown(() => store.close())
  return { store, logs, isBack }
}

t.test('[fleet/fleet-store.1] a package that is missing is named with the command that installs it', async t => {
  const name: string = 'a-package-that-is-not-there'
  await t.rejects(
    importOptional('bullmq', () => import(name)),
    { message: 'FN_STORE_URL needs the package bullmq: npm install bullmq@6 ioredis@5' },
  )
})

t.test('[fleet/fleet-store.2] a server that cannot be used is named with the reason and the remedy', async t => {
  const problem =
    /the store redis:\/\/127\.0\.0\.1:1\/0 cannot be used: .*ECONNREFUSED.* \(correct the URL or start the server; FN_STORE_REQUIRED=0/
  await t.rejects(open(t, 'redis://user:secret@127.0.0.1:1/0'), { message: problem })
  const { store } = await open(t, 'redis://127.0.0.1:1', { isRequiredAtStart: false })
  t.match(store.problem, /ECONNREFUSED/)
  await t.rejects(
    store.ask(redis => redis.ping()),
    { code: 'RUNTIME_DOWN', status: 503, headers: { 'Retry-After': '2' }, message: /^the store does not answer: / },
  )
})

const outside = Object.values(networkInterfaces())
  .flatMap(addresses => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address

t.test(
  '[fleet/fleet-store.2] a server in protected mode',
  { skip: WITHOUT_REDIS || (outside === undefined ? 'this machine has only loopback addresses' : false) },
  async t => {
    const { port } = await startRedis(t, ['--bind', '0.0.0.0'])
    await t.rejects(open(t, `redis://${outside}:${port}`), {
      message: /accepts only local clients \(set requirepass\)/,
    })
  },
)

t.test(
  '[fleet/fleet-store.2, fleet/fleet-store.7] a wrong password, and a URL of another kind of server',
  { skip: WITHOUT_REDIS },
  async t => {
    const { port } = await startRedis(t, ['--requirepass', 'right', '--appendonly', 'yes'])
    const host = `127.0.0.1:${port}`
    const refused = /the user name or the password is wrong/
    for (const user of ['', ':wrong@']) await t.rejects(open(t, `redis://${user}${host}`), { message: refused })
    const { store } = await open(t, `redis://:right@${host}`)
    t.equal(store.problem, null)
    const cluster = await startRedis(t, ['--cluster-enabled', 'yes'])
    const node = `127.0.0.1:${cluster.port}`
    const sentinels = await startSentinel(t, 'right')
    const sentinel = `127.0.0.1:${sentinels.port}`
    const secret = '?sentinel_password=right-watch'
    const cases: Record<string, string> = {
      [`redis://${node}`]: `it is a node of a Cluster: write redis+cluster://${node} (`,
      [`redis://${node}/1`]: `it is a node of a Cluster: write redis+cluster://${node} (`,
      [`redis://:right-watch@${sentinel}`]: `it is a Sentinel: write redis+sentinel://${sentinel}/GROUP with`,
      [`redis://:right-watch@${sentinel}/1`]: `it is a Sentinel: write redis+sentinel://${sentinel}/GROUP with`,
      [`redis://:right@127.0.0.1:${sentinels.replica.port}`]: 'it is a replica, which takes no writes',
      [`redis+sentinel://:right@${sentinel}/main`]: 'the user name or the password of the Sentinels is wrong',
      [`redis+sentinel://:wrong@127.0.0.1:1,${sentinel}/main${secret}`]: 'the user name or the password is wrong',
      [`redis+sentinel://:right@${sentinel}/other${secret}`]: 'no Sentinel knows the group other',
      'redis+sentinel://127.0.0.1:1/main': 'connect ECONNREFUSED 127.0.0.1:1',
      [`redis+sentinel://${node}/main`]: 'it is not a Sentinel',
      [`redis+cluster://:right@${host}`]: 'it is not a node of a Cluster',
      'redis+cluster://127.0.0.1:1': 'connect ECONNREFUSED 127.0.0.1:1',
    }
    for (const [url, problem] of Object.entries(cases)) {
      const error = await open(t, url).catch(error => error)
      t.match(error.message, ` cannot be used: ${problem}`, url)
      t.notMatch(error.message, 'right')
    }
  },
)

t.test(
  '[fleet/fleet-store.2] a certificate of another name, of an unknown authority, or none',
  { skip: WITHOUT_REDIS || (!hasOpenssl() && 'openssl is not installed') },
  async t => {
    const pki = makeTree({})
    t.teardown(pki.cleanup)
    makeCertificate(pki, 'redis')
    const files = ['--tls-cert-file', pki.path('redis.pem'), '--tls-key-file', pki.path('redis.key')]
    const server = await startRedis(
      t,
      [
        ...files,
        '--tls-ca-cert-file',
        pki.path('redis.pem'),
        '--tls-auth-clients',
        'no',
        '--bind',
        '127.0.0.1',
        '127.0.0.2',
      ],
      true,
    )
    const url = `rediss://127.0.0.1:${server.port}`
    const unknown = /cannot be used: self-signed certificate: NODE_EXTRA_CA_CERTS names/
    await t.rejects(open(t, url), { message: unknown })
    for (const kind of ['+cluster', '+sentinel'])
      await t.rejects(open(t, `rediss${kind}://127.0.0.1:${server.port}${kind === '+sentinel' ? '/main' : ''}`), {
        message: unknown,
      })
    await t.rejects(open(t, url.replace('rediss', 'redis')), {
      message: /ECONNRESET, as from a server that requires rediss:/,
    })
    const env = { FN_STORE_URL: url.replace('127.0.0.1', '127.0.0.2'), NODE_EXTRA_CA_CERTS: pki.path('redis.pem') }
    const { status, stderr } = runCli(['run', '.'], { cwd: t.testdir({}), env })
    t.match(stderr, /its certificate is for another name: .*127\.0\.0\.2/)
    t.equal(status, 1)
  },
)

t.test('[fleet/fleet-store.3] a server that would lose jobs is a warning', { skip: WITHOUT_REDIS }, async t => {
  const { url } = await startRedis(t, ['--maxmemory-policy', 'allkeys-lru'])
  const { store, logs } = await open(t, url)
  t.same(
    store.warnings.map(({ code }) => code),
    ['STORE_EVICTS', 'STORE_NOT_PERSISTENT'],
  )
  t.match(logs, [/warn .*maxmemory-policy is allkeys-lru/, /warn .*appendonly is no/])
  const safe = await startRedis(t)
  t.same((await open(t, safe.url)).store.warnings, [])
})

t.test(
  '[fleet/fleet-store.4, fleet/fleet-store.5] a store that is stopped or silent is reported once, refused in time, and taken again',
  { skip: WITHOUT_REDIS },
  async t => {
    const server = await startRedis(t)
    const { store, logs, isBack } = await open(t, server.url)
    t.equal(store.key('job', 7), '{test}:job:7')
    const ping = () => store.ask(redis => redis.ping())
    server.pause()
    await t.rejects(ping(), { code: 'RUNTIME_DOWN', message: /no answer within 1\.5 s/ })
    t.match(store.problem, /no answer/)
    let back = isBack()
    server.resume()
    t.equal(await ping(), 'PONG')
    await back
    t.equal(store.problem, null)
    await server.end()
    await t.rejects(ping(), { code: 'RUNTIME_DOWN' })
    t.match(store.problem, /./)
    back = isBack()
    await server.begin()
    await back
    t.equal(await ping(), 'PONG')
    const both = [/^warn the store is away, jobs and schedules wait: /, 'info the store is back']
    t.match(logs, [...both, ...both])
    t.equal(logs.length, 4)
    await t.rejects(
      store.ask(redis => redis.call('NONSENSE')),
      { message: /^the store refuses a command: ERR unknown command/ },
    )
  },
)

t.test(
  '[fleet/fleet-store.6] a full server is reported once, and a replica cannot be used until it takes writes',
  { skip: WITHOUT_REDIS },
  async t => {
    const server = await startRedis(t)
    const client = server.client()
    const { store, logs, isBack } = await open(t, server.url)
    const further = store.connectBlocking()
    const write = () => store.ask(redis => redis.eval("return redis.call('SET', KEYS[1], 1)", 1, store.key('x')))
    await write()
    await client.config('SET', 'maxmemory', '1')
    const full = "the store refuses a command: OOM command not allowed when used memory > 'maxmemory'."
    for (let i = 0; i < 2; i++) await t.rejects(write(), { code: 'RUNTIME_DOWN', message: full })
    t.equal(await store.ask(redis => redis.get(store.key('x'))), '1')
    t.same(logs, [`warn ${full}`])
    await client.config('SET', 'maxmemory', '0')
    await client.call('REPLICAOF', '127.0.0.1', '1')
    const refused = open(t, server.url)
    await t.rejects(refused, { message: /cannot be used: it is a replica, which takes no writes \(/ })
    await t.rejects(write(), { code: 'RUNTIME_DOWN' })
    t.match(logs.slice(1), ['warn the store is away, jobs and schedules wait: it is a replica, which takes no writes'])
    // It is made again too, because the address may lead to another server.
    const isAgain = once(further, 'ready')
    await further.set('y', 1).catch(() => {})
    await isAgain
    const back = isBack()
    await client.call('REPLICAOF', 'NO', 'ONE')
    await back
    await write()
    t.equal(store.problem, null)
    t.same(logs.slice(2), ['info the store is back'])
  },
)

t.test('[fleet/fleet-store.3] a server that comes later is examined then', { skip: WITHOUT_REDIS }, async t => {
  const server = await startRedis(t, ['--maxmemory-policy', 'allkeys-lru', '--appendonly', 'yes'])
  await server.end()
  const { store, logs, isBack } = await open(t, server.url, { isRequiredAtStart: false })
  const back = isBack()
  await server.begin()
  await back
  t.equal(store.problem, null)
  t.match(store.warnings, [{ code: 'STORE_EVICTS' }])
  t.match(logs, [/^warn the store is away/, /^warn .*maxmemory-policy is allkeys-lru/, 'info the store is back'])
})
