import type { Page, Route } from 'playwright-core'
import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const TREE = { 'hello/handler.mjs': 'export const handler = () => ({ hello: 1 })\n', 'hello/fn.config.json': '{}' }
const TOKEN = 'a-token-of-some-length'

t.test(
  '[console/console.3, console/console.6] pages by menu, keys, palette and address',
  { skip: noBrowser },
  async t => {
    const { url } = await makeConsoleBed(t, TREE)
    await withPage(t, `${url}/console`, async page => {
      await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
      await page.getByRole('link', { name: 'Functions', exact: true }).click()
      await page.getByRole('heading', { level: 1, name: 'Functions' }).waitFor()
      t.match(page.url(), /\/console\/functions$/)
      await page.keyboard.press('g')
      await page.keyboard.press('l')
      await page.getByRole('heading', { level: 1, name: 'Logs' }).waitFor()
      await page.goBack()
      await page.getByRole('heading', { level: 1, name: 'Functions' }).waitFor()
      await page.keyboard.press('Control+k')
      await page.keyboard.type('hel')
      await page.getByRole('option', { name: /hello/ }).waitFor()
      await page.keyboard.press('Enter')
      await page.waitForURL(/\/console\/functions\/node\/hello@default$/)
      await page.reload()
      t.match(page.url(), /\/console\/functions\/node\/hello@default$/)
      await page.keyboard.press('?')
      await page.getByRole('dialog', { name: 'Keys' }).waitFor()
      await page.keyboard.press('Escape')
      await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'hidden' })
      await page.goto(`${url}/console/nothing`)
      await page.getByRole('heading', { name: 'Page not found' }).waitFor()
    })
  },
)

t.test('[console/console.4, console/console.7] logging in with the token, and out', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE, { adminToken: TOKEN, consoleLoginApi: true })
  await withPage(
    t,
    `${url}/console`,
    async page => {
      const field = page.getByRole('textbox', { name: 'Admin token' })
      await field.fill('wrong')
      await page.getByRole('button', { name: 'Log in' }).click()
      await page.getByText('Wrong token.').waitFor()
      await checkLooks(t, page, 'login')
      await field.fill(TOKEN)
      await page.getByRole('button', { name: 'Log in' }).click()
      await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
      const kept = await page.evaluate('JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])')
      t.notMatch(kept, TOKEN, 'the token is kept nowhere')
      const elsewhere = (await page.context().browser()?.newContext())?.request
      await elsewhere?.post(`${url}/_fn/login`, { data: { token: TOKEN } })
      t.equal((await elsewhere?.get(`${url}/_fn/ui-state`))?.status(), 200)
      await page.getByRole('button', { name: 'Log out everywhere' }).click()
      await page.getByRole('textbox', { name: 'Admin token' }).waitFor()
      t.equal((await elsewhere?.get(`${url}/_fn/ui-state`))?.status(), 401)
    },
    { allowed: [/401 \(Unauthorized\)/] },
  )
})

t.test('[console/console.7] the theme is that of the system until one is chosen', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE)
  await withPage(
    t,
    `${url}/console`,
    async page => {
      const paper = () => page.evaluate('getComputedStyle(document.documentElement).backgroundColor')
      const choice = page.getByRole('combobox', { name: 'Theme' })
      await choice.waitFor()
      const dark = await paper()
      await page.emulateMedia({ colorScheme: 'light' })
      await page.locator('html[data-theme="light"]').waitFor({ state: 'attached' })
      const light = await paper()
      t.not(light, dark, 'it follows the system')
      await choice.selectOption('dark')
      t.equal(await paper(), dark)
      await page.reload()
      t.equal(await paper(), dark, 'what was chosen holds after a load')
      t.equal(await choice.inputValue(), 'dark')
      await choice.selectOption('')
      t.equal(await paper(), light)
    },
    { colorScheme: 'dark' },
  )
})

t.test('[console/console.5] a gateway that goes and comes back', { skip: noBrowser }, async t => {
  const { url, gateway, tree } = await makeConsoleBed(t, TREE)
  const away = { allowed: [/ERR_CONNECTION_|ERR_INCOMPLETE|ERR_EMPTY|503 \(/] }
  await withPage(
    t,
    `${url}/console`,
    async page => {
      await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
      await gateway.close()
      const bar = page.getByText('No connection to the gateway since')
      await bar.waitFor()
      await makeConsoleBed(t, {}, { functionsRoot: tree.root }, Number(new URL(url).port))
      await page.getByText('The gateway was restarted').waitFor()
      await bar.waitFor({ state: 'hidden' })
    },
    away,
  )
})

t.test('[console/console.9] nothing that happens while the page asks is missed', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE)
  const jobs = `${url}/_fn/jobs`
  const make = async (): Promise<string> => {
    const answer = await fetch(jobs, {
      method: 'POST',
      body: JSON.stringify({ name: 'hello', method: 'GET', delay_ms: 3_600_000 }),
      headers: { 'Content-Type': 'application/json' },
    })
    t.equal(answer.status, 201)
    return ((await answer.json()) as { id: string }).id
  }
  const cancel = async (id: string): Promise<void> => {
    t.equal((await fetch(`${jobs}/${id}`, { method: 'DELETE' })).status, 200)
  }

  const toState = (page: Page, state: string) =>
    page.getByRole('region', { name: 'Jobs' }).getByText(state, { exact: true })

  t.test('while an answer is on its way', async t => {
    const id = await make()
    await withPage(t, `${url}/console/jobs`, async page => {
      await toState(page, 'queued').waitFor()
      const network = await page.context().newCDPSession(page)
      await network.send('Network.enable')
      const told = new Promise(resolve => network.once('Network.eventSourceMessageReceived', resolve))
      // The answer is of before the job was canceled, and comes after the page heard of it.
      await page.route(
        `**/_fn/jobs/${id}`,
        async route => {
          const response = await route.fetch()
          await cancel(id)
          await told
          await route.fulfill({ response })
        },
        { times: 1 },
      )
      await page.getByText('GET /hello').click()
      await page.getByRole('strong').getByText('canceled', { exact: true }).waitFor()
    })
  })

  t.test('before it hears of events', async t => {
    const id = await make()
    await withPage(t, 'about:blank', async page => {
      const waiting = toState(page, 'queued')
      const canceled = new Promise<void>((resolve, reject) => {
        const late = async (route: Route): Promise<void> => {
          await waiting.waitFor()
          await cancel(id)
          resolve()
          await route.continue()
        }
        page.route('**/_fn/events?*', route => late(route).catch(reject), { times: 1 }).catch(reject)
      })
      await page.goto(`${url}/console/jobs`)
      await canceled
      await waiting.waitFor({ state: 'hidden' })
    })
  })
})
