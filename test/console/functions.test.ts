import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const OK = 'export const handler = () => ({ hello: 1 })\n'
const TREE = {
  'hello/handler.mjs': OK,
  'hello/v2/handler.mjs': OK,
  'shop/cart/handler.lua': 'function handler(event)\n  return { ok = true }\nend\nreturn handler\n',
  'broken/handler.mjs': 'export const handler = () => {\n  throw new Error("boom")\n}\n',
  'wrong/handler.mjs': OK,
  'wrong/fn.config.json': '{ "timeout_ms": "soon" }',
}

const ANSWERS_OF_ERRORS = { allowed: [/status of (400|404|409)/] }

t.test(
  '[console/functions.1, console/functions.2, console/functions.3] the list, its filters and its sorting in the address',
  { skip: noBrowser },
  async t => {
    const { url } = await makeConsoleBed(t, TREE)
    for (let i = 0; i < 3; i++) t.equal((await fetch(`${url}/hello`)).status, 200)
    t.equal((await fetch(`${url}/broken`)).status, 500)
    await withPage(t, `${url}/console/functions`, async page => {
      const row = (text: string) =>
        page.locator('tbody tr').filter({ has: page.getByRole('link', { name: text, exact: true }) })
      await page.getByText(/^\d functions$/).waitFor()
      await row('broken').getByText('failing').waitFor()
      t.match(await row('broken').innerText(), /1 \(100 %\)[\s\S]*broken\/handler\.mjs:2: Error: boom/)
      t.match(await row('wrong').innerText(), /1 warning/)
      t.match(await row('hello').innerText(), /\/hello/)
      await checkLooks(t, page, 'functions')

      await page.keyboard.press('/')
      await page.keyboard.type('boom')
      await page.getByText(/^1 of \d functions$/).waitFor()
      t.match(page.url(), /[?&]q=boom/)
      await page.getByRole('searchbox').fill('')
      await page.getByRole('combobox', { name: 'Runtime' }).selectOption('lua')
      await page.getByText(/^1 of \d functions$/).waitFor()
      await row('shop/cart').waitFor()
      await page.getByRole('combobox', { name: 'Runtime' }).selectOption('')
      await page.getByRole('combobox', { name: 'State' }).selectOption('failing')
      await page.getByRole('button', { name: 'Name' }).click()
      await page.reload()
      await page.getByText(/^1 of \d functions$/).waitFor()
      t.match(page.url(), /state=failing/)
      t.match(page.url(), /sort=-name/)
      t.equal(await page.getByRole('columnheader', { name: 'Name' }).getAttribute('aria-sort'), 'descending')
    })
  },
)

t.test('[console/functions.4] a function is made from the page', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE)
  await withPage(
    t,
    `${url}/console/functions`,
    async page => {
      await page.getByRole('button', { name: 'New function' }).click()
      const dialog = page.getByRole('dialog', { name: 'New function' })
      await dialog.getByRole('textbox', { name: 'Name' }).fill('hello')
      await dialog.getByRole('combobox', { name: 'Runtime' }).selectOption('node')
      await dialog.getByRole('button', { name: 'Create' }).click()
      await dialog.getByText('already exists').waitFor()
      await dialog.getByRole('textbox', { name: 'Name' }).fill('fresh')
      await dialog.getByRole('textbox', { name: 'Additional route' }).fill('/made/:name')
      await dialog.getByRole('button', { name: 'Create' }).click()
      await page.waitForURL(/\/console\/functions\/node\/fresh@default\?tab=code$/)
      await page.getByRole('textbox', { name: /^Code of fresh\// }).waitFor()
      t.equal((await fetch(`${url}/made/x`)).status, 200)
    },
    ANSWERS_OF_ERRORS,
  )
})

t.test('[console/functions.6] without functions, and without one that fits', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, { 'readme.txt': '' })
  await withPage(t, `${url}/console/functions?q=x`, async page => {
    await page.getByRole('heading', { name: 'No functions yet' }).waitFor()
    await checkLooks(t, page, 'functions-none')
  })
})

const MANY = 2000

t.test('[console/functions.5] 2,000 functions', { skip: noBrowser }, async t => {
  const entries = Object.fromEntries(Array.from({ length: MANY }, (_, i) => [`fn-${i}/handler.mjs`, OK]))
  const { url } = await makeConsoleBed(t, entries, { runtimes: ['node'] })
  await withPage(t, `${url}/console/functions?sort=-name`, async page => {
    await page.getByText('2,000 functions').waitFor()
    t.ok((await page.locator('tbody tr').count()) < 100, 'only the rows that are seen are made')
    t.equal(await page.locator('table').getAttribute('aria-rowcount'), String(MANY + 1))
    const ms: number[] = []
    for (let i = 0; i < 3; i++) {
      await page.reload()
      await page.getByText('2,000 functions').waitFor()
      // Since the navigation began; the element's own time in the page, not that of the driver.
      ms.push(Number(await page.evaluate("performance.getEntriesByName('functions listed')[0].startTime")))
    }
    t.comment(`2,000 functions are listed ${ms.map(Math.round).join(', ')} ms after the navigation`)
    await page.getByRole('searchbox').fill('fn-1234')
    await page.getByText('1 of 2,000 functions').waitFor()
    await page.getByRole('searchbox').fill('nothing')
    await page.getByRole('button', { name: 'Show all' }).click()
    await page.getByText('2,000 functions').waitFor()
    await page.getByRole('region', { name: 'Functions' }).evaluate(element => {
      const box = element as unknown as { scrollTop: number; scrollHeight: number }
      box.scrollTop = box.scrollHeight
    })
    await page.getByRole('link', { name: 'fn-0', exact: true }).waitFor()
    t.ok((await page.locator('tbody tr').count()) < 100)
  })
})
