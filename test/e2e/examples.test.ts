import { createHmac } from 'node:crypto'
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { inflateSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { createGateway, type Gateway, type GatewayOptions } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { injectBuilt, missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { NO_COMPOSER } from '../helpers/composer-bed.ts'

t.setTimeout(180_000)

const EXAMPLES = fileURLToPath(new URL('../../examples/functions', import.meta.url))

/** Serves a copy of an example, so that its data stays out of the checkout. */
async function serve(t: Test, name: string, settings: GatewayOptions = {}): Promise<Gateway> {
  const root = mkdtempSync(join(tmpdir(), 'fngw-example-'))
  cpSync(join(EXAMPLES, name), root, { recursive: true })
  const gateway = await createGateway({ functionsRoot: root, env: { ...process.env, ...shareCrates() }, ...settings })
  t.teardown(async () => {
    await gateway.close()
    rmSync(root, { recursive: true, force: true })
  })
  t.same(gateway.warnings, [], `${name} has no warnings`)
  t.match(readFileSync(join(EXAMPLES, name, 'README.md'), 'utf8'), new RegExp(`fngw dev examples/functions/${name}`))
  return gateway
}

const hasPhp = findProgram('php', {}, process.env.PATH ?? '').path !== null
const NO_PHP = hasPhp ? false : 'php is not installed: apt-get install php-cli'

t.test('[gateway/gateway.2] node-notes keeps notes in a file', async t => {
  const gateway = await serve(t, 'node-notes')
  t.same((await gateway.inject('/notes')).json(), [])
  const post = (body: string) => gateway.inject({ method: 'POST', url: '/notes', body })
  const created = await post('{"text":" buy milk "}')
  const note = created.json() as { id: string; text: string }
  t.match([created.status, note.text, created.headers.location], [201, 'buy milk', `/notes/${note.id}`])
  t.equal((await post('{"text":""}')).status, 422)
  t.equal((await post('nope')).status, 400)
  await post('{"text":"read"}')
  t.match((await gateway.inject('/notes?q=milk')).json(), [{ id: note.id }])
  t.same((await gateway.inject(`/notes/${note.id}`)).json(), note)
  t.equal((await gateway.inject({ method: 'DELETE', url: `/notes/${note.id}` })).status, 204)
  t.equal((await gateway.inject(`/notes/${note.id}`)).status, 404)
  t.equal(((await gateway.inject('/notes')).json() as unknown[]).length, 1)
})

t.test(
  '[gateway/gateway.2, validation/request-schema.9] checked-api refuses what its schemas do not allow',
  { skip: NO_PHP },
  async t => {
    const gateway = await serve(t, 'checked-api')
    const quote = (body: object) =>
      gateway.inject({
        method: 'POST',
        url: '/quotes',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
    const made = await quote({ items: [{ sku: 'A-1', count: 2 }] })
    t.match([made.status, made.json()], [201, { currency: 'EUR', total: 25 }])
    const cases: [answer: Promise<{ status: number; text: () => string }>, status: number, text: RegExp][] = [
      [quote({ items: [{ sku: 'Z-1', count: 2 }] }), 400, /body\.items\[0\]\.sku must be a string that matches/],
      [quote({ items: [] }), 400, /body\.items must be at least 1 item long/],
      [gateway.inject('/convert/EUR/USD?amount=2'), 200, /"result":2\.2/],
      [gateway.inject('/convert/EUR/XXX?amount=2'), 400, /params\.to must be one of/],
      [gateway.inject('/convert/EUR/USD?amount=ten'), 400, /query\.amount must be of type number/],
      [gateway.inject('/labels?text=a&times=2'), 200, /^a\na$/],
      [gateway.inject('/labels'), 400, /query\.text is required/],
      [gateway.inject('/slots?day=2024-02-29&from=17'), 200, /"2024-02-29T17:00:00Z"/],
      [gateway.inject('/slots?day=2024-02-30'), 400, /query\.day must be a valid date/],
    ]
    for (const [answer, status, text] of cases) t.match([(await answer).status, (await answer).text()], [status, text])
    t.equal((await gateway.inject('/openapi.json')).status, 200)
  },
)

t.test('[gateway/gateway.2] ts-webhook accepts a right signature only', async t => {
  const gateway = await serve(t, 'ts-webhook')
  const body = '{"action":"opened"}'
  const sign = (secret: string) => `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`
  const send = (headers: Record<string, string>) => gateway.inject({ method: 'POST', url: '/webhook', headers, body })
  t.match((await send({ 'x-signature-256': sign('change-me') })).json(), { action: 'opened', accepted: String })
  t.equal((await send({ 'x-signature-256': sign('wrong') })).status, 401)
  t.equal((await send({})).status, 401)
  t.equal((await gateway.inject('/webhook')).status, 405)
})

t.test('[gateway/gateway.2] python-chart draws a real PNG', async t => {
  const gateway = await serve(t, 'python-chart')
  const { status, headers, body } = await gateway.inject('/chart?values=1,4,2')
  t.match([status, headers['content-type']], [200, 'image/png'])
  t.equal(body.subarray(0, 8).toString('latin1'), '\x89PNG\r\n\x1a\n')
  const [width, height] = [body.readUInt32BE(16), body.readUInt32BE(20)]
  const data = body.indexOf('IDAT')
  const rows = inflateSync(body.subarray(data + 4, data + 4 + body.readUInt32BE(data - 4)))
  t.equal(rows.length, height * (1 + width * 3), 'every pixel is there')
  t.equal((await gateway.inject('/chart?values=x')).status, 400)
})

t.test(
  '[gateway/gateway.2, dependencies/php.1] php-price calculates with a package of Composer',
  { skip: NO_COMPOSER },
  async t => {
    const gateway = await serve(t, 'php-price')
    const price = (query: string) => gateway.inject(`/price?${query}`)
    t.same((await price('net=1999')).json(), { net: '19.99 EUR', vat: '3.80 EUR', total: '23.79 EUR' })
    t.same((await price('net=1999&vat=7')).json(), { net: '19.99 EUR', vat: '1.40 EUR', total: '21.39 EUR' })
    t.equal((await price('net=x')).status, 400)
  },
)

t.test('[gateway/gateway.2] php-contact shows and checks a form', { skip: NO_PHP }, async t => {
  const gateway = await serve(t, 'php-contact')
  const form = await gateway.inject('/contact')
  t.match([form.status, form.headers['content-type']], [200, 'text/html; charset=utf-8'])
  t.match(form.text(), /<form method="post">/)
  const send = (body: string) => gateway.inject({ method: 'POST', url: '/contact', body })
  const wrong = await send('name=%3Cscript%3E&message=short')
  t.equal(wrong.status, 422)
  t.match(wrong.text(), /&lt;script&gt;/)
  t.match((await send('name=Kim&message=Hello+from+here')).text(), /Kim, your message arrived/)
})

t.test('[gateway/gateway.2] lua-flags gives a user the same answer every time', async t => {
  const gateway = await serve(t, 'lua-flags')
  const ada = (await gateway.inject('/flags/ada')).json() as { flags: Record<string, boolean> }
  t.match(ada, { user: 'ada', flags: { 'dark-mode': true, 'beta-search': true, 'new-checkout': Boolean } })
  t.same((await gateway.inject('/flags/ada')).json(), ada)
  let on = 0
  for (let i = 0; i < 100; i++) {
    const { flags } = (await gateway.inject(`/flags/user${i}`)).json() as typeof ada
    t.equal(flags['beta-search'], false)
    if (flags['new-checkout']) on++
  }
  t.ok(on > 20 && on < 80, `${on} of 100 users have a flag of 50 percent`)
})

t.test('[gateway/gateway.2] polyglot: one tree, five languages', async t => {
  const gateway = await serve(t, 'polyglot')
  t.match((await gateway.inject('/')).json(), { shop: String })
  t.equal(((await gateway.inject('/products?max_cents=1200')).json() as unknown[]).length, 2)
  t.same((await gateway.inject('/products/2')).json(), { id: 2, name: 'Cup' })
  t.equal((await gateway.inject('/products/9')).status, 404)
  const label = await gateway.inject('/label/A%3CB')
  t.match([label.headers['content-type'], label.text()], ['image/svg+xml', /A&lt;B/])
  t.same((await gateway.inject('/shipping?kg=2.5')).json(), { kg: 2.5, cents: 850 })
  t.equal((await gateway.inject('/shipping')).status, 400)
  if (NO_PHP !== false) return t.comment(NO_PHP)
  const invoice = await gateway.inject({
    method: 'POST',
    url: '/invoice',
    body: '[{"cents":650,"count":2},{"cents":100}]',
  })
  t.same([invoice.status, invoice.json()], [201, { lines: 2, total_cents: 1400 }])
})

t.test('[gateway/gateway.2] go-slug makes names for URLs', { skip: missingToolchain('go') ?? false }, async t => {
  const gateway = await serve(t, 'go-slug', { runtimes: ['go'] })
  const { status, json } = await injectBuilt(gateway, `/slug/${encodeURIComponent('Crème brûlée für Zwei!')}`)
  t.same([status, json()], [200, { slug: 'creme-brulee-fuer-zwei', words: 4 }])
  t.equal((await gateway.inject('/slug/!')).status, 422)
})

t.test('[gateway/gateway.2] rust-stats describes numbers', { skip: missingToolchain('rust') ?? false }, async t => {
  const gateway = await serve(t, 'rust-stats', { runtimes: ['rust'] })
  const { status, json } = await injectBuilt(gateway, { method: 'POST', url: '/stats', body: '[1,2,3,10]' })
  t.match([status, json()], [200, { count: 4, mean: 4, median: 2.5, deviation: 3.5355339059327378 }])
  t.equal((await gateway.inject({ method: 'POST', url: '/stats', body: '["a"]' })).status, 422)
  t.equal((await gateway.inject('/stats')).status, 405)
})
