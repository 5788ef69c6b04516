import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Locator, Page } from 'playwright-core'
import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const SECRET = 'planted-secret-4711'
const CODE =
  'export const handler = event => {\n  return { status: 200, body: { one: 1, env: Object.keys(event.env) } }\n}\n'
const TREE = {
  'fn.config.json': '{ "max_concurrency": 7 }',
  'hello/handler.mjs': CODE,
  'hello/fn.config.json': '{ "timeout_ms": 1000, "schedule": { "every_seconds": 3600 } }\n',
  'hello/fn.env.json': JSON.stringify({ OPEN: 'seen', API_TOKEN: { value: SECRET, is_secret: true } }),
  'bad/handler.mjs': 'export const handler = () => {\n  console.log("began")\n  throw new Error("boom")\n}\n',
  'needy/handler.mjs': CODE,
  'needy/package.json': '{ "dependencies": { "left": "file:./nothing" } }',
  'rain/handler.lua': 'function handler(event)\n  return { ok = true }\nend\nreturn handler\n',
}
const REFUSALS = { allowed: [/status of (400|404|409)/] }

const pageOf = (url: string, key: string, query = ''): string => `${url}/console/functions/${key}${query}`

/** Types a whole new text; the editor keeps only the lines that are seen in the document. */
async function write(page: Page, editor: Locator, text: string): Promise<void> {
  await editor.click()
  await page.keyboard.press('Control+a')
  await page.keyboard.insertText(text)
}

async function save(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Save…' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Save', exact: true }).click()
}

t.test(
  '[console/function.2, console/function.3, console/function.4] code is edited, compared and saved; two writers',
  { skip: noBrowser },
  async t => {
    const { url, tree, gateway } = await makeConsoleBed(t, TREE)
    const file = join(tree.root, 'hello/handler.mjs')
    await withPage(
      t,
      pageOf(url, 'node/hello@default'),
      async page => {
        const scripts: string[] = []
        page.on('request', request => {
          if (request.url().endsWith('.js')) scripts.push(request.url())
        })
        await page.getByRole('heading', { name: 'Throughput' }).waitFor()
        await page.getByRole('link', { name: 'Code' }).click()
        const editor = page.getByRole('textbox', { name: 'Code of hello/handler.mjs' })
        await editor.waitFor()
        t.equal(scripts.length, 1, 'the editor came when it was opened')
        await checkLooks(t, page, 'function-code')

        await write(page, editor, CODE.replace('one: 1', 'two: 2'))
        await page.getByText('Unsaved changes.').waitFor()
        await page.getByRole('link', { name: 'Versions' }).click()
        await page.getByRole('link', { name: 'Code' }).click()
        await editor.getByText('two: 2').waitFor()
        await write(page, editor, CODE.replace('one: 1,', 'two: 2'))
        await editor.locator('.cm-lintRange-warning').first().waitFor()
        await write(page, editor, CODE.replace('one: 1', 'two: 2'))
        await editor.locator('.cm-lintRange-warning').waitFor({ state: 'hidden' })
        await page.getByRole('button', { name: 'Save…' }).click()
        const dialog = page.getByRole('dialog', { name: 'Save hello/handler.mjs' })
        await dialog.getByText('one: 1').waitFor()
        await dialog.getByText('two: 2').waitFor()
        await checkLooks(t, page, 'function-difference')
        await dialog.getByRole('button', { name: 'Save', exact: true }).click()
        await page.getByText(/^Saved at/).waitFor()
        t.match(await (await fetch(`${url}/hello`)).json(), { two: 2 })

        await write(page, editor, CODE.replace('one: 1', 'mine: 3'))
        const theirs = CODE.replace('one: 1', 'theirs: 4')
        writeFileSync(file, theirs)
        await save(page)
        const conflict = page.getByRole('dialog', { name: 'The file has changed' })
        await conflict.getByText('theirs: 4').waitFor()
        await conflict.getByText('mine: 3').waitFor()
        t.equal(readFileSync(file, 'utf8'), theirs, 'nothing was overwritten')
        await conflict.getByRole('button', { name: 'Overwrite with mine' }).click()
        await page.getByText(/^Saved at/).waitFor()
        t.match(await (await fetch(`${url}/hello`)).json(), { mine: 3 })

        await write(page, editor, CODE.replace('one: 1', 'lost: 5'))
        writeFileSync(file, CODE.replace('one: 1', 'again: 6'))
        await gateway.reload()
        await page.getByText('The file was changed by someone else.').waitFor()
        await page.getByRole('button', { name: 'Compare' }).click()
        await conflict.getByText('again: 6').waitFor()
        await conflict.getByRole('button', { name: 'Use their version' }).click()
        await editor.getByText('again: 6').waitFor()
        t.equal(await editor.getByText('lost: 5').count(), 0)
        writeFileSync(file, CODE.replace('one: 1', 'last: 7'))
        await gateway.reload()
        await editor.getByText('last: 7').waitFor()
      },
      REFUSALS,
    )
  },
)

t.test('[console/function.13] what is typed is what is saved, however busy the page', { skip: noBrowser }, async t => {
  const { url, tree, gateway } = await makeConsoleBed(t, TREE)
  const typed = `// ${'abcdefghijklmnopqrstuvwxyz0123456789'.repeat(6)}`.slice(0, 200)
  await withPage(t, pageOf(url, 'node/hello@default', '?tab=code'), async page => {
    const editor = page.getByRole('textbox', { name: 'Code of hello/handler.mjs' })
    for (const delay of [0, 10]) {
      await editor.click()
      await page.keyboard.press('Control+Home')
      let isTyping = true
      const traffic = (async () => {
        while (isTyping) await Promise.all([fetch(`${url}/hello`), gateway.reload()])
      })()
      const before = readFileSync(join(tree.root, 'hello/handler.mjs'), 'utf8')
      await page.keyboard.type(typed, { delay })
      isTyping = false
      await traffic
      await save(page)
      await page.getByText(/^Saved at/).waitFor()
      t.equal(
        readFileSync(join(tree.root, 'hello/handler.mjs'), 'utf8'),
        `${typed}${before}`,
        `${delay} ms between keys`,
      )
    }
  })
})

t.test('[console/function.5, console/function.9] errors lead to their line', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE)
  await withPage(t, pageOf(url, 'lua/rain@default', '?tab=code'), async page => {
    const editor = page.getByRole('textbox', { name: 'Code of rain/handler.lua' })
    await write(page, editor, 'function handler(event)\n  return {\nend\n')
    await save(page)
    const note = editor.getByRole('note')
    t.match(await note.innerText(), /rain\/handler\.lua:3/)
    await page.getByRole('list', { name: 'Problems' }).getByRole('link', { name: 'rain/handler.lua:3' }).waitFor()

    await page.goto(pageOf(url, 'node/bad@default', '?tab=requests'))
    await page.getByRole('heading', { name: 'No requests yet' }).waitFor()
    t.equal((await fetch(`${url}/bad?x=1`)).status, 500)
    await page.getByRole('link', { name: /^\w{12}-\w+$/ }).waitFor()
    await page.getByRole('cell', { name: 'GET /bad' }).waitFor()
    await page.getByRole('link', { name: 'Logs', exact: true }).last().click()
    await page.getByText('began').waitFor()
    await page.getByRole('link', { name: 'Errors' }).click()
    await page
      .getByRole('region', { name: 'Lines of the log' })
      .getByRole('link', { name: 'bad/handler.mjs:3' })
      .first()
      .click()
    t.match(page.url(), /tab=code&line=3$/)
    const bad = page.getByRole('textbox', { name: 'Code of bad/handler.mjs' })
    t.match(await bad.getByRole('note').innerText(), /Error: boom/)
    await checkLooks(t, page, 'function-error')
    await write(page, bad, 'export const handler = () => 1\n')
    await save(page)
    await page.getByText(/^Saved at/).waitFor()
    await page.getByRole('list', { name: 'Problems' }).waitFor({ state: 'hidden' })
  })
})

t.test('[console/function.6, console/function.7] the config as form and as JSON', { skip: noBrowser }, async t => {
  const { url, tree } = await makeConsoleBed(t, TREE)
  const config = (): unknown => JSON.parse(readFileSync(join(tree.root, 'hello/fn.config.json'), 'utf8'))
  await withPage(
    t,
    pageOf(url, 'node/hello@default', '?tab=config'),
    async page => {
      const field = page.getByRole('spinbutton', { name: 'timeout_ms', exact: true })
      t.equal(await field.inputValue(), '1000')
      await checkLooks(t, page, 'function-config')
      await field.fill('-5')
      await save(page)
      await page.locator('[data-field=timeout_ms]').getByText('timeout_ms must be').waitFor()
      t.match(config(), { timeout_ms: 1000 })
      await page.getByRole('link', { name: 'JSON' }).click()
      const editor = page.getByRole('textbox', { name: 'Text of hello/fn.config.json' })
      await editor.getByText('-5', { exact: true }).waitFor()
      t.match(await editor.getByRole('note').innerText(), /timeout_ms must be/)
      await write(page, editor, '{\n  "timeout_ms" 2\n}')
      await editor.getByRole('note').waitFor()
      t.ok(await page.getByRole('button', { name: 'Save…' }).isDisabled())
      await write(page, editor, '{\n  "timeout_ms": 2000,\n  "invoke": { "summary": "said" }\n}')
      await page.getByRole('link', { name: 'Form' }).click()
      t.equal(await field.inputValue(), '2000')
      await page.locator('[data-field="invoke.methods"]').getByRole('checkbox', { name: 'PUT' }).check()
      await save(page)
      await page.getByText(/^Saved at/).waitFor()
      t.same(config(), { timeout_ms: 2000, invoke: { summary: 'said', methods: ['PUT'] } })
      t.equal((await fetch(`${url}/hello`)).status, 405, 'it holds')
      await page.getByRole('link', { name: 'Effective values' }).click()
      await page.getByRole('row', { name: 'max_concurrency 7 fn.config.json', exact: true }).waitFor()
      await page.getByRole('row', { name: 'timeout_ms 2000 hello/fn.config.json', exact: true }).waitFor()
      await checkLooks(t, page, 'function-holds')
    },
    REFUSALS,
  )
})

t.test('[console/function.14] a file that other functions read names them', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, {
    'shop/list.mjs': CODE,
    'shop/post.cart.mjs': CODE,
    'shop/deep/item.mjs': CODE,
    'hello/handler.mjs': CODE,
  })
  await withPage(t, pageOf(url, 'node/shop/list@default', '?tab=config'), async page => {
    const note = page.getByText('Changes to shop/fn.config.json also apply to 2 other functions:')
    t.match(await note.innerText(), /functions: shop\/deep\/item, shop\/post\.cart\.$/)
    await page.getByRole('spinbutton', { name: 'timeout_ms', exact: true }).fill('900')
    await page.getByRole('button', { name: 'Save…' }).click()
    await page.getByRole('dialog').getByRole('link', { name: 'shop/deep/item' }).waitFor()
    await checkLooks(t, page, 'function-shared')
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await page.getByRole('link', { name: 'Env', exact: true }).click()
    await page.getByText('Changes to shop/fn.env.json also apply to 1 other function: shop/post.cart.').waitFor()
    await page.getByRole('link', { name: 'shop/post.cart' }).click()
    await page.getByRole('heading', { name: 'shop/post.cart', level: 1 }).waitFor()
    await page.goto(pageOf(url, 'node/hello@default', '?tab=config'))
    await page.getByRole('spinbutton', { name: 'timeout_ms', exact: true }).waitFor()
    t.equal(await page.getByText('also apply to').count(), 0)
  })
})

t.test('[console/function.15] the address of a function may have its name alone', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, {
    'boom.mjs': CODE,
    'team/orders.mjs': CODE,
    'twice.mjs': CODE,
    'twice.lua': 'return 1',
  })
  await withPage(
    t,
    pageOf(url, 'boom'),
    async page => {
      for (const [name, runtime] of [
        ['boom', 'node'],
        ['team/orders', 'node'],
      ] as const) {
        await page.goto(pageOf(url, name))
        await page.getByRole('heading', { name, level: 1 }).waitFor()
        await page.getByText(`${runtime}, ${name}.mjs`).waitFor()
        await page.getByRole('heading', { name: 'Throughput' }).waitFor()
      }
      await page.goto(pageOf(url, 'twice'))
      await page
        .getByText(/several runtimes|node.*lua|lua.*node/)
        .first()
        .waitFor()
      await page.goto(pageOf(url, 'none/such'))
      await page.getByRole('heading', { name: 'Function not found' }).waitFor()
    },
    REFUSALS,
  )
})

t.test('[console/function.8] secrets are never in the document', { skip: noBrowser }, async t => {
  const { url, tree } = await makeConsoleBed(t, TREE)
  const env = (): unknown => JSON.parse(readFileSync(join(tree.root, 'hello/fn.env.json'), 'utf8'))
  await withPage(t, pageOf(url, 'node/hello@default', '?tab=env'), async page => {
    const bodies: Promise<string>[] = []
    page.on('response', response => {
      if (response.url().includes('/_fn/function')) bodies.push(response.text().catch(() => ''))
    })
    const row = (name: string) => page.getByRole('row', { name: new RegExp(`^${name}`) })
    await row('OPEN').getByText('seen').waitFor()
    await row('API_TOKEN').getByText('secret, hidden').waitFor()
    await checkLooks(t, page, 'function-env')

    await row('OPEN').getByRole('button', { name: 'Replace' }).click()
    await page.getByRole('textbox', { name: 'Value' }).fill('other')
    await page.getByRole('button', { name: 'Set' }).click()
    await row('OPEN').getByText('other').waitFor()
    t.match(env(), { API_TOKEN: { value: SECRET, is_secret: true } }, 'the secret stays')

    await row('API_TOKEN').getByRole('button', { name: 'Replace' }).click()
    const value = page.getByRole('dialog').locator('[name=value]')
    t.equal(await value.getAttribute('type'), 'password')
    t.equal(await value.inputValue(), '', 'not even masked')
    await value.fill('typed-secret-0815')
    await page.getByRole('button', { name: 'Set' }).click()
    await page.getByRole('dialog').waitFor({ state: 'hidden' })
    t.match(env(), { API_TOKEN: { value: 'typed-secret-0815', is_secret: true } })

    await row('OPEN').getByRole('button', { name: 'Delete' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
    await row('OPEN').waitFor({ state: 'hidden' })
    t.notMatch(env(), { OPEN: 'other' })
    const seen = `${await page.content()}${(await Promise.all(bodies)).join('')}`
    t.notOk(seen.includes(SECRET) || seen.includes('typed-secret-0815'), 'neither in the document nor in an answer')
  })
})

t.test(
  '[console/function.1, console/function.10, console/function.12] schedule, jobs, packages, and deleting',
  { skip: noBrowser },
  async t => {
    const { url, gateway } = await makeConsoleBed(t, TREE)
    await withPage(
      t,
      pageOf(url, 'node/hello@default', '?tab=schedule'),
      async page => {
        await page.getByText('every 60 min').waitFor()
        await page.getByRole('button', { name: 'Run now' }).click()
        await page.getByText('Returned status 200').waitFor()
        await checkLooks(t, page, 'function-schedule')
        await page.getByRole('link', { name: 'Jobs' }).last().click()
        await page.getByRole('heading', { name: 'No jobs' }).waitFor()
        await gateway.jobs.create({ name: 'hello' })
        await page.getByRole('cell', { name: 'done' }).waitFor()
        await page.getByRole('link', { name: 'Dependencies' }).click()
        await page.getByRole('heading', { name: 'No packages' }).waitFor()
        t.match(page.url(), /tab=dependencies/)
        t.equal((await fetch(`${url}/needy`)).status, 500)
        await page.goto(pageOf(url, 'node/needy@default', '?tab=dependencies'))
        const tab = page.getByRole('region', { name: 'Dependencies' })
        await tab.getByText('left: file:./nothing is not in the functions root').waitFor()
        await tab.getByText('move the package into the functions root').waitFor()
        await page.goto(pageOf(url, 'node/hello@default', '?tab=dependencies'))

        await page.getByRole('button', { name: 'Delete…' }).click()
        const dialog = page.getByRole('dialog', { name: 'Delete hello?' })
        await dialog.getByText('/hello', { exact: true }).waitFor()
        await dialog.getByRole('button', { name: 'Keep' }).click()
        t.equal((await fetch(`${url}/hello`)).status, 200)
        await page.getByRole('button', { name: 'Delete…' }).click()
        await dialog.getByRole('button', { name: 'Delete' }).click()
        await page.waitForURL(/\/console\/functions$/)
        t.equal((await fetch(`${url}/hello`)).status, 404)
        await page.goBack()
        await page.getByRole('heading', { name: 'Function not found' }).waitFor()
      },
      REFUSALS,
    )
  },
)

t.test('[console/function.11] a gateway that is only read', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE, { consoleWriteEnabled: false })
  await withPage(t, pageOf(url, 'node/hello@default', '?tab=code'), async page => {
    const editor = page.getByRole('textbox', { name: 'Code of hello/handler.mjs' })
    t.equal(await editor.getAttribute('aria-readonly'), 'true')
    await page.getByText(/^Read only\./).waitFor()
    for (const name of ['Save…', 'Delete…']) {
      const button = page.getByRole('button', { name })
      t.ok(await button.isDisabled(), name)
      t.match(await button.getAttribute('title'), /Read only/, name)
    }
    await page.getByRole('link', { name: 'Env' }).click()
    t.ok(await page.getByRole('button', { name: 'New key' }).isDisabled())
    await page.getByRole('link', { name: 'Config' }).click()
    t.ok(await page.getByRole('spinbutton', { name: 'timeout_ms', exact: true }).isDisabled())
    await page.getByRole('link', { name: 'Schedule', exact: true }).click()
    t.ok(await page.getByRole('button', { name: 'Run now' }).isDisabled())
    await page.goto(`${url}/console/functions`)
    t.ok(await page.getByRole('button', { name: 'New function' }).isDisabled())
  })
})
