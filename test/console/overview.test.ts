import { existsSync, writeFileSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { type ConsoleBed, checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const handler = (code: string): string => `export const handler = async event => { ${code} }\n`

/** Waits until the file `go` is there, so that a test decides when its place is free again. */
const BUSY = `import { existsSync } from 'node:fs'
export const handler = async () => {
  while (!existsSync(new URL('../go', import.meta.url))) await new Promise(done => setTimeout(done, 5))
  return 'done'
}
`
const TREE = {
  'fine/handler.mjs': handler(`return { fine: true }`),
  'missing/handler.mjs': handler(`return { status: 404, body: 'no such thing' }`),
  'broken/handler.mjs': handler(`throw new Error('no table "users"')`),
  'busy/handler.mjs': BUSY,
  'busy/fn.config.json': JSON.stringify({ worker_pool: { enabled: true, max_workers: 1, max_queue: 0 } }),
  'light/handler.lua': `function handler() return 'light' end\n`,
  'left/handler.mjs': handler(`return 1`),
  'left/fn.config.json': JSON.stringify({ invoke: { routes: ['/mine'] } }),
  'right/handler.mjs': handler(`return 2`),
  'right/fn.config.json': JSON.stringify({ invoke: { routes: ['/mine'] }, timeout_ms: 'soon' }),
}

async function send(bed: ConsoleBed, path: string, count: number, status: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const answer = await fetch(bed.url + path)
    await answer.text()
    if (answer.status !== status) throw new Error(`${path}: ${answer.status}`)
  }
}

/** What is sent: 12 of 200, 5 + 2 of 404, 3 of 500, 1 of 200 and 4 of 429, 6 of 200 by lua. */
async function sendAll(t: Test, bed: ConsoleBed): Promise<void> {
  await send(bed, '/fine', 12, 200)
  await send(bed, '/missing', 5, 404)
  await send(bed, '/broken', 3, 500)
  await send(bed, '/light', 6, 200)
  await send(bed, '/nowhere', 2, 404)
  const held = fetch(`${bed.url}/busy`)
  const active = async (): Promise<number> => {
    const health = (await bed.gateway.inject('/_fn/health')).json() as {
      functions: { summary: { pool_active: number } }
    }
    return health.functions.summary.pool_active
  }
  while ((await active()) === 0) await wait(5)
  await send(bed, '/busy', 4, 429)
  writeFileSync(join(bed.tree.root, 'go'), '')
  const answer = await held
  t.equal(answer.status, 200)
  await answer.text()
}

/** Texts of a table by the text of the first cell; without sparklines, which have no title and give way when a table does not fit. */
async function readTable(page: Page, name: string): Promise<Record<string, string[]>> {
  const table = page.getByRole('region', { name, exact: true })
  const titles = await table.locator('thead th').allInnerTexts()
  const rows = await table.locator('tbody tr').all()
  const texts = await Promise.all(
    rows.map(async row => {
      const cells = await row.locator('td').allInnerTexts()
      return cells.map(text => text.trim()).filter((_, index) => titles[index]?.trim() !== '')
    }),
  )
  return Object.fromEntries(texts.map(([head = '', ...cells]) => [head, cells]))
}

const caption = (page: Page, title: string): Promise<string> =>
  page
    .locator('figure', { has: page.getByRole('heading', { name: title, exact: true }) })
    .locator('figcaption')
    .innerText()

/** True when a chart has the accent of the theme in it. */
function hasAccent(page: Page, title: string): Promise<boolean> {
  // In the browser's own words: the types of tests know no DOM.
  return page.evaluate(`(() => {
    const accent = getComputedStyle(document.documentElement).getPropertyValue('--accent').trim()
    const wanted = [1, 3, 5].map(at => Number.parseInt(accent.slice(at, at + 2), 16))
    const figure = [...document.querySelectorAll('figure')].find(one => one.querySelector('h2').innerText === '${title}')
    const canvas = figure.querySelector('canvas')
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true })
    copy.drawImage(canvas, 0, 0)
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height)
    for (let at = 0; at < data.length; at += 4) if (wanted.every((value, i) => data[at + i] === value)) return true
    return false
  })()`)
}

/** Every number of the page is one of those that were sent. */
async function checkNumbers(t: Test, page: Page, fine: number): Promise<void> {
  const total = fine + 21
  await page.getByText(`${total} requests in`).waitFor()
  const line = await page.getByRole('region', { name: 'State' }).innerText()
  t.match(line, `All 2 runtimes up. 1 route conflict. 1 warning. ${total} requests in`)
  t.match(line, /, 3 failed \(\d/)
  t.match(await caption(page, 'Throughput'), new RegExp(`^${total} requests, `))
  t.match(await caption(page, 'Errors'), /^7 of 4xx \([\d.]+ %\), 3 of 5xx \([\d.]+ %\), 4 throttled/)
  t.match(await caption(page, 'Latency'), /^p50 [\d.]+ m?s, p95 [\d.]+ m?s, p99 [\d.]+ m?s$/)
  t.match(await caption(page, 'Workers'), /^5 now, up to 5$/)
  t.equal(await caption(page, 'Cold starts'), '5 cold starts')
  t.equal(await caption(page, 'Queue'), 'Up to 0 waiting, no call waited')
  const runtimes = await readTable(page, 'Runtimes')
  t.match(runtimes.lua, ['up', '6', '0', '0', '0', /ms|s$/])
  t.match(runtimes.node, ['up', String(total - 8), '5', '3', '4', /ms|s$/])
  const slowest = await readTable(page, 'Slowest functions')
  t.same(Object.fromEntries(Object.entries(slowest).map(([name, [requests]]) => [name, requests])), {
    'fine node': String(fine),
    'missing node': '5',
    'broken node': '3',
    'busy node': '5',
    'light lua': '6',
  })
  const failing = await readTable(page, 'Failing functions')
  t.match(failing, {
    'broken node': ['0', '3', '0', /no table "users"/],
    'missing node': ['5', '0', '0', ''],
    'busy node': ['0', '0', '4', ''],
  })
  t.equal(Object.keys(failing).length, 3)
}

t.test(
  '[console/overview.3, console/overview.4, console/overview.5, console/overview.6, console/overview.7] every number is the number of requests that were sent',
  { skip: noBrowser },
  async t => {
    const bed = await makeConsoleBed(t, TREE, { hotReload: false })
    await sendAll(t, bed)
    await withPage(t, `${bed.url}/console`, async page => {
      await checkNumbers(t, page, 12)
      t.ok(await hasAccent(page, 'Cold starts'))
      await page.getByRole('combobox', { name: 'Theme' }).selectOption('contrast')
      t.ok(await hasAccent(page, 'Cold starts'), 'a chart has the colours of the theme')
      await page.getByRole('combobox', { name: 'Theme' }).selectOption('')
      await send(bed, '/fine', 7, 200)
      await checkNumbers(t, page, 19)
      await page.getByRole('link', { name: '1 h', exact: true }).click()
      await page.getByText('in the last hour').waitFor()
      t.match(page.url(), /\?range=1h$/)
      await checkNumbers(t, page, 19)
      await bed.tree.write({ 'new/handler.lua': `function handler() return 1 end\n` })
      await bed.gateway.reload()
      await page.getByText('8 functions').waitFor()
      await page.reload()
      await page.getByText('in the last hour').waitFor()
      await checkNumbers(t, page, 19)
      await page.getByRole('link', { name: '24 h', exact: true }).click()
      await page.getByText('in the last 24 hours').waitFor()
      await checkNumbers(t, page, 19)

      const problems = page.getByRole('region', { name: 'Warnings and conflicts' })
      const told = (await problems.innerText()).replaceAll('\n', ' ')
      t.match(
        told,
        /\/mine returns 409: 2 functions claim it with the same priority\. ROUTE_CONFLICT node\/left@default by its config, left\/fn\.config\.json node\/right@default/,
      )
      t.match(told, /timeout_ms must be an integer from 1 to 86400000, got "soon" \(string\)/)

      const box = page.getByRole('img', { name: /^Errors: 7 of 4xx/ })
      await box.focus()
      await page.keyboard.press('ArrowLeft')
      await page.getByText(/^\d\d:\d\d:\d\d: 4xx (?:–|\d+), 5xx (?:–|\d+), throttled (?:–|\d+)$/).waitFor()
      const [at] = (await caption(page, 'Errors')).split(': ')
      for (const title of ['Throughput', 'Latency', 'Queue', 'Workers', 'Cold starts'])
        t.equal((await caption(page, title)).split(': ')[0], at, `${title} shows the same instant`)
      await checkLooks(t, page, 'overview')

      await problems.getByRole('link', { name: 'right/fn.config.json' }).click()
      await page.waitForURL(/\/console\/functions\/node\/right@default\?tab=config$/)
    })
  },
)

t.test(
  '[console/overview.10] time axes have the same three labels or more, and every chart names its unit',
  { skip: noBrowser },
  async t => {
    const { url } = await makeConsoleBed(t, { 'light.lua': `function handler() return 1 end\n` })
    await (await fetch(`${url}/light`)).text()
    await withPage(t, `${url}/console`, async page => {
      // What is drawn on a canvas cannot be read from it.
      await page.addInitScript(`
      const drawn = new Map()
      const { fillText } = CanvasRenderingContext2D.prototype
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        if (/^\\d\\d:\\d\\d$/.test(text)) drawn.set(this.canvas, (drawn.get(this.canvas) ?? new Map()).set(text, x))
        return fillText.call(this, text, x, y)
      }
      globalThis.readAxes = () => [...document.querySelectorAll('canvas')].map(one => JSON.stringify([...(drawn.get(one) ?? [])].slice(-3)))
    `)
      for (const width of [1440, 1024, 390])
        for (const range of ['5m', '1h', '24h']) {
          await page.setViewportSize({ width, height: 900 })
          await page.goto(`${url}/console?range=${range}`)
          let axes: string[] = []
          while (axes.length !== 6 || axes.includes('[]')) axes = (await page.evaluate('readAxes()')) as string[]
          t.equal((JSON.parse(axes[0]!) as unknown[]).length, 3, `${range} at ${width} px: ${axes[0]}`)
          t.equal(new Set(axes).size, 1, `${range} at ${width} px: one axis`)
        }
      t.same(await page.locator('.chart-unit').allInnerTexts(), [
        'requests per second',
        'duration',
        'responses per 10 min',
        'calls waiting',
        'running',
        'starts per 10 min',
      ])
    })
  },
)

const FUNCTIONS = 2000

t.test(
  '[console/overview.8, console/overview.9] a tree without functions teaches, one of 2,000 makes few rows',
  { skip: noBrowser },
  async t => {
    const empty = await makeConsoleBed(t, {}, { hotReload: true })
    const big = await makeConsoleBed(
      t,
      Object.fromEntries(
        Array.from({ length: FUNCTIONS }, (_, i) => [`f${i}.lua`, 'function handler() return 1 end\n']),
      ),
      { runtimes: ['lua'], hotReload: false },
    )
    await withPage(
      t,
      `${empty.url}/console`,
      async page => {
        await page.getByRole('heading', { name: 'No functions yet' }).waitFor()
        t.match(await page.locator('main').innerText(), /fngw init hello -t python/)
        await checkLooks(t, page, 'overview-empty')
        const file = await page.locator('pre').last().innerText()
        t.notOk(existsSync(join(empty.tree.root, 'hello.mjs')))
        writeFileSync(join(empty.tree.root, 'hello.mjs'), file)
        await page.getByRole('heading', { name: 'No functions yet' }).waitFor({ state: 'hidden' })
        t.same(await (await fetch(`${empty.url}/hello`)).json(), { hello: 'world' }, 'what it teaches works')

        for (let i = 0; i < FUNCTIONS; i += 200) await fetch(`${big.url}/f${i}`)
        await page.goto(`${big.url}/console`)
        await page.getByText('10 requests in the last 5 minutes').waitFor()
        t.match(await page.locator('main').innerText(), /2,000 functions, 10 warm/)
        t.ok((await page.locator('tbody tr').count()) <= 1 + 10, 'the functions that are named are few')
      },
      // The runtime of the first function starts: until then the gateway is not healthy.
      { allowed: [/503 \(Service Unavailable\)/] },
    )
  },
)
