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
      const answer = page.getByRole('region', { name: 'Its answer' })
      await answer.getByText('"did": "it"').waitFor()
      await answer.getByText('"trigger": "job"').waitFor()
      await page.getByRole('link', { name: 'node/work@default' }).waitFor()
      await checkLooks(t, page, 'job')

      await page.getByRole('link', { name: /^job-.*\.1$/ }).click()
      await page.getByRole('heading', { level: 1, name: /^Request job-/ }).waitFor()
      await page.getByRole('region', { name: 'Lines of the request' }).getByText('worked on it').waitFor()
      await page.getByRole('link', { name: /^job-/ }).click()
      await page.getByRole('heading', { level: 1, name: /^Job / }).waitFor()
      await page.getByRole('button', { name: 'Delete' }).click()
      const dialog = page.getByRole('dialog', { name: 'Delete this job?' })
      await dialog.getByText(/its answer of \d+ B are lost/).waitFor()
      await dialog.getByRole('button', { name: 'Keep' }).click()
      await dialog.waitFor({ state: 'hidden' })
      await page.getByRole('button', { name: 'Delete' }).click()
      await dialog.getByRole('button', { name: 'Delete' }).click()
      await page.getByRole('heading', { name: 'There are no jobs' }).waitFor()

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
      await page.getByRole('dialog').getByRole('button', { name: 'Cancel it' }).click()
      await page.getByRole('strong').getByText('canceled', { exact: true }).waitFor()

      for (let i = 0; i < 50; i++) await make({ name: 'work', delay_ms: 3_600_000 })
      await page.goto(`${url}/console/jobs`)
      await jobs.locator('tbody tr').nth(49).waitFor()
      t.equal(await jobs.locator('tbody tr').count(), 50)
      await page.getByRole('link', { name: 'Older ones' }).click()
      await jobs.getByText('failed', { exact: true }).waitFor()
      t.equal(await jobs.locator('tbody tr').count(), 2)
      await page.getByRole('link', { name: 'The newest' }).waitFor()
    })
  },
)

t.test('[console/jobs.3] who may not write sees why', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, TREE, { consoleWriteEnabled: false })
  await withPage(t, `${url}/console/try?path=/work`, async page => {
    const button = page.getByRole('button', { name: 'Run as a job' })
    t.ok(await button.isDisabled())
    t.match(await button.getAttribute('title'), /Reading only/)
  })
})
