import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const TREE = {
  'work.js': `exports.handler = async event => (console.log('worked on', event.query.what), { did: event.query.what ?? 'nothing', trigger: event.context.trigger?.type })\n`,
  'fails.js': `exports.handler = async () => { throw new Error('on purpose') }\n`,
}

t.test(
  '[console/jobs.1, console/jobs.2, console/jobs.3, console/jobs.4, console/jobs.5] a job from Try to its end',
  { skip: noBrowser },
  async t => {
    const { url } = await makeConsoleBed(t, TREE)
    const make = async (fields: object): Promise<void> => {
      const body = JSON.stringify({ method: 'GET', ...fields })
      const answer = await fetch(`${url}/_fn/jobs`, {
        method: 'POST',
        body,
        headers: { 'Content-Type': 'application/json' },
      })
      t.equal(answer.status, 201)
      await answer.text()
    }
    await withPage(t, `${url}/console/try?path=${encodeURIComponent('/work?what=it')}`, async page => {
      await page.getByRole('button', { name: 'Run as a job' }).click()
      await page.getByRole('heading', { level: 1, name: /^Job / }).waitFor()
      const answer = page.getByRole('region', { name: 'Result' })
      await answer.getByText('"did": "it"').waitFor()
      await answer.getByText('"trigger": "job"').waitFor()
      await page.getByRole('link', { name: 'node/work@default' }).waitFor()
      await checkLooks(t, page, 'job')

      await page.getByRole('link', { name: 'Attempt 1' }).click()
      await page.getByRole('heading', { level: 1, name: /^Request job-/ }).waitFor()
      await page.getByRole('region', { name: 'Lines of the request' }).getByText('worked on it').waitFor()
      await page.getByRole('link', { name: /^job-/ }).click()
      await page.getByRole('heading', { level: 1, name: /^Job / }).waitFor()
      await page.getByRole('button', { name: 'Delete' }).click()
      const dialog = page.getByRole('dialog', { name: 'Delete this job?' })
      await dialog.getByText(/and its result \(\d+ B\)/).waitFor()
      await dialog.getByRole('button', { name: 'Keep' }).click()
      await dialog.waitFor({ state: 'hidden' })
      await page.getByRole('button', { name: 'Delete' }).click()
      await dialog.getByRole('button', { name: 'Delete' }).click()
      await page.getByRole('heading', { name: 'No jobs yet' }).waitFor()

      // What comes while it is looked at is seen.
      await make({ name: 'fails' })
      const jobs = page.getByRole('region', { name: 'Jobs' })
      await jobs.getByText('failed', { exact: true }).waitFor()
      await make({ name: 'work', delay_ms: 3_600_000 })
      await jobs.getByText('queued', { exact: true }).waitFor()
      await checkLooks(t, page, 'jobs')
      await page.getByRole('combobox', { name: 'State' }).selectOption('queued')
      await jobs.getByText('failed', { exact: true }).waitFor({ state: 'hidden' })
      t.match(page.url(), /state=queued/)
      await jobs.getByText('GET /work').click()
      await page.getByText(/runs in (?:60|59) min|runs in 1 h/).waitFor()
      await page.getByRole('button', { name: 'Cancel' }).click()
      await page.getByRole('dialog').getByRole('button', { name: 'Cancel job' }).click()
      await page.getByRole('strong').getByText('canceled', { exact: true }).waitFor()

      for (let i = 0; i < 50; i++) await make({ name: 'work', delay_ms: 3_600_000 })
      await page.goto(`${url}/console/jobs`)
      await jobs.locator('tbody tr').nth(49).waitFor()
      t.equal(await jobs.locator('tbody tr').count(), 50)
      await page.getByRole('link', { name: 'Older' }).click()
      await jobs.getByText('failed', { exact: true }).waitFor()
      t.equal(await jobs.locator('tbody tr').count(), 2)
      await page.getByRole('link', { name: 'Newest' }).waitFor()
    })
  },
)

t.test(
  '[console/jobs.2, console/jobs.6, console/jobs.7] failed jobs run again, one edited and all at once',
  { skip: noBrowser },
  async t => {
    const { url, gateway } = await makeConsoleBed(t, TREE)
    const ended = (): Promise<void> =>
      new Promise(resolve => {
        const stop = gateway.on('job', ({ state }) => {
          if (state !== 'failed' && state !== 'done') return
          stop()
          resolve()
        })
      })
    for (const what of ['one', 'two']) {
      const over = ended()
      await gateway.jobs.create({ name: 'fails', query: { what }, headers: { authorization: 'Bearer s3cret' } })
      await over
    }
    await withPage(t, `${url}/console/jobs`, async page => {
      const rows = page.getByRole('region', { name: 'Jobs' }).locator('tbody tr')
      await page.getByRole('button', { name: 'Retry 2 failed jobs' }).click()
      await page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click()
      await page.getByText('Created 2 jobs.').waitFor()
      await rows.nth(3).waitFor()
      t.equal(await rows.count(), 4)

      await rows.nth(3).getByRole('link').first().click()
      const attempts = page.getByRole('region', { name: 'Attempts' })
      await attempts.getByText(/on purpose/).waitFor()
      const input = page.getByRole('region', { name: 'Input' })
      await input.getByText('"what": "one"').waitFor()
      t.match(await input.textContent(), /<hidden>/)
      await checkLooks(t, page, 'failed job')
      await input.getByRole('button', { name: 'Edit and run again' }).click()
      const text = input.getByRole('textbox', { name: 'Input as JSON' })
      const edited = (await text.inputValue()).replace('"one"', '"three"')
      await text.fill(`${edited},`)
      await input.getByRole('button', { name: 'Run with this input' }).click()
      await input.getByText(/^The input is not JSON: /).waitFor()
      await text.fill(edited)
      await input.getByRole('button', { name: 'Run with this input' }).click()
      await input.getByText('"what": "three"').waitFor()
      await page.getByRole('button', { name: 'Run again', exact: true }).waitFor()
    })
  },
)

t.test('[console/jobs.3] who may not write sees why', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE, { consoleWriteEnabled: false })
  await withPage(t, `${url}/console/try?path=/work`, async page => {
    const button = page.getByRole('button', { name: 'Run as a job' })
    t.ok(await button.isDisabled())
    t.match(await button.getAttribute('title'), /Read only/)
  })
})
