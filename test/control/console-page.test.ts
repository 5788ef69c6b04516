import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import t from 'tap'
import { buildConsole } from '../helpers/console-bed.ts'
import { makeControlBed } from '../helpers/control-bed.ts'

buildConsole()

const PAGES = [
  '/console',
  '/console/',
  '/console/functions',
  '/console/functions/node/a%20b@v2?tab=code',
  '/CONSOLE/../console',
]

/** Addresses in a document. */
function linksOf(text: string): string[] {
  return [...text.matchAll(/(?:href|src)="([^"]*_files[^"]*)"/g)].map(match => match[1] as string)
}

t.test('[console/console.1] one document for every address, whose files are there', async t => {
  const { gateway } = await makeControlBed(t, {}, { uiEnabled: true })
  for (const address of PAGES.slice(0, 4)) {
    const answer = await gateway.inject(address)
    t.equal(answer.status, 200, address)
    t.match(answer.headers['content-type'], /^text\/html/)
    const policy = answer.headers['content-security-policy'] as string
    t.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'/)
    t.notMatch(policy, /unsafe|\*|https?:/)
    t.notMatch(answer.text(), /<script(?![^>]* src=)|<style| style=| on\w+=/, 'nothing inline')
    const links = linksOf(answer.text())
    t.equal(links.length, 3)
    for (const link of links) {
      const target = new URL(link, `http://own${address}`)
      t.equal((await gateway.inject(target.pathname)).status, 200, `${address}: ${link}`)
    }
    const root = /name="gateway" content="([^"]*)"/.exec(answer.text())?.[1] as string
    t.equal(new URL(root, `http://own${address}`).href, 'http://own/')
  }
})

t.test('[console/console.2] files may be kept for ever, and no other file can be had', async t => {
  const { gateway } = await makeControlBed(t, {}, { uiEnabled: true })
  const [style] = linksOf((await gateway.inject('/console')).text())
  const url = new URL(style as string, 'http://own/console').pathname
  const plain = await gateway.inject(url)
  t.equal(plain.headers['cache-control'], 'public, max-age=31536000, immutable')
  t.equal(plain.headers['x-content-type-options'], 'nosniff')
  const packed = await gateway.inject({ url, headers: { 'accept-encoding': 'gzip' } })
  t.ok(gunzipSync(packed.body).equals(plain.body))
  t.equal((await gateway.inject({ url, headers: { 'if-none-match': plain.headers.etag as string } })).status, 304)
  const names = [
    'files.json',
    '..%2ffiles.json',
    '%2e%2e/files.json',
    'main.js',
    '',
    'constructor',
    '../../package.json',
  ]
  for (const name of names)
    t.not(
      (await gateway.inject(`/console/_files/${name}`)).text(),
      readFileSync('dist/console/files.json', 'utf8'),
      name,
    )
  for (const name of ['main.js', 'constructor', 'x/y.css'])
    t.equal((await gateway.inject(`/console/_files/${name}`)).status, 404, name)
  t.equal((await gateway.inject(`/console${'/a'.repeat(40)}`)).status, 404)
})

t.test('[console/console.1] the document is refused to whom nothing is shown', async t => {
  const off = await makeControlBed(t, {})
  t.equal((await off.gateway.inject('/console')).status, 404)
  const { gateway } = await makeControlBed(
    t,
    {},
    { uiEnabled: true, adminToken: 'a-token-of-some-length', consoleLoginApi: true },
  )
  t.equal((await gateway.inject('/console')).status, 200, 'who has to log in gets the page to do it')
  t.equal((await gateway.inject('/_fn/catalog')).status, 401)
  t.equal(
    (await gateway.inject({ url: '/console', headers: { host: 'evil.example' } })).status,
    403,
    'a name of somebody else',
  )
  t.equal((await gateway.inject({ url: '/console', headers: { 'x-forwarded-for': '1.2.3.4' } })).status, 403)
  t.equal((await gateway.inject({ url: '/console', method: 'POST', headers: { 'x-fngw-request': '1' } })).status, 405)
  const hidden = await makeControlBed(t, {}, { uiEnabled: true, consoleApiEnabled: false })
  t.equal((await hidden.gateway.inject('/console')).status, 404)
})
