import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

t.test(
  '[console/settings.1, console/settings.2, console/settings.3] settings with their sources, and switches that are turned',
  { skip: noBrowser },
  async t => {
    const bed = await makeConsoleBed(t, {}, { runtimes: ['lua'], defaultTimeoutMs: 3500, consoleWriteEnabled: false })
    const token = 'a-token-of-some-length'
    const withToken = await makeConsoleBed(t, {}, { runtimes: ['lua'], adminToken: token, consoleLoginApi: false })
    await withPage(t, `${bed.url}/console/settings`, async page => {
      const rows = page.locator('.settings li')
      const first = page.getByRole('heading', { name: 'Changed' }).locator('xpath=..')
      await first.waitFor()
      const { settings } = (await bed.gateway.inject('/_fn/settings')).json() as { settings: unknown[] }
      t.equal(await rows.count(), settings.length, 'every setting is there')
      const text = (await first.innerText()).replaceAll('\n', ' ')
      t.match(text, /FN_DEFAULT_TIMEOUT_MS .*3500 ms options\.defaultTimeoutMs; default 2500 ms/)
      t.ok(await page.getByRole('checkbox', { name: /Local connections only/ }).isDisabled())
      await page.getByText('Read only.').waitFor()
      await checkLooks(t, page, 'settings')

      await page.keyboard.press('/')
      await page.keyboard.type('no such setting')
      await page.getByText(/^0 settings of \d+\.$/).waitFor()
      await page.getByRole('searchbox').fill('FN_NAMESPACE_DEPTH')
      await page.getByText(/^1 setting of/).waitFor()
      t.match(page.url(), /\?q=FN_NAMESPACE_DEPTH$/)
      t.match(await rows.innerText(), /FN_NAMESPACE_DEPTH/)

      await page.goto(`${withToken.url}/console/settings`)
      const write = page.getByRole('checkbox', { name: /Write access without the admin token/ })
      await write.click()
      await page.getByRole('dialog').getByText('Only the admin token will be able to change anything').waitFor()
      await page.getByRole('button', { name: 'Turn it' }).click()
      await page.getByText('Read only.').waitFor()
      t.notOk(await write.isChecked())
      const state = await withToken.gateway.inject('/_fn/ui-state')
      t.match(state.json(), { write_enabled: false })
      await page.goto(`${withToken.url}/console/login`)
      await page.getByRole('textbox', { name: 'Admin token' }).fill(token)
      await page.getByRole('button', { name: 'Log in' }).click()
      await page.getByRole('link', { name: 'Settings' }).click()
      await page.getByRole('button', { name: 'Reset to settings' }).click()
      await page.getByRole('checkbox', { name: /Write access without the admin token/, checked: true }).waitFor()
      t.match((await withToken.gateway.inject('/_fn/ui-state')).json(), { write_enabled: true })
    })
  },
)
