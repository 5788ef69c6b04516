import type { Page } from 'playwright-core'
import t from 'tap'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'

t.setTimeout(280_000)

const TREE = {
  'hello/handler.mjs': 'export const handler = () => ({ hello: 1 })\n',
  'light/handler.lua': `function handler() return 'light' end\n`,
  // Every call but the first is refused while it runs: it has one place and no queue, and calls itself.
  'narrow/handler.mjs': `export const handler = async event => {
  const { host } = event.headers
  return { status: (await fetch('http://' + host + '/narrow')).status === 429 ? 200 : 500 }
}
`,
  'narrow/fn.config.json': JSON.stringify({ worker_pool: { enabled: true, max_workers: 1, max_queue: 0 } }),
}

/** A row of a table by its first cell. */
async function cellsOf(page: Page, table: string, first: string): Promise<string[]> {
  const row = page.getByRole('region', { name: table, exact: true }).locator('tbody tr', { hasText: first }).first()
  return (await row.locator('td').allInnerTexts()).map(text => text.trim())
}

t.test(
  '[console/health.1, console/health.4, console/health.2, console/health.3] processes, calls, and a daemon that is killed',
  { skip: noBrowser },
  async t => {
    const { url, gateway } = await makeConsoleBed(t, TREE)
    for (let i = 0; i < 3; i++) await (await fetch(`${url}/hello`)).text()
    await (await fetch(`${url}/light`)).text()
    const narrow = await fetch(`${url}/narrow`)
    t.equal(narrow.status, 200)
    const readDaemon = async () => {
      const { runtimes } = (await gateway.inject('/_fn/workers')).json() as {
        runtimes: Record<string, { daemons: { pid: number; restarts: number }[] }>
      }
      return runtimes.node!.daemons[0]!
    }
    await withPage(
      t,
      `${url}/console/health`,
      async page => {
        await page.getByRole('heading', { name: 'Workers' }).waitFor()
        const hello = await cellsOf(page, 'Workers', 'node/hello@default')
        t.same(hello.slice(0, 4), ['node/hello@default', 'idle', '0', '3'])
        t.match(hello[4], /MiB$/)
        t.same((await cellsOf(page, 'Workers', 'lua/light')).slice(0, 5), ['lua/light@default', 'idle', '0', '1', '–'])
        t.same(await cellsOf(page, 'Slots', 'node/narrow'), ['node/narrow@default', '0 of 1', '0', '1', '0'])
        t.match(await page.getByRole('region', { name: 'Gateway' }).innerText(), `Process\n${process.pid}\n`)
        t.match(await page.getByRole('region', { name: 'Checks' }).innerText(), /\d+ of \d+ checks passed/)
        await checkLooks(t, page, 'health')

        const { pid } = await readDaemon()
        t.equal((await cellsOf(page, 'Daemons', 'node'))[6], String(pid))
        process.kill(pid, 'SIGKILL')
        const restarted = page.locator('tr', { hasText: 'node' }).locator('td:nth-child(5)', { hasText: /^1$/ })
        await restarted.waitFor()
        t.not((await cellsOf(page, 'Daemons', 'node'))[6], String(pid))

        await page.getByRole('searchbox').fill('light')
        await page
          .getByRole('region', { name: 'Workers' })
          .locator('tr', { hasText: 'hello' })
          .waitFor({ state: 'hidden' })
        t.match(page.url(), /\?q=light$/)
      },
      { allowed: [/503 \(Service Unavailable\)/] },
    )
  },
)
