import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, resizeWindow, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const TREE = {
  'says.js': `exports.handler = async event => {
    for (let i = 0; i < Number(event.query.times ?? 1); i++) console.log('said', event.query.what, i)
    return { ok: true }
  }\n`,
  'fails.js': `exports.handler = async () => { console.error('<b>about to fail</b>'); throw new Error('on purpose') }\n`,
}

t.test(
  '[console/logs.1, console/logs.2, console/logs.3, console/logs.4, console/logs.6] lines as they come, filters, pause, and everything of one request',
  { skip: noBrowser },
  async t => {
    const { url } = await makeConsoleBed(t, TREE)
    const ask = async (path: string): Promise<string> => {
      const answer = await fetch(url + path)
      await answer.text()
      return answer.headers.get('x-request-id') ?? ''
    }
    await ask('/says?what=before&times=40')
    await withPage(t, `${url}/console/logs`, async page => {
      const lines = page.getByRole('region', { name: 'Lines' })
      const row = (text: string) => lines.getByText(text, { exact: true })
      await row('said before 39').waitFor()
      await ask('/says?what=followed')
      await row('said followed 0').waitFor()
      const failed = await ask('/fails')
      await ask('/nothing-here')
      await lines.getByText(/^GET \/nothing-here → 404 in /).waitFor()
      t.equal(await lines.getByText(/_fn\/logs/).count(), 0, 'what the console asks is not among it')
      await checkLooks(t, page, 'logs')

      // Who looks back is not pulled away, and hears how much came.
      await lines.evaluate('document.querySelector(".table").scrollTop = 0')
      await page.getByText(/^Paused\. 0 newer lines/).waitFor()
      await ask('/says?what=meanwhile&times=3')
      await page.getByText(/^Paused\. 4 newer lines/).waitFor()
      t.equal(await lines.evaluate('document.querySelector(".table").scrollTop'), 0)
      t.equal(await row('said meanwhile 2').count(), 0)
      await page.getByRole('button', { name: 'Resume' }).click()
      await row('said meanwhile 2').waitFor()
      await page.getByRole('button', { name: 'Pause' }).waitFor()

      await page.getByRole('combobox', { name: 'Level' }).selectOption('error')
      await row('said meanwhile 2').waitFor({ state: 'hidden' })
      await lines.getByText(/^GET \/fails → 50\d in /).waitFor()
      await page.getByRole('button', { name: 'Remove filter: level: error' }).click()
      await row('said meanwhile 2').waitFor()
      await page.getByRole('textbox', { name: 'Function' }).fill('fails')
      await page.waitForURL(/fn=fails/)
      await row('<b>about to fail</b>').waitFor()
      t.equal(await lines.getByText('said').count(), 0)
      await page.reload()
      await row('<b>about to fail</b>').waitFor()
      await page.getByRole('searchbox', { name: 'Search the lines' }).fill('ABOUT fail')
      t.equal(await lines.locator('tbody tr').count(), 1)
      await lines.locator('tbody tr').click({ position: { x: 4, y: 4 } })
      const dialog = page.getByRole('dialog', { name: 'Line' })
      await dialog.getByText('stderr').waitFor()
      await dialog.getByRole('link', { name: failed }).click()

      await page.getByRole('heading', { level: 1, name: `Request ${failed}` }).waitFor()
      await page.getByText('HTTP request.', { exact: true }).waitFor()
      const left = page.getByRole('region', { name: 'Lines of the request' })
      await left.getByText('<b>about to fail</b>').waitFor()
      await left
        .getByText(/on purpose/)
        .first()
        .waitFor()
      await page.getByRole('link', { name: 'node/fails@default' }).waitFor()
      await page.getByText('/fails', { exact: true }).first().waitFor()
      await checkLooks(t, page, 'request')
      for (const [id, cause] of [
        ['schedule-1', 'Scheduled run.'],
        ['ping-1', 'keep_warm ping.'],
        ['job-1-1-000000000000.1', 'Attempt of job'],
      ] as const) {
        await page.goto(`${url}/console/requests/${id}`)
        await page.getByText(cause).waitFor()
      }
      await page.goto(`${url}/console/requests/none-such`)
      await page.getByRole('heading', { name: 'No log lines for this request' }).waitFor()
    })
  },
)

t.test('[console/logs.5] a gateway that comes back is followed again', { skip: noBrowser }, async t => {
  const { url, gateway, tree } = await makeConsoleBed(t, TREE)
  await withPage(
    t,
    `${url}/console/logs`,
    async page => {
      const lines = page.getByRole('region', { name: 'Lines' })
      await fetch(`${url}/says?what=first`)
      await lines.getByText('said first 0', { exact: true }).waitFor()
      await gateway.close()
      // The bar of the frame says it too.
      await page
        .locator('.log-state')
        .getByText(/Reconnecting\./)
        .waitFor()
      t.equal(await lines.getByText('said first 0', { exact: true }).count(), 1, 'what was read stays')
      await makeConsoleBed(t, {}, { functionsRoot: tree.root }, Number(new URL(url).port))
      await fetch(`${url}/says?what=second`)
      await lines.getByText('said second 0', { exact: true }).waitFor()
    },
    { allowed: [/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE|ERR_EMPTY|ERR_CONNECTION_RESET/] },
  )
})

t.test(
  '[console/logs.1, console/console.10] an error is one row, and long texts leave the actions in view',
  { skip: noBrowser },
  async t => {
    const long = 'x'.repeat(400)
    const { url } = await makeConsoleBed(t, {
      'fails/handler.js': `exports.handler = async () => { throw new Error('no order\\n  { "id": 7 }\\n${long}') }\n`,
      'fails/fn.config.json': '{ "schedule": { "every_seconds": 3600 } }',
    })
    await (await fetch(`${url}/fails`)).text()
    await withPage(t, `${url}/console/logs?file=error`, async page => {
      const row = page.getByRole('region', { name: 'Lines' }).locator('tbody tr')
      const more = row.getByText(/^\+\d lines$/)
      await more.waitFor()
      t.equal(await row.count(), 1)
      for (const width of [1440, 390]) {
        await resizeWindow(page, { width, height: 800 })
        const [cell, mark] = await Promise.all([row.locator('td.long').boundingBox(), more.boundingBox()])
        t.ok(
          mark !== null && cell !== null && mark.x + mark.width <= cell.x + cell.width,
          `the number of further lines is in view at ${width} px`,
        )
      }
      await row.getByText(/^GET \/fails: .*no order/).click()
      const text = page.getByRole('dialog').getByRole('region', { name: 'Text' })
      t.match(await text.innerText(), `no order\n  { "id": 7 }\n${long}`, 'white space is kept')
      await resizeWindow(page, { width: 1440, height: 800 })
      await page.goto(`${url}/console/scheduler`)
      await page.getByRole('button', { name: /^Run now/ }).click()
      const error = page.getByRole('cell', { name: /^no order/ })
      t.match(await error.getAttribute('title'), long)
      for (const width of [1440, 1024, 390]) {
        await resizeWindow(page, { width, height: 800 })
        const box = await page.getByRole('button', { name: /^Run now/ }).boundingBox()
        t.ok(box !== null && box.x + box.width <= width, `the button is in view at ${width} px`)
      }
    })
  },
)
