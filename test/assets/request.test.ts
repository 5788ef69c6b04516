import t from 'tap'
import { toAsset } from '../../lib/assets/file.ts'
import { chooseForm, isNavigation, isPagePath, readAssetHead, toAssetName } from '../../lib/assets/request.ts'

t.test(
  '[assets/static-assets.1, assets/static-assets.7, assets/static-assets.10] which name a path asks for',
  async t => {
    for (const [path, name] of [
      ['/', 'index.html'],
      ['/a', 'a'],
      ['/a/b.txt', 'a/b.txt'],
      ['/a b+ü', 'a b+ü'],
      ['/100%25.txt', '100%.txt'],
      ['/a%252Fb', 'a%2Fb'],
      ['/a~/b', 'a~/b'],
      ['/a.bak/b', 'a.bak/b'],
      ['/bak', 'bak'],
      ['/fn.env.js', 'fn.env.js'],
      ['/xfn.env.json', 'xfn.env.json'],
    ] as const)
      t.equal(toAssetName(path), name, path)
    for (const path of [
      ...['/.env', '/a/.b', '/a/.b/c', '/a%2Fb', '/a\\b', '/a\u0001', '/a\u007f', '/..', '/a/../b'],
      ...['/fn.env.json', '/a/FN.CONFIG.JSON', '/fn.routes.json', '/fngw.json', '/fngw.json.1', '/fn.env.json.gz'],
      ...['/a~', '/a.bak', '/a.BACKUP', '/a.old', '/a.orig', '/a.rej', '/a.swp', '/a.swo', '/a/#b#', '/#b#'],
    ])
      t.equal(toAssetName(path), null, JSON.stringify(path))
  },
)

t.test('[assets/static-assets.5] which paths a page may have, and who goes to one', async t => {
  for (const path of ['/', '/users', '/users/7', '/a.b/c', '/apis', '/xapi/y']) t.ok(isPagePath(path), path)
  for (const path of ['/app.js', '/a/b.css', '/api', '/api/', '/api/x', '/api-v2', '/.x', '/a%2Fb', '/a.'])
    t.notOk(isPagePath(path), path)
  const head = (fields: object) => ({ ...readAssetHead([]), ...fields })
  for (const fields of [
    {},
    { accept: '' },
    { accept: ' ' },
    { accept: 'text/html' },
    { accept: 'application/json, text/*;q=0.1' },
    { accept: '*/*' },
    { accept: 'application/json', fetchMode: 'navigate' },
    { accept: 'application/json', fetchDest: 'document' },
  ])
    t.ok(isNavigation(head(fields)), JSON.stringify(fields))
  for (const fields of [
    { accept: 'application/json' },
    { accept: 'text/html;q=0, */*' },
    { accept: 'text/html;q=0' },
    { accept: '*/*;q=0' },
    { accept: 'image/png', fetchMode: 'no-cors', fetchDest: 'image' },
  ])
    t.notOk(isNavigation(head(fields)), JSON.stringify(fields))
})

t.test('[assets/static-assets.17, assets/static-assets.19] the headers that decide', async t => {
  const head = readAssetHead([
    ...[
      'ACCEPT',
      'a',
      'Accept-Encoding',
      'br',
      'accept-encoding',
      'gzip',
      'If-None-Match',
      '"a"',
      'if-none-match',
      '"b"',
    ],
    ...['Sec-Fetch-Mode', 'navigate', 'Sec-Fetch-Dest', 'document', 'Range', 'bytes=0-', 'If-Range', '"a"'],
    ...[
      'If-Match',
      '*',
      'If-Modified-Since',
      'x',
      'If-Unmodified-Since',
      'y',
      'X-Range',
      'no',
      'Host',
      'h',
      'constructor',
      'c',
    ],
  ])
  t.same(head, {
    accept: 'a',
    acceptEncoding: 'br, gzip',
    fetchMode: 'navigate',
    fetchDest: 'document',
    range: 'bytes=0-',
    ifRange: '"a"',
    ifMatch: '*',
    ifNoneMatch: '"a", "b"',
    ifModifiedSince: 'x',
    ifUnmodifiedSince: 'y',
  })
  t.ok(Object.values(readAssetHead([])).every(value => value === null))
})

t.test('[assets/static-assets.22] the form that a client likes best', async t => {
  const file = (text: string) => ({
    path: '/a.js',
    state: { dev: 1, ino: 1, size: 1, mtimeMs: 0, ctimeMs: 0 },
    body: Buffer.from(text),
  })
  const both = toAsset('a.js', file('plain'), file('br'), file('gz'))
  for (const [accept, form] of [
    [null, 'plain'],
    ['', 'plain'],
    ['gzip, deflate, br, zstd', 'br'],
    ['br', 'br'],
    ['gzip', 'gzip'],
    ['x-gzip', 'gzip'],
    ['GZIP', 'gzip'],
    ['br;q=0.5, gzip;q=0.8', 'gzip'],
    ['br;q=0.5, gzip;q=0.5', 'br'],
    ['br;q=0, gzip', 'gzip'],
    ['br;q=0,gzip;q=0', 'plain'],
    ['*', 'br'],
    ['*;q=0', 'plain'],
    ['br;q=0, *', 'gzip'],
    ['identity', 'plain'],
    ['identity;q=1, br;q=0.5', 'plain'],
    ['identity;q=0.5, br;q=1.0', 'br'],
    ['br;q=x', 'plain'],
    ['br;q=-1', 'plain'],
    ['deflate', 'plain'],
    ['brotli', 'plain'],
  ] as const) {
    t.equal(chooseForm(both, accept).meta.coding ?? 'plain', form, String(accept))
  }
  const gzipOnly = toAsset('a.js', file('plain'), null, file('gz'))
  t.equal(chooseForm(gzipOnly, 'br, gzip;q=0.1').meta.coding, 'gzip')
  t.equal(chooseForm(toAsset('a.js', file('plain'), null, null), 'br').meta.coding, null)
})
