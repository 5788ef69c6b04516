import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import type { AssetsMount, FunctionVersion } from '../../lib/core/catalog.ts'
import { type Clock, systemClock } from '../../lib/core/clock.ts'
import { ASSET_TRUST, MAX_CACHED_ASSET_BYTES } from '../../lib/assets/store.ts'
import type { Step } from '../../lib/http/exchange.ts'
import { fetchWith, inject } from '../../lib/http/inject.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { toAssetSteps } from '../../lib/assets/static-assets.ts'
import { asNobody } from '../helpers/as-nobody.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

type Teardown = { teardown: (fn: () => unknown) => void }

/** Ahead of the disk, so that files are old enough to be kept at once. */
const LATE_CLOCK = { ...systemClock, wall: () => Date.now() + 60_000 }

const SITE = {
  'public/index.html': '<h1>root</h1>',
  'public/sub/index.html': '<h1>sub</h1>',
  'public/app.js': 'run()',
  'public/empty.txt': '',
  'public/folder/data.txt': '0123456789',
  'secret.txt': 'secret',
}

interface SiteOptions {
  mount?: Partial<AssetsMount>
  files?: Record<string, TreeEntry>
  routes?: Record<string, FunctionVersion | FunctionVersion[]>
  clock?: Clock
}

function makeSite(t: Teardown, { mount = {}, files = SITE, routes = {}, clock = LATE_CLOCK }: SiteOptions = {}) {
  const tree = makeTree(files)
  t.teardown(tree.cleanup)
  const directory = tree.path('public')
  const before: Step[] = []
  const after: Step[] = []
  const made = makePublic(routes, { before, after })
  const whole: AssetsMount = { directory, notFoundHandling: '404', runWorkerFirst: false, ...mount }
  const steps = toAssetSteps(whole, made.catalog.routes, clock)
  before.push(...steps.before)
  after.push(...steps.after)
  const ask = (url: string, headers: Record<string, string> = {}, method = 'GET') =>
    inject(made.handle, { url, headers, method })
  const status = async (url: string, headers: Record<string, string> = {}, method = 'GET') =>
    (await ask(url, headers, method)).status
  return { ...made, tree, ask, status }
}

async function listen(t: Teardown, site: ReturnType<typeof makeSite>) {
  const server = new HttpServer({ ...site, requestIds: site.requestIds })
  const { port, url } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  return { port, url }
}

t.test('[assets/static-assets.1, assets/static-assets.13, assets/static-assets.15] files, folders, HEAD', async t => {
  const { ask } = makeSite(t)
  for (const [path, body, type] of [
    ['/', '<h1>root</h1>', 'text/html; charset=utf-8'],
    ['/index.html', '<h1>root</h1>', 'text/html; charset=utf-8'],
    ['/sub', '<h1>sub</h1>', 'text/html; charset=utf-8'],
    ['/sub/', '<h1>sub</h1>', 'text/html; charset=utf-8'],
    ['//sub//index.html', '<h1>sub</h1>', 'text/html; charset=utf-8'],
    ['/app.js?v=1', 'run()', 'text/javascript; charset=utf-8'],
    ['/%61pp.js', 'run()', 'text/javascript; charset=utf-8'],
    ['/folder/../app.js', 'run()', 'text/javascript; charset=utf-8'],
    ['/empty.txt', '', 'text/plain; charset=utf-8'],
  ] as const) {
    // Twice: from disk, from memory.
    for (let i = 0; i < 2; i++) {
      const answer = await ask(path)
      t.equal(answer.status, 200, path)
      t.equal(answer.text(), body, path)
      t.match(answer.headers, {
        'content-type': type,
        'content-length': String(body.length),
        'cache-control': 'public, max-age=0, must-revalidate',
        'x-content-type-options': 'nosniff',
        'accept-ranges': 'bytes',
        etag: /^"[\w-]{22}"$/,
        'last-modified': /^\w{3}, .* GMT$/,
      })
      t.notOk('vary' in answer.headers, 'no other form, nothing varies')
      const head = await ask(path, {}, 'HEAD')
      t.equal(head.body.length, 0)
      t.same(
        { ...head.headers, 'x-request-id': '' },
        { ...answer.headers, 'content-length': String(body.length), 'x-request-id': '' },
      )
    }
  }
  t.equal((await ask('/folder')).status, 404, 'a folder without index.html')
})

t.test('[assets/static-assets.2, assets/static-assets.3] files and routes, in both orders', async t => {
  const fn = (name: string, methods: ('GET' | 'POST')[]) => makeFn({ name, policy: { methods } })
  const routes = {
    '/app.js': fn('script', ['GET', 'POST']),
    '/sub': fn('sub', ['POST']),
    '/route': fn('route', ['GET']),
    '/two.txt': [fn('a', ['GET']), fn('b', ['GET'])],
  }
  const files = { ...SITE, 'public/two.txt': 'two' }
  const calls = [
    ['GET', '/app.js'],
    ['HEAD', '/app.js'],
    ['POST', '/app.js'],
    ['GET', '/sub'],
    ['POST', '/sub'],
    ['GET', '/route'],
    ['GET', '/two.txt'],
    ['GET', '/index.html'],
    ['POST', '/index.html'],
    ['OPTIONS', '/index.html'],
    ['POST', '/missing'],
    ['POST', '/.hidden'],
  ] as const
  for (const [runWorkerFirst, expected] of [
    [false, ['200', '200', '200 fn', '200', '200 fn', '200 fn', '200', '200', '405', '405', '404', '404']],
    [true, ['200 fn', '200 fn', '200 fn', '405', '200 fn', '200 fn', '409', '200', '405', '405', '404', '404']],
  ] as const) {
    const { ask, runtime } = makeSite(t, { mount: { runWorkerFirst }, files, routes })
    for (const [index, [method, path]] of calls.entries()) {
      const before = runtime.calls.length
      const answer = await ask(path, {}, method)
      const by = runtime.calls.length > before ? ' fn' : ''
      t.equal(`${answer.status}${by}`, expected[index], `${method} ${path}, worker first: ${runWorkerFirst}`)
      if (path === '/index.html' && method !== 'GET') t.equal(answer.headers.allow, 'GET, HEAD')
    }
  }
})

t.test('[assets/static-assets.4] nothing is made up', async t => {
  const { status, tree } = makeSite(t, { files: { 'public/': '' } })
  t.equal(await status('/'), 404)
  t.equal(await status('/x.js'), 404)
  tree.remove('public')
  t.equal(await status('/'), 404, 'the directory is gone')
  t.same(toAssetSteps(null, makePublic({}).catalog.routes, systemClock), { before: [], after: [] })
})

t.test('[assets/static-assets.5] pages of an application', async t => {
  for (const runWorkerFirst of [false, true]) {
    const { ask, status } = makeSite(t, { mount: { notFoundHandling: 'single-page-application', runWorkerFirst } })
    const html = { accept: 'text/html,application/xhtml+xml;q=0.9' }
    for (const [path, headers, expected] of [
      ['/users/1', html, 200],
      ['/users/1/', html, 200],
      ['/folder', html, 200],
      ['/users/1', {}, 200],
      ['/users/1', { accept: '*/*' }, 200],
      ['/users/1', { accept: '' }, 200],
      ['/users/1', { accept: 'application/json' }, 404],
      ['/users/1', { accept: 'text/html;q=0, application/json' }, 404],
      ['/users/1', { accept: 'application/json', 'sec-fetch-mode': 'navigate' }, 200],
      ['/users/1', { accept: 'image/*', 'sec-fetch-dest': 'document' }, 200],
      ['/v1.2/page', html, 200],
      ['/apis', html, 200],
      ['/docs/api', html, 200],
      ['/api', html, 404],
      ['/api/x', html, 404],
      ['/api-v2/x', html, 404],
      ['/missing.js', html, 404],
      ['/users/jane.doe', html, 404],
      ['/.hidden', html, 404],
      ['/.hidden/page', html, 404],
      ['/a%2Fb', html, 404],
      ['/a%5Cb', html, 404],
    ] as [string, Record<string, string>, number][]) {
      t.equal(await status(path, headers), expected, `${path} ${JSON.stringify(headers)}`)
    }
    t.equal((await ask('/users/1', html)).text(), '<h1>root</h1>')
    t.equal(await status('/users/1', html, 'HEAD'), 200)
    t.equal(await status('/users/1', html, 'POST'), 404)
    const etag = (await ask('/')).headers.etag!
    t.equal(await status('/users/1', { ...html, 'if-none-match': etag }), 304)
  }
  const { status } = makeSite(t, { mount: { notFoundHandling: 'single-page-application' }, files: { 'public/': '' } })
  t.equal(await status('/users/1'), 404, 'no index.html')
})

t.test(
  '[assets/static-assets.6, assets/static-assets.11] routes and files come before the page of an application',
  async t => {
    const routes = {
      '/two': [makeFn({ name: 'a' }), makeFn({ name: 'b' })],
      '/host': makeFn({ name: 'c', policy: { allowHosts: ['a.example'] } }),
      '/post': makeFn({ name: 'd', policy: { methods: ['POST'] } }),
    }
    const files = {
      ...SITE,
      'public/_fn/index.html': 'no',
      'public/console/index.html': 'no',
      'public/_fnx/a.txt': 'yes',
    }
    const { ask, status } = makeSite(t, { mount: { notFoundHandling: 'single-page-application' }, files, routes })
    t.equal(await status('/two'), 409)
    t.equal(await status('/host'), 421)
    t.equal(await status('/post'), 405)
    for (const path of [
      '/_fn',
      '/_fn/index.html',
      '/_fn/nothing',
      '/console',
      '/console/index.html',
      '/%5Ffn/index.html',
      '//_fn/x',
      '/x/../_fn/a',
    ])
      t.match((await ask(path)).json(), { control: /^\// }, path)
    t.equal(await status('/_fnx/a.txt'), 200)
  },
)

t.test('[assets/static-assets.7, assets/static-assets.10] paths that are never files', async t => {
  const { ask, tree } = makeSite(t, {
    files: {
      ...SITE,
      'public/.env': 'secret',
      'public/.git/config': 'secret',
      'public/sub/.x/a.txt': 'secret',
      'public/fn.env.json': 'secret',
      'public/sub/FN.Config.json': 'secret',
      'public/fn.routes.json': 'secret',
      'public/fngw.json': 'secret',
      'public/a%2Fb.txt': 'escaped',
      'public/back\\slash.txt': 'secret',
      'public/fn.env.json.bak': 'secret',
      'public/fn.env.json.gz': 'secret',
      'public/sub/fn.env.json~': 'secret',
      'public/app.js~': 'secret',
      'public/app.js.bak': 'secret',
      'public/app.js.OLD': 'secret',
      'public/sub/app.js.orig': 'secret',
      'public/sub/app.js.rej': 'secret',
      'public/app.js.swp': 'secret',
      'public/sub/#app.js#': 'secret',
      'public/film.swf': 'flash',
      'public/bak': 'bak',
      'public/100%.txt': 'percent',
      'public/a b+ü.txt': 'odd',
    },
  })
  for (const path of [
    '/.env',
    '/%2eenv',
    '/%2Eenv',
    '/.git/config',
    '/sub/.x/a.txt',
    '/sub/%2e%78/a.txt',
    '/fn.env.json',
    '/sub/FN.Config.json',
    '/fn.routes.json',
    '/fngw.json',
    '/fn.env.json.bak',
    '/fn.env.json.gz',
    '/sub/fn.env.json~',
    '/app.js~',
    '/app.js%7E',
    '/app.js.bak',
    '/app.js.OLD',
    '/sub/app.js.orig',
    '/sub/app.js.rej',
    '/app.js.s%77p',
    '/sub/%23app.js%23',
    '/a%2Fb.txt',
    '/back%5Cslash.txt',
    '/back\\slash.txt',
    '/..%2fsecret.txt',
    '/..%5csecret.txt',
    '/%252e%252e/secret.txt',
    '/sub/..%2f..%2fsecret.txt',
    '/....//secret.txt',
    '/..;/secret.txt',
    `/${tree.path('secret.txt')}`,
    '/index.html%0a',
    '/index.html%00.txt',
    '/%c0%ae%c0%ae/secret.txt',
    '/../secret.txt',
    '/%2e%2e/secret.txt',
    '/sub/../../secret.txt',
    `/${'x'.repeat(300)}`,
    `/${'a/'.repeat(2000)}b`,
    '/index.html/x',
  ]) {
    const answer = await ask(path)
    t.ok(answer.status === 404 || answer.status === 400, `${path}: ${answer.status}`)
    t.notMatch(answer.text(), /secret/)
  }
  t.equal((await ask('/a%252Fb.txt')).text(), 'escaped', 'decoded once')
  t.equal((await ask('/100%25.txt')).text(), 'percent')
  t.equal((await ask('/film.swf')).text(), 'flash', 'no backup')
  t.equal((await ask('/bak')).text(), 'bak', 'no backup')
  t.equal((await ask('/a%20b+%C3%BC.txt')).text(), 'odd')
})

t.test('[assets/static-assets.8] links', async t => {
  const { ask, status, tree } = makeSite(t, {
    files: {
      ...SITE,
      'public/.hidden/a.txt': 'secret',
      'outside/a.txt': 'secret',
      'public/out': { symlink: '../outside' },
      'public/out.txt': { symlink: '../secret.txt' },
      'public/passwd.txt': { symlink: '/etc/passwd' },
      'public/in': { symlink: 'sub' },
      'public/in.js': { symlink: 'app.js' },
      'public/hidden': { symlink: '.hidden' },
      'public/loop': { symlink: 'loop' },
      'public/root': { symlink: '..' },
      'public-not/a.txt': 'secret',
      'public/prefix': { symlink: '../public-not' },
    },
  })
  for (const path of [
    '/out/a.txt',
    '/out.txt',
    '/passwd.txt',
    '/hidden/a.txt',
    '/loop',
    '/root/secret.txt',
    '/prefix/a.txt',
  ])
    t.equal(await status(path), 404, path)
  t.equal((await ask('/in')).text(), '<h1>sub</h1>')
  t.equal((await ask('/in.js')).text(), 'run()')
  t.equal((await ask('/root/public/app.js')).text(), 'run()')
  // A file that was served and is replaced by a link that leads out.
  t.equal(await status('/app.js'), 200)
  tree.remove('public/app.js')
  symlinkSync('../secret.txt', tree.path('public/app.js'))
  t.equal(await status('/app.js'), 404)
  // The mount itself may be a link.
  tree.write({ linked: { symlink: 'public' } })
  const linked = makeSite(t, { mount: { directory: tree.path('linked') } })
  t.equal(await linked.status('/sub'), 200)
})

t.test('[assets/static-assets.9] serves regular files only', async t => {
  const { status, tree } = makeSite(t)
  const at = (name: string) => tree.path(`public/${name}`)
  execFileSync('mkfifo', [at('pipe'), at('sub/pipe.html')])
  const server = createServer().listen(at('socket'))
  t.teardown(() => new Promise(resolve => server.close(resolve)))
  symlinkSync('/dev/zero', at('zero'))
  symlinkSync('/dev/tty', at('tty'))
  symlinkSync('/proc/self/environ', at('environ'))
  mkdirSync(at('strange'))
  execFileSync('mkfifo', [at('strange/index.html')])
  mkdirSync(at('nested/index.html'), { recursive: true })
  for (const path of [
    '/pipe',
    '/sub/pipe.html',
    '/socket',
    '/zero',
    '/tty',
    '/environ',
    '/strange',
    '/nested',
    '/folder',
  ])
    t.equal(await status(path), 404, path)
  // Beside a file, as its compressed form.
  execFileSync('mkfifo', [at('app.js.br')])
  t.equal(await status('/app.js', { 'accept-encoding': 'br' }), 200)
  t.equal(await status('/app.js', { 'accept-encoding': 'br' }), 200)
})

t.test('[assets/static-assets.9] a file that may not be read', async t => {
  const { status, tree } = makeSite(t)
  chmodSync(tree.root, 0o755)
  chmodSync(tree.path('public/app.js'), 0)
  chmodSync(tree.path('public/sub'), 0)
  t.teardown(() => chmodSync(tree.path('public/sub'), 0o755))
  await asNobody(async () => {
    t.equal(await status('/app.js'), 404)
    t.equal(await status('/sub'), 404)
    t.equal(await status('/sub/index.html'), 404)
    t.equal(await status('/'), 200)
  })
})

t.test('[assets/static-assets.15, assets/static-assets.16] a change is seen by the next request', async t => {
  const { ask, status, tree } = makeSite(t)
  const path = tree.path('public/app.js')
  const first = await ask('/app.js')
  t.equal((await ask('/app.js')).headers.etag, first.headers.etag)
  writeFileSync(path, 'ran()')
  const second = await ask('/app.js')
  t.equal(second.text(), 'ran()', 'same length')
  t.not(second.headers.etag, first.headers.etag)
  // With the old time on it.
  const time = new Date(Date.parse(second.headers['last-modified']!))
  utimesSync(path, time, time)
  await ask('/app.js')
  writeFileSync(tree.path('new.js'), 'run!!')
  utimesSync(tree.path('new.js'), time, time)
  renameSync(tree.path('new.js'), path)
  t.equal((await ask('/app.js')).text(), 'run!!')
  tree.remove('public/app.js')
  t.equal(await status('/app.js'), 404)
  t.equal(await status('/app.js', { 'accept-encoding': 'gzip' }), 404)
  tree.write({ 'public/app.js': 'run()' })
  const third = await ask('/app.js')
  t.equal(third.headers.etag, first.headers.etag, 'the tag of the same content')
  // A file becomes a folder, and a folder a file.
  tree.remove('public/app.js')
  tree.write({ 'public/app.js/index.html': 'folder' })
  t.equal((await ask('/app.js')).text(), 'folder')
  tree.remove('public/app.js')
  tree.write({ 'public/app.js': 'file' })
  t.equal((await ask('/app.js')).text(), 'file')
})

t.test(
  '[assets/static-assets.17, assets/static-assets.18, assets/static-assets.19, assets/static-assets.20, assets/static-assets.21] conditional and partial answers',
  async t => {
    const { ask, tree } = makeSite(t)
    tree.write({ 'public/large.bin': Buffer.alloc(MAX_CACHED_ASSET_BYTES + 10, '0123456789') })
    for (const [path, size] of [
      ['/folder/data.txt', 10],
      ['/large.bin', MAX_CACHED_ASSET_BYTES + 10],
    ] as const) {
      const whole = await ask(path)
      t.equal(whole.body.length, size)
      const etag = whole.headers.etag!
      const fresh = await ask(path, { 'if-none-match': `"x", W/${etag}` })
      t.equal(fresh.status, 304)
      t.same(Object.keys(fresh.headers).sort(), ['cache-control', 'etag', 'last-modified', 'x-request-id'])
      t.equal((await ask(path, { 'if-modified-since': whole.headers['last-modified']! })).status, 304)
      const failed = await ask(path, { 'if-match': '"x"' })
      t.equal(failed.status, 412)
      t.same(failed.json(), { error: 'precondition failed' })
      const part = await ask(path, { range: 'bytes=2-5', 'if-range': etag })
      t.equal(part.status, 206)
      t.equal(part.text(), '2345')
      t.match(part.headers, { 'content-range': `bytes 2-5/${size}`, 'content-length': '4', etag })
      t.equal((await ask(path, { range: 'bytes=-3' })).body.length, 3)
      t.equal((await ask(path, { range: 'bytes=4-' })).body.length, size - 4)
      const beyond = await ask(path, { range: `bytes=${size}-` })
      t.equal(beyond.status, 416)
      t.equal(beyond.headers['content-range'], `bytes */${size}`)
      t.equal((await ask(path, { range: 'bytes=0-1,3-4' })).status, 200)
      t.equal((await ask(path, { range: 'bytes=2-5', 'if-range': '"x"' })).body.length, size)
      const head = await ask(path, { range: 'bytes=2-5' }, 'HEAD')
      t.match({ status: head.status, length: head.headers['content-length'] }, { status: 200, length: String(size) })
    }
    const empty = await ask('/empty.txt', { range: 'bytes=0-' })
    t.equal(empty.status, 200)
    t.equal(empty.headers['content-length'], '0')
  },
)

t.test('[assets/static-assets.16] under load answers from memory are those of the disk', async t => {
  let now = 0
  // All of it within one moment, however busy the machine is.
  const clock = { ...LATE_CLOCK, monotonic: () => now }
  const site = makeSite(t, { files: { ...SITE, 'public/large.txt': 'x'.repeat(17_000) }, clock })
  const { port } = await listen(t, site)
  const raw = await RawConnection.open(port)
  t.teardown(() => raw.socket.destroy())
  const one = (path: string, headers = '') => `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`
  const first = await site.ask('/app.js')
  const paths = ['/app.js', '/empty.txt', '/large.txt']
  const seen = new Map<string, Set<string>>()
  let count = 0
  for (let round = 0; round < 15; round++) {
    for (const path of paths) {
      raw.write(one(path).repeat(4))
      count += 4
      for (const { status, headers, body } of (await raw.answers(count)).slice(-4)) {
        const kept = seen.get(path) ?? new Set()
        kept.add(JSON.stringify([status, headers.etag, headers['content-type'], headers['cache-control'], body]))
        seen.set(path, kept)
      }
    }
  }
  for (const path of paths) t.equal(seen.get(path)?.size, 1, `${path}: every answer is the same`)
  t.ok([...seen.get('/app.js')!][0]?.startsWith(JSON.stringify([200, first.headers.etag]).slice(0, -1)))
  // Conditions, ranges and HEAD are looked at for each request.
  raw.write(`${one('/app.js', `If-None-Match: ${first.headers.etag}\r\n`)}${one('/app.js', 'Range: bytes=0-1\r\n')}`)
  t.match((await raw.answers(count + 2)).slice(-2), [{ status: 304 }, { status: 206, body: 'ru' }])
  count += 2

  // What the disk has meanwhile is seen a moment later, by all alike; a client that has left takes no other's answer away.
  site.tree.write({ 'public/app.js': 'changed()' })
  const left = await RawConnection.open(port)
  left.write(one('/app.js').repeat(3))
  left.socket.destroy()
  raw.write(one('/app.js').repeat(20) + one('/empty.txt'))
  const old = (await raw.answers(count + 21)).slice(-21)
  t.same(
    old.map(({ status, body }) => [status, body]),
    [...Array(20).fill([200, 'run()']), [200, '']],
    'in order, eight at a time and the rest',
  )
  count += 21
  now += ASSET_TRUST.ms + 1
  raw.write(one('/app.js').repeat(20))
  const answers = (await raw.answers(count + 20)).slice(-20)
  t.ok(answers.every(({ body }) => body === 'changed()'))
})

t.test('[assets/static-assets.26] a route is not looked for on the disk for every request', async t => {
  let now = 0
  const clock = { ...LATE_CLOCK, monotonic: () => now }
  const { ask, status, tree, runtime } = makeSite(t, { routes: { '/hello/:x*?': makeFn() }, clock })
  const isRun = async (path: string) => {
    const before = runtime.calls.length
    t.equal(await status(path), 200, path)
    return runtime.calls.length > before
  }
  // The list is made beside the walk. With it a request reaches its function at once.
  for (let isListed = false; !isListed; ) {
    const before = runtime.calls.length
    const answer = ask('/hello')
    isListed = runtime.calls.length > before
    await answer
  }
  tree.write({ 'public/hello/index.html': 'file', 'public/new.txt': 'new' })
  t.ok(await isRun('/hello'), 'the list of this moment')
  t.equal((await ask('/new.txt')).text(), 'new', 'without a route: always looked for')
  now = 51
  t.notOk(await isRun('/hello'), 'a moment later')
  t.ok(await isRun('/hello/deep'))
  tree.write({ 'public/hello/deep': 'file' })
  t.notOk(await isRun('/hello/deep'), 'below a name that is there: always looked for')
  tree.remove('public')
  now = 200
  t.ok(await isRun('/hello'), 'the directory is gone')
  t.ok(await isRun('/hello'))
})

t.test('[assets/static-assets.22, assets/static-assets.23] compressed files beside a file', async t => {
  const { ask, tree } = makeSite(t, {
    files: { 'public/app.js': 'plain text', 'public/app.js.br': 'BRBR', 'public/app.js.gz': 'GZ', 'public/b.js': 'b' },
  })
  const br = { 'accept-encoding': 'br, gzip;q=0.5' }
  const tags = new Set<string>()
  for (const [headers, body, coding] of [
    [br, 'BRBR', 'br'],
    [{ 'accept-encoding': 'gzip' }, 'GZ', 'gzip'],
    [{}, 'plain text', undefined],
    [{ 'accept-encoding': 'identity' }, 'plain text', undefined],
  ] as const) {
    const answer = await ask('/app.js', headers)
    t.equal(answer.text(), body)
    t.match(answer.headers, {
      vary: 'Accept-Encoding',
      'content-type': /^text\/javascript/,
      'content-length': String(body.length),
    })
    t.equal(answer.headers['content-encoding'], coding)
    tags.add(answer.headers.etag!)
    const fresh = await ask('/app.js', { ...headers, 'if-none-match': answer.headers.etag! })
    t.match({ status: fresh.status, vary: fresh.headers.vary }, { status: 304, vary: 'Accept-Encoding' })
  }
  t.equal(tags.size, 3, 'one tag per form')
  const part = await ask('/app.js', { ...br, range: 'bytes=1-2' })
  t.match({ body: part.text(), range: part.headers['content-range'] }, { body: 'RB', range: 'bytes 1-2/4' })
  const own = await ask('/app.js.gz')
  t.match(own.headers, { 'content-type': 'application/gzip' })
  t.notOk('content-encoding' in own.headers)
  // Later changes of the compressed files are seen too.
  t.equal((await ask('/b.js', br)).text(), 'b')
  tree.write({ 'public/b.js.br': 'later' })
  t.equal((await ask('/b.js', br)).text(), 'later')
  tree.remove('public/b.js.br')
  t.equal((await ask('/b.js', br)).text(), 'b')
  const old = new Date(Date.now() - 10_000)
  utimesSync(tree.path('public/app.js.br'), old, old)
  t.equal((await ask('/app.js', br)).text(), 'GZ', 'out of date')
  utimesSync(tree.path('public/app.js.gz'), old, old)
  t.equal((await ask('/app.js', br)).text(), 'plain text')
  t.equal((await ask('/app.js', br)).headers.vary, undefined)
})

const LARGE = 24 * 1024 * 1024

function openFiles(tree: Tree): number {
  return readdirSync('/proc/self/fd').filter(fd => {
    try {
      return readlinkSync(join('/proc/self/fd', fd)).startsWith(tree.root)
    } catch {
      return false
    }
  }).length
}

async function until(isDone: () => boolean): Promise<void> {
  while (!isDone()) await new Promise(resolve => setImmediate(resolve))
}

/** Starts a download that is not read yet. */
function download(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false }, answer => resolve(answer.pause())).once('error', reject)
  })
}

async function readAll(answer: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of answer) chunks.push(chunk)
  return Buffer.concat(chunks)
}

t.test(
  '[assets/static-assets.24, assets/static-assets.25] large files, over a connection',
  { skip: process.platform !== 'linux' && 'reads /proc' },
  async t => {
    const site = makeSite(t)
    const { tree } = site
    const { url, port } = await listen(t, site)
    const path = tree.path('public/large.bin')
    const bytes = Buffer.alloc(LARGE)
    for (let i = 0; i < LARGE; i += 4) bytes.writeUInt32LE(i, i)
    tree.write({ 'public/large.bin': bytes })

    const whole = await readAll(await download(`${url}/large.bin`))
    t.ok(whole.equals(bytes), 'every byte in its place')
    t.match((await site.ask('/large.bin')).headers.etag, /^"[0-9a-z]+-[0-9a-z]+-[0-9a-z]+"$/)

    const growing = await download(`${url}/large.bin`)
    appendFileSync(path, 'more')
    const sent = await readAll(growing)
    t.equal(growing.headers['content-length'], String(LARGE))
    t.ok(sent.equals(bytes), 'grown: the length that was promised')

    const shrinking = await download(`${url}/large.bin`)
    truncateSync(path, 1000)
    await t.rejects(readAll(shrinking), { code: 'ECONNRESET' }, 'shrunk: cut')
    t.equal((await site.ask('/large.bin')).body.length, 1000)

    tree.write({ 'public/large.bin': bytes })
    const replaced = await download(`${url}/large.bin`)
    tree.write({ 'other.bin': Buffer.alloc(LARGE, 'x') })
    renameSync(tree.path('other.bin'), path)
    t.ok((await readAll(replaced)).equals(bytes), 'replaced: the file that was opened')
    t.equal((await site.ask('/large.bin')).body[0], 120)

    const left = await download(`${url}/large.bin`)
    t.equal(openFiles(tree), 1)
    left.destroy()
    await until(() => openFiles(tree) === 0)

    const connection = await RawConnection.open(port)
    connection.write(
      'GET /large.bin HTTP/1.1\r\nHost: h\r\nRange: bytes=5-7\r\n\r\nGET /app.js HTTP/1.1\r\nHost: h\r\n\r\n',
    )
    const answers = await connection.answers(2)
    t.same(
      answers.map(answer => [answer.status, answer.body]),
      [
        [206, 'xxx'],
        [200, 'run()'],
      ],
      'answers in order',
    )
    connection.socket.destroy()
    await until(() => openFiles(tree) === 0)
  },
)

t.test('[assets/static-assets.25] a file that is replaced all the time', async t => {
  const site = makeSite(t)
  const { tree } = site
  const path = tree.path('public/large.bin')
  const size = MAX_CACHED_ASSET_BYTES + 100
  const names = ['a', 'b', 'c', 'd']
  for (const name of names) tree.write({ [name]: Buffer.alloc(size, name) })
  linkSync(tree.path('d'), path)
  let isOver = false
  const replacing = (async () => {
    for (let i = 0; !isOver; i++) {
      linkSync(tree.path(names[i % names.length]!), tree.path('next'))
      renameSync(tree.path('next'), path)
      await new Promise(resolve => setImmediate(resolve))
    }
  })()
  for (let i = 0; i < 40; i++) {
    const { status, body } = await site.ask('/large.bin')
    if (status === 503) continue
    t.equal(status, 200)
    t.ok(body.equals(Buffer.alloc(size, body[0])), 'bytes of one file')
  }
  isOver = true
  await replacing
})

t.test('[assets/static-assets.2, http/public.2] a client that leaves while the disk is looked at', async t => {
  const { handle, runtime, finished } = makeSite(t, { routes: { '/hello': makeFn() } })
  const controller = new AbortController()
  const pending = fetchWith(handle, new Request('http://h/hello', { signal: controller.signal }))
  controller.abort()
  await t.rejects(pending)
  await until(() => finished.length === 1)
  // The look that was under way has ended by the time a later one has.
  await (await fetchWith(handle, new Request('http://h/hello'))).text()
  t.equal(runtime.calls.length, 1, 'only the second request was run')
})
