import { gunzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { findClaim } from '../../lib/http/docs-page.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { findChromium, launchChromium } from '../helpers/chromium.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

t.setTimeout(180_000)

const HANDLER = 'export const handler = event => ({ seen: event.params, query: event.query })\n'

async function serve(t: Test, tree: Record<string, TreeEntry>, options: GatewayOptions = {}) {
  const { root, cleanup } = makeTree(tree)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, ...options })
  t.teardown(() => gateway.close())
  return gateway
}

/** Addresses that a page loads. */
function linksOf(page: string): string[] {
  return [...page.matchAll(/(?:href|src|content)="([^"]*(?:\/|\.json)[^"]*)"/g)].map(match => match[1] as string)
}

t.test(
  '[http/docs-page.1, http/docs-page.2] a page whose every file the gateway has, under a strict policy',
  async t => {
    const gateway = await serve(t, { 'hello.js': HANDLER })
    for (const address of ['/docs', '/docs/', '/docs?x=1']) {
      const answer = await gateway.inject(address)
      t.equal(answer.status, 200, address)
      t.match(answer.headers['content-type'], /^text\/html/)
      const links = linksOf(answer.text())
      t.ok(links.length >= 5, `${links.length} links`)
      for (const link of links) {
        const target = new URL(link, `http://own${address}`)
        t.equal(target.host, 'own', link)
        t.equal((await gateway.inject(target.pathname)).status, 200, `${address}: ${link}`)
      }
      t.notMatch(answer.text(), /<script(?![^>]* src=)|<style| style=| on\w+=/, 'nothing inline')
    }
    const policy = (await gateway.inject('/docs')).headers['content-security-policy'] as string
    t.match(policy, /default-src 'none'/)
    t.match(policy, /connect-src 'self';/)
    t.notMatch(policy, /unsafe|\*|https?:/)
    const elsewhere = await serve(t, { 'hello.js': HANDLER }, { publicBaseUrl: 'https://api.example/v1' })
    t.match(
      (await elsewhere.inject('/docs')).headers['content-security-policy'],
      /connect-src 'self' https:\/\/api\.example;/,
    )
  },
)

t.test('[http/docs-page.4] files are tagged and packed', async t => {
  const gateway = await serve(t, {})
  const url = '/docs/_ui/swagger-ui.css'
  const plain = await gateway.inject({ url })
  const packed = await gateway.inject({ url, headers: { 'accept-encoding': 'br, gzip' } })
  t.equal(packed.headers['content-encoding'], 'gzip')
  t.ok(gunzipSync(packed.body).equals(plain.body))
  t.equal(packed.headers.vary, 'Accept-Encoding')
  t.not(packed.headers.etag, plain.headers.etag)
  for (const refusing of ['gzip;q=0', 'br', ''])
    t.equal(
      (await gateway.inject({ url, headers: { 'accept-encoding': refusing } })).headers['content-encoding'],
      undefined,
    )
  t.equal((await gateway.inject({ url, headers: { 'if-none-match': plain.headers.etag as string } })).status, 304)
  for (const missing of ['nothing.js', '', 'LICENSE', '../package.json', '%2e%2e/package.json', '__proto__'])
    t.equal((await gateway.inject(`/docs/_ui/${missing}`)).status, 404, missing)
  t.equal((await gateway.inject({ method: 'HEAD', url })).body.length, 0)
})

t.test('[http/docs-page.5] whoever has /docs keeps it', async t => {
  const own = await serve(t, { 'docs.js': HANDLER, 'docs/deep.js': HANDLER })
  t.same((await own.inject('/docs')).json(), { seen: {}, query: {} })
  t.match(own.warnings, [{ code: 'DOCS_HIDDEN', message: /the route \/docs/ }])
  const asset = await serve(t, {
    'fn.config.json': { json: { assets: { directory: 'public' } } },
    'public/docs/index.html': 'mine',
  })
  t.equal((await asset.inject('/docs')).text(), 'mine')
  t.match(asset.warnings, [{ code: 'DOCS_HIDDEN', message: /a file of the assets/ }])
  const other = await serve(t, { 'post.docs.js': HANDLER, '[...all].js': HANDLER, 'docs/deep.js': HANDLER })
  t.same(other.warnings, [])
  t.match((await other.inject('/docs')).headers['content-type'], /html/, 'a catch-all does not take it')
  t.equal((await other.inject({ method: 'POST', url: '/docs' })).status, 200)
  t.same((await other.inject('/docs/deep')).json(), { seen: {}, query: {} })
  t.same((await other.inject('/docs/else')).json(), { seen: { all: 'docs/else' }, query: {} })
  const off = await serve(t, { 'docs.js': HANDLER }, { docsEnabled: false })
  t.same(off.warnings, [])
  t.equal((await (await serve(t, {}, { docsEnabled: false })).inject('/docs')).status, 404)
  t.equal(findClaim('/docs', ['/docs/:x*', '/:all*?', '/docs/a/:x*?'], false), null)
  t.equal(findClaim('/docs', ['/docs/:x*?'], false), 'the route /docs/:x*?')
})

t.test('[http/docs-page.5, http/openapi.11] the rule is the same for /openapi.json', async t => {
  const routes = (route: string) => ({
    'mine.js': HANDLER,
    'other.js': HANDLER,
    'fn.routes.json': { json: { routes: { [route]: 'mine.js' } } },
  })
  const own = await serve(t, routes('GET /openapi.json'))
  t.same((await own.inject('/openapi.json')).json(), { seen: {}, query: {} })
  t.match(own.warnings, [
    {
      code: 'DOCS_HIDDEN',
      message: '/openapi.json is the route /openapi.json: the OpenAPI document is not served there',
    },
  ])
  const { winner, beside } = own.explain('GET', '/openapi.json')
  t.same([winner?.file, beside], ['mine.js', null])
  t.ok('/openapi.json' in (own.catalog().mapped_routes as object))
  const document = (await own.inject('/docs/_ui/openapi.json')).json() as { paths: object }
  t.same(
    Object.keys(document.paths).sort(),
    ['/mine', '/openapi.json', '/other'],
    'the page shows the document all the same',
  )
  const post = await serve(t, routes('POST /openapi.json'))
  t.same(post.warnings, [])
  t.match((await post.inject('/openapi.json')).json(), { openapi: '3.1.0' })
  t.equal(post.explain('GET', '/openapi.json').beside?.kind, 'document')
  const asset = await serve(t, {
    'fn.config.json': { json: { assets: { directory: 'public' } } },
    'public/openapi.json': '{"mine":true}',
  })
  t.same((await asset.inject('/openapi.json')).json(), { mine: true })
  t.match(asset.warnings, [{ code: 'DOCS_HIDDEN', message: /a file of the assets/ }])
  t.equal(asset.explain('GET', '/openapi.json').beside?.kind, 'asset')
})

const chromium = findChromium()
const skip = 'path' in chromium ? false : chromium.reason

t.test('[http/docs-page.1, http/docs-page.3] a browser shows it and calls a function from it', { skip }, async t => {
  if (!('path' in chromium)) return
  const gateway = await serve(t, { 'users/[id].js': `// @summary One <b>user</b>\n// @query {"full":"1"}\n${HANDLER}` })
  const { url } = await gateway.listen({ port: 0 })
  const browser = await launchChromium(chromium.path)
  t.teardown(() => browser.close())
  for (const address of ['/docs', '/docs/']) {
    const page = await browser.newPage()
    // A busy machine is no failure of the page.
    page.setDefaultTimeout(120_000)
    const problems: string[] = []
    page.on('console', message => message.type() === 'error' && problems.push(message.text()))
    page.on('pageerror', error => problems.push(error.message))
    page.on('request', request => {
      if (!/^data:/.test(request.url()) && new URL(request.url()).origin !== url) problems.push(request.url())
    })
    await page.goto(`${url}${address}`)
    await page.locator('.opblock-summary-control').click()
    t.equal(await page.locator('.opblock-summary-description').innerText(), 'GET One <b>user</b>')
    await page.locator('input[placeholder="id"]').fill('a b/c')
    await page.locator('button.execute').click()
    const live = page.locator('.live-responses-table')
    await live.waitFor()
    t.equal(await live.locator('.response-col_status').last().innerText(), '200')
    t.match(await live.locator('.highlight-code').first().innerText(), /"id": "a b\/c"[\s\S]*"full": "1"/)
    t.same(problems, [], address)
    await page.close()
  }
})
