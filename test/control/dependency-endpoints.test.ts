import t from 'tap'
import { createDependencyEndpoints } from '../../lib/control/dependency-endpoints.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { FakeClock } from '../helpers/clock.ts'
import { serveEndpoints, toContext } from '../helpers/control.ts'
import { makeFn } from '../helpers/fn.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

interface Shown {
  functions: { key: string; state: string; step: string | null; error: string | null; since: number | null }[]
  running: { key: string; action: string }[]
}

t.test('[control/dependencies.1, control/dependencies.2, control/dependencies.3] each state as a row', async t => {
  const clock = new FakeClock()
  const now = clock.wall() / 1000
  const since = clock.monotonic() - 2000
  const detail = { file: 'e/package.json', line: 3, hint: 'mend it' }
  const error = new GatewayError('LOAD_FAILED', 'install failed: /srv/x is missing', { detail })
  const states = [
    { fn: makeFn({ name: 'a' }), state: null },
    { fn: makeFn({ name: 'b' }), state: { state: 'ready', since, error: null, step: null } },
    { fn: makeFn({ name: 'c' }), state: { state: 'preparing', since, error: null, step: 'waiting in the queue' } },
    { fn: makeFn({ name: 'd' }), state: { state: 'preparing', since, error: null, step: 'waiting in the queue' } },
    { fn: makeFn({ name: 'e' }), state: { state: 'failed', since, error, step: null } },
  ] as const
  const build = {
    time: clock.wall() - 500,
    action: 'installing packages of',
    state: 'began',
    key: 'node/d@default',
  } as const
  const builds = [{ ...build, runtime: 'node', fn: 'd', version: 'default' }]
  const endpoints = createDependencyEndpoints(
    toContext({ clock, dependencies: { states: () => states }, journal: { builds } }),
  )
  const ask = serveEndpoints(t, endpoints, { consoleLocalOnly: false })
  const nothing = { error: null, file: null, line: null, hint: null }
  const local = (await ask({ url: '/_fn/dependencies' })).json() as Shown
  t.same(local, {
    functions: [
      { key: 'node/a@default', runtime: 'node', state: 'none', step: null, since: null, ...nothing },
      { key: 'node/b@default', runtime: 'node', state: 'ready', step: null, since: now - 2, ...nothing },
      {
        key: 'node/c@default',
        runtime: 'node',
        state: 'preparing',
        step: 'waiting in the queue',
        since: now - 2,
        ...nothing,
      },
      {
        key: 'node/d@default',
        runtime: 'node',
        state: 'preparing',
        step: 'installing packages of',
        since: now - 0.5,
        ...nothing,
      },
      {
        key: 'node/e@default',
        runtime: 'node',
        state: 'failed',
        step: null,
        since: now - 2,
        ...detail,
        error: 'install failed: /srv/x is missing',
      },
    ],
    running: [{ key: 'node/d@default', runtime: 'node', action: 'installing packages of', since: now - 0.5 }],
  })
  const stranger = await ask({ url: '/_fn/dependencies', remoteAddress: '203.0.113.9' })
  t.notMatch(stranger.body.toString(), '/srv/x')
  t.match((stranger.json() as Shown).functions[4], { state: 'failed', error: 'failed', file: null, hint: null })
})

t.test(
  '[control/dependencies.1, control/dependencies.3] of a gateway: what needs nothing, and what cannot be had',
  async t => {
    const { gateway, tree } = await serveTree(
      t,
      {
        'plain.lua': 'function handler() return 1 end\n',
        'free/handler.js': 'exports.handler = () => 1\n',
        'broken/handler.js': 'exports.handler = () => 1\n',
        'broken/package.json': '{ "dependencies": { "x": ',
      },
      { runtimes: ['lua', 'node'] },
    )
    const read = async () => (await gateway.inject('/_fn/dependencies')).json() as Shown
    const rowOf = async (key: string) => (await read()).functions.find(row => row.key === key)
    for (const url of ['/plain', '/free']) t.equal((await gateway.inject(url)).status, 200)
    t.equal((await gateway.inject('/broken')).status, 500)
    t.match(await rowOf('lua/plain@default'), { state: 'none' })
    t.match(await rowOf('node/free@default'), { state: 'none' })
    t.match(await rowOf('node/broken@default'), {
      state: 'failed',
      step: null,
      error: /package\.json/,
      file: 'broken/package.json',
    })
    t.same((await read()).running, [])
    tree.write({ 'broken/package.json': '{}' })
    await gateway.reload()
    t.equal((await gateway.inject('/broken')).status, 200)
    t.match(await rowOf('node/broken@default'), { error: null })
  },
)
