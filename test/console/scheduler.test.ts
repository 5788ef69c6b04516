import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const config = (schedule: object, more: object = {}) => ({ json: { runtime: 'node', schedule, ...more } })

const TREE = {
  'report/handler.js': `let runs = 0\nexports.handler = async () => ({ status: 200, body: String(++runs) })\n`,
  'report/fn.config.json': config({ enabled: true, cron: '30 7 * * *', timezone: 'Asia/Tokyo' }),
  'broken/handler.js': `exports.handler = async () => { throw new Error('nothing to report') }\n`,
  'broken/fn.config.json': config({ enabled: true, every_seconds: 86400 }),
  'warm/handler.js': 'exports.handler = async () => ({})\n',
  'warm/fn.config.json': { json: { runtime: 'node', keep_warm: { enabled: true, min_warm: 1 } } },
}

t.test(
  '[console/scheduler.1, console/scheduler.2, console/scheduler.3] what runs when, and running it now',
  { skip: noBrowser },
  async t => {
    const { url } = await makeConsoleBed(t, TREE)
    await withPage(t, `${url}/console/scheduler?key=node/report@default`, async page => {
      const next = page.getByRole('region', { name: 'Next runs' })
      await next.getByText('30 7 * * * in Asia/Tokyo').waitFor()
      const times = next.getByText(/T07:30:00\+09:00/)
      await times.nth(4).waitFor()
      t.equal(await times.count(), 5)
      const schedules = page.getByRole('region', { name: 'Schedules' })
      const rowOf = (key: string) => schedules.locator('tbody tr').filter({ hasText: key })
      await rowOf('node/report').getByText('never').waitFor()
      await page.getByRole('button', { name: 'Run now: node/report@default' }).click()
      await page.getByText(/^node\/report@default ran in .*: status 200$/).waitFor()
      await rowOf('node/report').getByText('200', { exact: true }).waitFor()
      await page.getByRole('button', { name: 'Run now: node/broken@default' }).click()
      await page.getByText(/^node\/broken@default ran in .*: /).waitFor()
      await rowOf('node/broken').locator('.error').first().waitFor()
      t.equal(await rowOf('node/broken').getAttribute('data-state'), 'failing')
      const warm = page.getByRole('region', { name: 'Kept warm' })
      await warm.getByText('node/warm@default').waitFor()
      await warm.getByText('every 45 s').waitFor()
      await warm.getByText('warm', { exact: true }).waitFor()
      await checkLooks(t, page, 'scheduler')
      await rowOf('node/broken').getByText('every 24 h').click()
      await page.waitForURL(/key=node%2Fbroken/)
      await next.getByRole('heading', { name: /Next runs of node\/broken@default/ }).waitFor()
    })
  },
)

t.test('[console/scheduler.4] nothing to run, and nobody who may', { skip: noBrowser }, async t => {
  const empty = await makeConsoleBed(t, {})
  await withPage(t, `${empty.url}/console/scheduler`, async page => {
    await page.getByRole('heading', { name: 'No schedules' }).waitFor()
    await page.getByRole('heading', { name: 'No functions are kept warm' }).waitFor()
  })
  const { url } = await makeConsoleBed(t, TREE, { consoleWriteEnabled: false })
  await withPage(t, `${url}/console/scheduler`, async page => {
    const run = page.getByRole('button', { name: 'Run now: node/report@default' })
    await run.waitFor()
    t.ok(await run.isDisabled())
    t.match(await run.getAttribute('title'), /Read only/)
  })
})
