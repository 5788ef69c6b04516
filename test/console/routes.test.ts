import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const HANDLER = 'exports.handler = async () => ({})\n'

function makeEntries(): Record<string, string> {
  const entries: Record<string, string> = {
    'users/[id].js': HANDLER,
    'users/me.js': HANDLER,
    'dup.js': HANDLER,
    'dup.lua': 'return { handler = function() return {} end }\n',
    '_hidden.js': HANDLER,
    'wide/handler.js': HANDLER,
    'wide/fn.config.json': '{ "name": "wide", "invoke": { "routes": ["/users/me"] } }',
  }
  for (let i = 0; i < 300; i++) entries[`many/route-${String(i).padStart(3, '0')}.js`] = HANDLER
  return entries
}

t.test(
  '[console/routes.1, console/routes.2, console/routes.3] who answers, who lost, and the table',
  { skip: noBrowser },
  async t => {
    const { url, tree, gateway } = await makeConsoleBed(t, makeEntries())
    await withPage(t, `${url}/console/routes`, async page => {
      const who = page.getByRole('region', { name: 'Route lookup' })
      const path = who.getByRole('textbox', { name: 'Path' })
      await path.fill('/users/me')
      await who.getByText('GET /users/me is served by users/me.js (node): route /users/me.').waitFor()
      await who.getByText(/users\/\[id\]\.js on \/users\/:id: \/users\/me is more specific/).waitFor()
      await who.getByText(/wide\/handler\.js on \/users\/me: an unforced config route never takes/).waitFor()
      t.match(page.url(), /path=%2Fusers%2Fme/)
      await checkLooks(t, page, 'routes')
      await who.getByRole('combobox', { name: 'Method' }).selectOption('POST')
      await who.getByText('POST /users/me is served by wide/handler.js').waitFor()
      await who.getByText(/users\/me\.js on \/users\/me: it handles GET only/).waitFor()
      await path.fill('/users/8')
      await who.getByText('POST /users/8 is not served: 405').waitFor()
      await who.getByRole('combobox', { name: 'Method' }).selectOption('GET')
      await path.fill('/hidden')
      await who.getByText('GET /hidden is not served: 404').waitFor()
      await who.getByText(/_hidden\.js: /).waitFor()
      await path.fill('/%ff')
      await who.getByText('GET /%ff is not served: 400').waitFor()
      await path.fill('/users/7')
      await who.getByText('with id = "7"').waitFor()
      await page.reload()
      await who.getByText('with id = "7"').waitFor()
      // A file that comes changes the answer.
      tree.write({ 'users/7.js': HANDLER })
      await gateway.reload()
      await who.getByText('GET /users/7 is served by users/7.js (node): route /users/7.').waitFor()

      const table = page.getByRole('region', { name: 'Routes', exact: true })
      await table.getByText('conflict: not served').first().waitFor()
      t.ok((await table.locator('tbody tr').count()) < 60, 'only rows that are seen are made')
      const search = page.getByRole('searchbox', { name: 'Search the routes' })
      await page.locator('h1').click()
      await page.keyboard.press('/')
      t.ok(await search.evaluate('this === undefined || document.activeElement.type === "search"'))
      await search.fill('route-299')
      await page.getByText(/^1 of 30\d claims$/).waitFor()
      await table.getByRole('link', { name: 'many/route-299' }).waitFor()
      await table.getByText('/many/route-299').click()
      await who.getByText('GET /many/route-299 is served by many/route-299.js').waitFor()
      t.match(page.url(), /q=route-299/)
      await who.getByRole('link', { name: 'Try it' }).click()
      await page.waitForURL(/\/console\/try\?.*route-299/)
    })
  },
)

t.test('[console/routes.4] an empty tree says what to write', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, {})
  await withPage(t, `${url}/console/routes`, async page => {
    await page.getByRole('heading', { name: 'No routes yet' }).waitFor()
  })
})
