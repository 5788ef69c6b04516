/** The applications of examples/apps: each README does what it says, and what a README cannot show. */

import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { readDocBlocks } from '../docs/blocks.ts'
import { DocSession } from '../docs/session.ts'
import { noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(180_000)

const APPS = 'examples/apps'
const hasPhp = findProgram('php', {}, process.env.PATH ?? '').path !== null
const NO_PHP = hasPhp ? false : 'php is not installed: apt-get install php-cli'

interface App {
  /** Sends JSON and reads it. */
  call: (method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<Answer>
  url: string
  /** Changes an fn.env.json of the running application. */
  setEnv: (file: string, change: (text: string) => string) => Promise<void>
}

interface Answer {
  status: number
  headers: Headers
  body: unknown
}

/** Follows the README of an application in a temporary folder. The gateway runs until the test ends. */
async function followReadme(t: Test, name: string): Promise<App> {
  const session = new DocSession({ app: `${APPS}/${name}` })
  t.teardown(() => session.end())
  const setEnv: App['setEnv'] = async (file, change) => {
    const path = join(session.folder, 'functions', file)
    writeFileSync(path, change(readFileSync(path, 'utf8')))
    await fetch(`${session.gateway.url}/_fn/reload`, { method: 'POST' })
  }
  const readme = readFileSync(fileURLToPath(new URL(`../../${APPS}/${name}/README.md`, import.meta.url)), 'utf8')
  for (const block of readDocBlocks(readme)) {
    const { failure } = await session.follow(block)
    if (failure === undefined) t.pass(`README.md:${block.line}`)
    else t.fail(`README.md:${block.line}\n${failure}`)
    // Functions that call the gateway have to know its port, which is another one here.
    if (name === 'webhooks' && block.language === 'sh')
      for (const file of ['webhook/fn.env.json', 'notify/fn.env.json'])
        await setEnv(file, text => text.replace('http://127.0.0.1:8080', session.gateway.url))
  }
  t.notMatch(session.gateway.stderr(), /warning/, 'no warnings')
  const { url } = session.gateway
  const call: App['call'] = async (method, path, body, headers = {}) => {
    const response = await fetch(url + path, {
      method,
      redirect: 'manual',
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
    })
    const text = await response.text()
    const isJson = response.headers.get('content-type') === 'application/json'
    return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text }
  }
  return { call, url, setEnv }
}

t.test('[examples.1, examples.2] link-shortener counts every visit and keeps to http', async t => {
  const { call, url } = await followReadme(t, 'link-shortener')
  const key = { authorization: 'Bearer for-development' }
  await Promise.all(Array.from({ length: 30 }, () => call('GET', '/learn')))
  t.match((await call('GET', '/links', undefined, key)).body, [{ code: 'learn', visits: 31 }])
  t.equal((await call('POST', '/links', { url: 'https://a.example', code: 'learn' }, key)).status, 409)
  const made = await call('POST', '/links', { url: 'https://a.example' }, key)
  t.match(made, { status: 201, body: { code: /^\w{7}$/ } })
  for (const method of ['POST', 'GET'])
    t.equal((await call(method, '/links', method === 'POST' ? { url: 'https://a.example' } : undefined)).status, 401)
  t.equal((await call('DELETE', '/links/learn')).status, 401)
  t.equal((await call('DELETE', '/links/learn', undefined, key)).status, 204)
  t.equal((await call('GET', '/learn')).status, 404)
  if (noBrowser !== false) return t.comment(noBrowser)
  await withPage(t, url, async page => {
    await page.fill('[name=key]', 'for-development')
    await page.fill('[name=url]', 'https://b.example/?q=<b>&r')
    await page.fill('[name=code]', 'from-page')
    await page.click('button')
    await page.waitForSelector('a[href="/from-page"]')
    t.match(await page.textContent('table'), 'https://b.example/?q=%3Cb%3E&r')
  })
})

t.test(
  '[examples.1, examples.2] webhooks retries until the service accepts, and refuses what is not signed',
  async t => {
    const { call, setEnv } = await followReadme(t, 'webhooks')
    const token = { 'x-fn-admin-token': 'change-me-0123456789' }
    const send = (id: string, text: string, { age = 0, secret = 'for-development-0123456789' } = {}) => {
      const time = Math.floor(Date.now() / 1000) - age
      const signature = createHmac('sha256', secret).update(`${id}.${time}.${text}`).digest('base64')
      return call('POST', '/webhook', text, {
        'webhook-id': id,
        'webhook-timestamp': String(time),
        // A sender that replaces its secret signs with both.
        'webhook-signature': `v1,${Buffer.alloc(32).toString('base64')} v1,${signature}`,
      })
    }
    const paid = '{"type":"order.paid","data":{"order":"B-1","cents":250}}'
    t.equal((await send('msg_2', paid, { age: 301 })).status, 401)
    t.equal((await send('msg_2', paid, { secret: 'x' })).status, 401)
    t.equal((await call('POST', '/webhook', paid)).status, 401)
    t.match(await send('msg_2', '{"type":"order.made"}'), { status: 202, body: { job: null } })
    t.match(await send('msg_3', 'no JSON'), { status: 202, body: { job: null } })

    const seen: string[] = []
    const chat = createServer((request, response) => {
      request.setEncoding('utf8').on('data', text => seen.push(text))
      request.on('end', () => response.writeHead(seen.length < 3 ? 503 : 204).end())
    })
    t.teardown(() => chat.close())
    await once(chat.listen(0, '127.0.0.1'), 'listening')
    const address = `http://127.0.0.1:${(chat.address() as AddressInfo).port}`
    await setEnv('notify/fn.env.json', () => JSON.stringify({ CHAT_URL: address }))
    await setEnv('webhook/fn.env.json', text => text.replace('"1000"', '"1"'))
    const { body } = await send('msg_4', paid)
    const { job } = body as { job: string }
    t.same((await send('msg_4', paid)).body, { id: 'msg_4', job }, 'a repeated delivery is the same job')
    t.equal((await send('msg_4', paid.replace('250', '251'))).status, 409)
    let record = { status: 'queued' } as { status: string; attempts?: object[] }
    while (!['done', 'failed'].includes(record.status))
      record = (await call('GET', `/_fn/jobs/${job}`, undefined, token)).body as typeof record
    t.match(record, { status: 'done', attempts: { length: 3 } })
    t.same(
      seen.map(text => JSON.parse(text)),
      Array(3).fill({ id: 'msg_4', text: 'Order B-1 paid: 2.50 EUR' }),
    )
  },
)

t.test(
  '[examples.1, examples.2] shop: forged tokens, the orders of others and the limits',
  { skip: NO_PHP },
  async t => {
    const { call } = await followReadme(t, 'shop')
    const login = (user: string, password: string) => call('POST', '/login', { user, password })
    const { body } = await login('grace', 'for-development-2')
    const { token } = body as { token: string }
    const as = (value: string) => ({ authorization: `Bearer ${value}` })
    t.same((await call('GET', '/account', undefined, as(token))).body, { user: 'grace' })
    t.equal((await call('GET', '/orders/1', undefined, as(token))).status, 404, 'the order of the other user')

    const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const sign = (head: object, claims: object, secret = 'for-development-0123456789abcdef') => {
      const signed = `${encode(head)}.${encode(claims)}`
      return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`
    }
    const hs256 = { alg: 'HS256', typ: 'JWT' }
    const claims = { sub: 'ada', exp: Math.floor(Date.now() / 1000) + 60 }
    t.equal((await call('GET', '/account', undefined, as(sign(hs256, claims)))).status, 200)
    for (const forged of [
      sign(hs256, claims, 'guessed'),
      sign({ alg: 'none', typ: 'JWT' }, claims),
      sign(hs256, { ...claims, exp: 1 }),
      `${encode(hs256)}.${encode(claims)}.`,
      `${token}x`,
      '..',
      '',
    ]) {
      for (const path of ['/account', '/orders', '/orders/1'])
        t.equal((await call('GET', path, undefined, as(forged))).status, 401, `${path} with ${forged}`)
    }

    const order = { lines: [{ sku: 'CUP-1', count: 1 }] }
    const answers = await Promise.all(Array.from({ length: 14 }, () => call('POST', '/orders', order, as(token))))
    t.equal(answers.filter(({ status }) => status === 201).length, 10)
    const refused = answers.filter(({ status }) => status === 429)
    t.equal(refused.length, 4)
    t.match(refused[0]!.headers.get('retry-after'), /^\d+$/)
    t.equal((await call('POST', '/orders', { lines: [{ sku: 'X', count: 1 }] }, as(token))).status, 422)

    // The minute may end in between, so the sixth attempt is not always the first that is refused.
    let attempts = 1
    while ((await login('mallory', 'x')).status === 401 && attempts < 60) attempts++
    t.ok(attempts > 5 && attempts < 60, `attempt ${attempts} is refused`)
  },
)

t.test(
  '[examples.1, examples.2] llm-stream sends the same words for a seed, and the page shows and stops them',
  async t => {
    const { call, url, setEnv } = await followReadme(t, 'llm-stream')
    const ask = (seed: number) => call('POST', '/api/generate', { prompt: 'a stream', max_tokens: 20, seed })
    const first = await ask(1)
    t.match(first.headers.get('content-type'), 'text/event-stream')
    t.equal((first.body as string).match(/^event: token$/gm)?.length, 20)
    t.equal((await ask(1)).body, first.body)
    t.not((await ask(2)).body, first.body)
    t.equal((await call('POST', '/api/generate', { prompt: 'x', max_tokens: 501 })).status, 400)
    if (noBrowser !== false) return t.comment(noBrowser)
    await withPage(t, url, async page => {
      await page.click('text=Generate')
      await page.locator('[role=status]', { hasText: / tokens$/ }).waitFor()
      t.match(await page.textContent('output'), /^\w+ \w+/)
      // One word in ten seconds: there is always something left to stop.
      await setEnv('api/generate/fn.env.json', text => text.replace('"30"', '"0.1"'))
      await page.click('text=Generate')
      await page.click('text=Stop')
      await page.locator('[role=status]', { hasText: 'Stopped' }).waitFor()
    })
  },
)

t.test('[examples.1, examples.2] report writes a PDF that readers can open', { skip: NO_PHP }, async t => {
  const { url, call } = await followReadme(t, 'report')
  const key = { authorization: 'Bearer for-development' }
  const file = Buffer.from(await (await fetch(`${url}/reports/2026-W47`, { headers: key })).arrayBuffer())
  const text = file.toString('latin1')
  const [, start] = /startxref\n(\d+)\n%%EOF\n$/.exec(text)!
  const table = text.slice(Number(start))
  const offsets = [...table.matchAll(/^(\d{10}) 00000 n $/gm)].map(([, digits]) => Number(digits))
  t.equal(offsets.length, 6)
  for (const [i, offset] of offsets.entries()) t.ok(text.startsWith(`${i + 1} 0 obj\n`, offset), `object ${i + 1}`)
  const [, length, content] = /\/Length (\d+) >>\nstream\n([\s\S]*?)endstream/.exec(text)!
  t.equal(content!.length, Number(length))
  t.match(content, '(Sales of week 2026-W47) Tj')
  t.match(content, '(Cr\u00e8me br\u00fbl\u00e9e dish \\(set\\)) Tj', 'accents and brackets')
  t.match(content, '(214.40 EUR) Tj')
  t.equal((await call('GET', '/reports/..%2f_sales', undefined, key)).status, 400)
  t.equal((await call('GET', '/reports/2020-W01', undefined, key)).status, 404)
  t.equal((await call('GET', '/reports')).status, 401)
})
