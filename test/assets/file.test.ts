import t from 'tap'
import { isSameState, toAsset, toCacheControl, toContentType, toForm, toState } from '../../lib/assets/file.ts'

const STATE = { dev: 1, ino: 2, size: 5, mtimeMs: 1_700_000_000_123.5, ctimeMs: 1_700_000_000_200 }
const file = (path: string, text: string | null, state = STATE) => ({
  path,
  state,
  body: text === null ? null : Buffer.from(text),
})
const META = { type: 'text/plain', cacheControl: 'no-store', coding: null, varies: false }

t.test('[assets/static-assets.13] types', async t => {
  for (const [name, type] of [
    ['a.html', 'text/html; charset=utf-8'],
    ['A.HTML', 'text/html; charset=utf-8'],
    ['a.css', 'text/css; charset=utf-8'],
    ['a.min.js', 'text/javascript; charset=utf-8'],
    ['a.mjs', 'text/javascript; charset=utf-8'],
    ['a.cjs', 'text/javascript; charset=utf-8'],
    ['a.ts', 'text/plain; charset=utf-8'],
    ['a.mts', 'text/plain; charset=utf-8'],
    ['a.py', 'text/plain; charset=utf-8'],
    ['a.json', 'application/json'],
    ['a.js.map', 'application/json'],
    ['a.svg', 'image/svg+xml'],
    ['a.png', 'image/png'],
    ['a.woff2', 'font/woff2'],
    ['a.wasm', 'application/wasm'],
    ['a.webmanifest', 'application/manifest+json'],
    ['a.unknown', 'application/octet-stream'],
    ['a.constructor', 'application/octet-stream'],
    ['html', 'application/octet-stream'],
    ['dir.html/noext', 'application/octet-stream'],
  ] as const)
    t.equal(toContentType(`/srv/${name}`), type, name)
})

t.test('[assets/static-assets.14] names with a hash', async t => {
  for (const name of [
    'app.3f2a1b9c.js',
    'app-3F2A1B9C.js',
    'app_3f2a1b9c4d.css',
    '3f2a1b9c.js',
    'a.12345678.js',
    'logo.deadbeef.min.svg',
    'a-20241301.js',
    'f00dcafe',
  ])
    t.match(toCacheControl(`/srv/${name}`), /^public, max-age=31536000, immutable$/, name)
  for (const name of [
    'app.js',
    'app.3f2a1b9.js',
    'app3f2a1b9c.js',
    'app.3f2a1b9cx.js',
    'report-20240131.pdf',
    'shot_20240131123000.png',
    'index.html',
    '3f2a1b9c/app.js',
  ])
    t.match(toCacheControl(`/srv/${name}`), /^public, max-age=0, must-revalidate$/, name)
})

t.test('[assets/static-assets.13, assets/static-assets.14, assets/static-assets.15] headers of a form', async t => {
  const plain = toForm(file('/a.txt', 'hello'), META)
  t.equal(plain.modifiedSeconds, 1_700_000_000, 'whole seconds, as HTTP has them')
  t.match(plain.etag, /^"[\w-]{22}"$/)
  const validators = ['ETag', plain.etag, 'Last-Modified', 'Tue, 14 Nov 2023 22:13:20 GMT', 'Cache-Control', 'no-store']
  t.same(plain.validators, validators)
  t.same(plain.headers, [
    ...['Content-Type', 'text/plain', ...validators],
    ...['Accept-Ranges', 'bytes', 'X-Content-Type-Options', 'nosniff'],
  ])
  const coded = toForm(file('/a.txt.br', 'hello'), { ...META, coding: 'br', varies: true })
  t.same(coded.validators.slice(-2), ['Vary', 'Accept-Encoding'])
  t.same(coded.headers.slice(-2), ['Content-Encoding', 'br'])
  t.equal(coded.etag, plain.etag, 'the tag is that of the bytes')
  t.not(toForm(file('/a.txt', 'hellO'), META).etag, plain.etag)
})

t.test('[assets/static-assets.15] the tag of a large file differs between its states', async t => {
  const tag = (state: object) => toForm(file('/large', null, { ...STATE, ...state }), META).etag
  t.match(tag({}), /^"[0-9a-z]+-[0-9a-z]+-[0-9a-z]+"$/)
  t.equal(tag({}), tag({ ctimeMs: 1, dev: 9 }))
  for (const other of [{ size: 6 }, { mtimeMs: STATE.mtimeMs + 0.01 }, { ino: 3 }]) t.not(tag(other), tag({}))
})

t.test('[assets/static-assets.16] states of a file', async t => {
  t.same(toState({ ...STATE, mode: 1, nlink: 2 } as never), STATE)
  t.ok(isSameState(STATE, { ...STATE }))
  for (const [key, value] of Object.entries(STATE)) t.notOk(isSameState(STATE, { ...STATE, [key]: value + 1 }), key)
})

t.test('[assets/static-assets.22] forms of an asset', async t => {
  const asset = toAsset('a.js', file('/srv/a.js', 'plain'), file('/srv/a.js.br', 'BR'), file('/srv/a.js.gz', 'GZ'))
  t.equal(asset.name, 'a.js')
  for (const [form, coding] of [
    [asset.plain, null],
    [asset.br!, 'br'],
    [asset.gzip!, 'gzip'],
  ] as const)
    t.match(form.meta, { coding, type: 'text/javascript; charset=utf-8', varies: true }, String(coding))
  const alone = toAsset('a.3f2a1b9c.js', file('/srv/a.3f2a1b9c.js', 'plain'), null, null)
  t.match(alone, { br: null, gzip: null, plain: { meta: { varies: false, cacheControl: /immutable/ } } })
})
