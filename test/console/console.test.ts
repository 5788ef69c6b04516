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
      await page.getByRole('heading', { name: 'There is no such page' }).waitFor()
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
      await page.getByText('Not right.').waitFor()
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
      const bar = page.getByText('The gateway has not answered since')
      await bar.waitFor()
      await makeConsoleBed(t, {}, { functionsRoot: tree.root }, Number(new URL(url).port))
      await page.getByText('The gateway was started anew').waitFor()
      await bar.waitFor({ state: 'hidden' })
    },
    away,
  )
})
