import t from 'tap'
import { isAsset, toAssetSteps } from '../../lib/assets/static-assets.ts'
import type { AssetsMount, FunctionVersion, HomeAction } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { createGateway } from '../../lib/gateway/gateway.ts'
import type { Step } from '../../lib/http/exchange.ts'
import { type HomeOptions, toHomeSteps } from '../../lib/http/home.ts'
import { inject } from '../../lib/http/inject.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { makeTree } from '../helpers/tree.ts'

type Routes = Record<string, FunctionVersion | FunctionVersion[]>
type Setup = Partial<Pick<HomeOptions, 'homeFunction' | 'homeRedirect'>> & { assets?: AssetsMount }

const home = (folder: string, fields: Partial<HomeAction>): HomeAction => ({
  folder,
  route: null,
  redirect: null,
  origin: folder === '/' ? 'fn.config.json' : `${folder.slice(1)}/fn.config.json`,
  ...fields,
})

function makeHomes(routes: Routes, homes: HomeAction[], { homeFunction, homeRedirect, assets }: Setup = {}) {
  const before: Step[] = []
  const after: Step[] = []
  const made = makePublic(routes, { before, after })
  const steps = toHomeSteps({
    homes,
    homeFunction: homeFunction ?? null,
    homeRedirect: homeRedirect ?? null,
    routes: made.catalog.routes,
    isAsset: path => isAsset(path, assets ?? null),
  })
  const files = toAssetSteps(assets ?? null, made.catalog.routes, systemClock)
  before.push(...steps.before, ...files.before)
  after.push(...files.after)
  made.runtime.answer = (call, own) => {
    const { path, raw_path, query, method } = headerOfCall(call)
    own.reply(call, 200, {}, JSON.stringify({ fn: call.fn.name, path, raw_path, query, method }))
  }
  const ask = (url: string, method = 'GET', headers: Record<string, string> = {}) =>
    inject(made.handle, { url, method, headers })
  return { ...made, ask, warnings: steps.warnings }
}

const fn = (name: string, methods: ('GET' | 'POST' | 'DELETE')[] = ['GET']) => makeFn({ name, policy: { methods } })

t.test('[http/home.1] who answers for the root', async t => {
  const tree = makeTree({ 'public/index.html': 'file' })
  t.teardown(tree.cleanup)
  const routes = { '/': fn('root'), '/a': fn('a'), '/b': fn('b') }
  const assets: AssetsMount = { directory: tree.path('public'), notFoundHandling: '404', runWorkerFirst: false }
  const workerFirst = { ...assets, runWorkerFirst: true }
  const both = home('/', { route: '/b', redirect: '/elsewhere' })
  for (const [rule, homes, setup, expected] of [
    ['FN_HOME_FUNCTION', [both], { homeFunction: '/a', homeRedirect: '/set', assets }, 'a'],
    ['FN_HOME_REDIRECT', [both], { homeRedirect: '/set', assets }, '302 /set'],
    ['home.route', [both], { assets }, 'b'],
    ['home.redirect', [home('/', { redirect: '/elsewhere' })], { assets }, '302 /elsewhere'],
    ['assets', [], { assets }, 'file'],
    ['assets, functions first', [], { assets: workerFirst }, 'root'],
    ['home.route, functions first', [both], { assets: workerFirst }, 'b'],
    ['route', [], {}, 'root'],
  ] as [string, HomeAction[], Setup, string][]) {
    const { ask } = makeHomes(routes, homes, setup)
    for (const path of ['/', '//', '/?x=1']) {
      const answer = await ask(path)
      const text = answer.text()
      const by =
        answer.status === 302
          ? `302 ${answer.headers.location?.replace('?x=1', '')}`
          : text.startsWith('{')
            ? (answer.json() as { fn: string }).fn
            : text
      t.equal(by, expected, `${rule}: ${path}`)
    }
  }
  const { ask } = makeHomes({ '/a': fn('a') }, [])
  t.equal((await ask('/')).status, 404, 'nothing')
})

t.test('[http/home.2, http/home.5] a route run in place', async t => {
  const post = makeFn({ name: 'post', policy: { methods: ['GET', 'POST'], maxBodyBytes: 3 } })
  const host = makeFn({ name: 'host', policy: { allowHosts: ['a.example'] } })
  const { ask, handle } = makeHomes({ '/post': post, '/h/host': host, '/u/:id': fn('u') }, [
    home('/', { route: '/post' }),
    home('/h', { route: '/h/host' }),
    home('/u', { route: '/u/me' }),
  ])
  const answer = await ask('/?q=1&q=2&r')
  t.same(answer.json(), {
    fn: 'post',
    path: '/post',
    raw_path: '/?q=1&q=2&r',
    query: { q: ['1', '2'], r: '' },
    method: 'GET',
  })
  t.equal((await ask('/', 'HEAD')).status, 200)
  t.equal((await inject(handle, { url: '/', method: 'POST', body: '123' })).status, 200)
  t.equal((await inject(handle, { url: '/', method: 'POST', body: '1234' })).status, 413)
  t.equal((await ask('/h')).status, 421)
  t.equal((await ask('http://a.example/h')).status, 200)
  t.match((await ask('/u')).json(), { fn: 'u', path: '/u/me' })
})

t.test('[http/home.2, http/home.8] a file as home', async t => {
  const tree = makeTree({ 'public/welcome.html': 'welcome', 'public/start/index.html': 'start' })
  t.teardown(tree.cleanup)
  const assets: AssetsMount = { directory: tree.path('public'), notFoundHandling: '404', runWorkerFirst: false }
  const { ask, warnings } = makeHomes({}, [home('/', { route: '/welcome.html' })], {
    assets,
  })
  t.equal((await ask('/')).text(), 'welcome')
  t.same(warnings, [])
  const start = makeHomes({}, [home('/', { route: '/start' }), home('/s', { route: '/start' })], { assets })
  t.equal((await start.ask('/')).text(), 'start')
  t.match(start.warnings, [{ code: 'HOME_TARGET_MISSING', path: 's/fn.config.json' }], 'a file is no route of a folder')
  const hidden = makeHomes({}, [home('/', { route: '/.env' })], { assets })
  t.match(hidden.warnings, [{ code: 'HOME_TARGET_MISSING' }])
})

t.test('[http/home.3] methods', async t => {
  const routes = { '/': fn('root', ['GET', 'POST']), '/a': fn('a', ['GET', 'DELETE']) }
  const { ask } = makeHomes(routes, [home('/', { route: '/a' })])
  t.match((await ask('/')).json(), { fn: 'a' })
  t.match((await ask('/', 'DELETE')).json(), { fn: 'a' })
  t.match((await ask('/', 'POST')).json(), { fn: 'root' }, 'what the target cannot do')
  const put = await ask('/', 'PUT')
  t.equal(put.status, 405)
  t.equal(put.headers.allow, 'GET, HEAD, DELETE')
})

t.test('[http/home.4, http/home.5] redirects', async t => {
  const { ask } = makeHomes({ '/old': fn('old', ['POST']) }, [
    home('/', { redirect: 'https://example.com' }),
    home('/old', { redirect: '/new?a=1' }),
    home('/mark', { redirect: '/new#top' }),
    home('/both', { redirect: '/new?a=1#top' }),
  ])
  for (const [path, location] of [
    ['/', 'https://example.com'],
    ['/?q=1', 'https://example.com?q=1'],
    ['/?@evil.example', 'https://example.com?@evil.example'],
    ['/?//evil.example', 'https://example.com?//evil.example'],
    ['/old', '/new?a=1'],
    ['/old/?b=2', '/new?a=1&b=2'],
    ['/mark?b=2', '/new?b=2#top'],
    ['/both?b=2', '/new?a=1&b=2#top'],
    ['/both?b=\u00fc', '/new?a=1#top'],
    ['/both?', '/new?a=1#top'],
  ]) {
    const answer = await ask(path!)
    t.match({ status: answer.status, location: answer.headers.location }, { status: 302, location }, path!)
    t.equal((await ask(path!, 'HEAD')).status, 302)
  }
  t.match((await ask('/old', 'POST')).json(), { fn: 'old' })
  const refused = await ask('/old', 'DELETE')
  t.match({ status: refused.status, allow: refused.headers.allow }, { status: 405, allow: 'GET, HEAD, POST' })
  t.equal((await ask('/', 'POST')).headers.allow, 'GET, HEAD')
})

t.test('[http/home.6, http/home.7] folders', async t => {
  const routes = {
    '/admin/dash': fn('dash', ['GET', 'POST']),
    '/:any': fn('any'),
    '/own': fn('own', ['POST']),
    '/own/list': fn('list', ['GET', 'POST']),
    '/full': fn('full'),
    '/full/x': fn('x'),
    '/lonely/sub': fn('sub'),
  }
  const { ask, warnings } = makeHomes(routes, [
    home('/admin', { route: '/admin/dash' }),
    home('/own', { route: '/own/list' }),
    home('/full', { route: '/full/x' }),
    home('/lonely', { route: '/admin/dash' }),
  ])
  t.match((await ask('/admin')).json(), { fn: 'dash', path: '/admin/dash' }, 'before /:any')
  t.match((await ask('/admin/?q=1')).json(), { fn: 'dash', query: { q: '1' } })
  t.match((await ask('/own')).json(), { fn: 'list' })
  t.match((await ask('/own', 'POST')).json(), { fn: 'own' }, 'method by method')
  t.match((await ask('/full')).json(), { fn: 'full' })
  t.match((await ask('/lonely')).json(), { fn: 'any' }, 'a route of another folder is refused')
  t.match((await ask('/other')).json(), { fn: 'any' })
  t.match(warnings, [
    { code: 'HOME_IGNORED', path: 'full/fn.config.json', message: /home\.route.*\/full/, hint: /./ },
    {
      code: 'HOME_TARGET_MISSING',
      path: 'lonely/fn.config.json',
      message: /home\.route must be the path of a route below \/lonely, got "\/admin\/dash"/,
      hint: /home\.redirect/,
    },
  ])
  t.equal(warnings.length, 2)
})

t.test('[http/home.7] a home needs values for the params of its route', async t => {
  const routes = { '/users/:id': fn('user'), '/docs/:slug*': fn('docs'), '/:slug*': fn('all') }
  for (const [folder, route, answers] of [
    ['/users', '/users/42', 'user'],
    ['/docs', '/docs/a/b', 'docs'],
    ['/', '/users/42', 'user'],
    ['/users', '/users/:id', null],
    ['/users', '/users/{id}', null],
    ['/users', '/users/[id]', null],
    ['/docs', '/docs/*', null],
    ['/', '/users/:id', null],
    ['/other', '/other/x', null],
    ['/other', '/users/42', null],
  ] as const) {
    const { ask, warnings } = makeHomes(routes, [home(folder, { route })])
    const { fn: found } = (await ask(folder)).json() as { fn?: string }
    t.equal(found, answers ?? (folder === '/' ? undefined : 'all'), `${folder}: ${route}`)
    t.equal(warnings.length, answers === null ? 1 : 0)
    if (/[:{[*]/.test(route)) t.match(warnings[0], { message: /values in place of params, got/, hint: /42\.$/ })
  }
})

t.test('[http/home.8] targets that do not exist', async t => {
  const { ask, warnings } = makeHomes(
    { '/ok': fn('ok') },
    [
      home('/', { route: '/gone', redirect: '/ok' }),
      home('/a', { route: '/b' }),
      home('/self', { route: '/self' }),
      home('/odd', { route: '/%zz' }),
    ],
    { homeFunction: '/nothing' },
  )
  t.equal((await ask('/')).headers.location, '/ok', 'the next in order')
  t.equal((await ask('/a')).status, 404)
  t.equal((await ask('/self')).status, 404)
  t.same(
    warnings.map(({ code, path }) => [code, path]),
    [
      ['HOME_TARGET_MISSING', '.'],
      ['HOME_TARGET_MISSING', 'fn.config.json'],
      ['HOME_TARGET_MISSING', 'a/fn.config.json'],
      ['HOME_TARGET_MISSING', 'self/fn.config.json'],
      ['HOME_TARGET_MISSING', 'odd/fn.config.json'],
    ],
  )
  t.match(warnings[0]!.message, /^FN_HOME_FUNCTION must be .*"\/nothing" \(string\)/)
  t.match(warnings[2], { message: /^a\/fn\.config\.json: home\.route .*"\/b"/, hint: /without a leading slash/ })
  t.same(makeHomes({}, []).catalog.before, [], 'no step without a home')
})

t.test('[http/home.9] two configs for one folder', async t => {
  const { ask } = makeHomes({ '/a': fn('a'), '/b': fn('b') }, [
    home('/', { route: '/a', origin: 'python/fn.config.json' }),
    home('/', { route: '/b', origin: 'fn.config.json' }),
  ])
  t.match((await ask('/')).json(), { fn: 'b' })
})

t.test('[http/home.8, http/home.10] homes of a tree', async t => {
  const tree = makeTree({
    'fn.config.json': { json: { home: { redirect: '/one' } } },
    'admin/fn.config.json': { json: { home: { route: 'dash' } } },
    'docs/fn.config.json': { json: { home: '/dash' } },
    'docs/dash.js': '',
    'bad/fn.config.json': { json: { home: '/_fn/health' } },
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, inspect: true })
  t.teardown(() => gateway.close())
  t.equal((await gateway.inject('/')).headers.location, '/one')
  const codes = () => gateway.warnings.filter(({ code }) => code.startsWith('HOME')).map(({ path }) => path)
  t.same(codes(), ['admin/fn.config.json', 'docs/fn.config.json'])
  t.equal((await gateway.inject('/admin')).status, 404)
  t.match(gateway.warnings, [{ code: 'CONFIG_VALUE', path: 'bad/fn.config.json' }], 'reserved')
  tree.write({ 'fn.config.json': { json: { home: { redirect: '/two' } } }, 'admin/dash.js': '' })
  await gateway.reload()
  t.equal((await gateway.inject('/')).headers.location, '/two')
  t.same(codes(), ['docs/fn.config.json'])
  t.not((await gateway.inject('/admin')).status, 404, 'nothing runs here, but somebody is asked')
  tree.remove('fn.config.json')
  await gateway.reload()
  t.equal((await gateway.inject('/')).status, 404)
})
