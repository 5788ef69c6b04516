import t from 'tap'
import type { GatewayOptions } from '../../lib/index.ts'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'
import { startMember } from '../helpers/fleet-bed.ts'
import { startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'

t.setTimeout(280_000)

t.test(
  '[console/fleet.1, console/fleet.2, console/fleet.4, console/settings.3] two gateways, a rollout, and a gateway that leaves',
  { skip: noBrowser || WITHOUT_REDIS },
  async t => {
    const redis = await startRedis(t)
    const options: GatewayOptions = { storeUrl: redis.url, release: 'build-1', runtimes: ['node'] }
    const { url } = await makeConsoleBed(t, { 'hello.js': 'exports.handler = () => 1\n' }, options)
    const other = await startMember(t, redis, { release: 'build-2' })
    const { url: address } = await other.listen({ port: 0 })
    await withPage(t, `${url}/console`, async page => {
      await page.getByRole('link', { name: 'Fleet', exact: true }).waitFor()
      await page.keyboard.press('g')
      await page.keyboard.press('i')
      await page.getByRole('heading', { level: 1, name: 'Fleet' }).waitFor()
      await page.getByText('2 gateways: 2 ready. The store is up.').waitFor()
      const rollout = await page.getByRole('region', { name: 'Rollout' }).innerText()
      t.match(rollout, /build-2 \(newest\): 1 of 2 gateways\s+build-1: 1 of 2 gateways/)
      const rows = page.getByRole('region', { name: 'Gateways' }).locator('tbody tr')
      const [own, far] = await Promise.all(
        ['build-1', 'build-2'].map(release => rows.filter({ hasText: release }).innerText()),
      )
      t.match(own, /ready/)
      t.match(
        await page.getByRole('region', { name: 'State' }).innerText(),
        /This page is served by \S+\. Schedules run on .+\./,
      )
      t.match(far, address)
      t.match(far, /\d+\.\d\d of \d+/)
      await checkLooks(t, page, 'fleet')
      const [, id] = /served by (\S+)\. /.exec(await page.getByRole('region', { name: 'State' }).innerText())!
      await page.getByRole('link', { name: 'Settings', exact: true }).click()
      const switches = page.getByRole('region', { name: 'Switches' })
      await switches.getByText(`These are the switches of gateway ${id}. The other`).waitFor()
      await switches.getByRole('button', { name: 'Reset to settings' }).click()
      await switches.getByText(`the switches apply to gateway ${id} only`).waitFor()
      await page.getByRole('link', { name: 'Fleet', exact: true }).click()
      await other.close()
      await page.getByText(/^(1 gateway: 1 ready|2 gateways: 1 (ready|gone), 1 (ready|gone))/).waitFor()
      await page.getByRole('region', { name: 'Rollout' }).waitFor({ state: 'detached' })
    })
  },
)

/** Sends requests, each of which is answered. */
async function send(url: string, count: number): Promise<void> {
  for (let i = 0; i < count; i++) await (await fetch(url)).text()
}

t.test(
  '[console/overview.11, console/overview.12] the Overview sums the gateways of a fleet',
  { skip: noBrowser || WITHOUT_REDIS },
  async t => {
    const redis = await startRedis(t)
    const options: GatewayOptions = { storeUrl: redis.url, runtimes: ['node'], uiEnabled: true }
    // It knows the others from its first report.
    const [other, silent] = [await startMember(t, redis, options), await startMember(t, redis, { uiEnabled: false })]
    const { url } = await makeConsoleBed(
      t,
      {
        'hello/handler.js': 'exports.handler = () => 1\n',
        'broken.js': 'exports.handler = () => { throw new Error("planted") }\n',
      },
      options,
    )
    const { url: otherUrl } = await other.listen({ port: 0 })
    await send(`${url}/hello`, 3)
    await send(`${url}/broken`, 1)
    await send(`${otherUrl}/hello`, 4)
    await withPage(t, `${url}/console`, async page => {
      const main = page.getByRole('main')
      await page.getByText(/^Fleet: 8 requests in the last 5 minutes, 1 failed/).waitFor()
      await page.getByText('This gateway: Runtime node is up. No warnings.').waitFor()
      const scope = await page.getByRole('region', { name: 'Scope' }).innerText()
      t.match(scope, /the sum of 2 gateways\. All others are those of gateway \S+\. The fleet runs 0 calls now\./)
      t.match(scope, /Not in the sum: \S+, its console is off/)
      const text = await main.innerText()
      t.match(text, /8 requests, /)
      t.match(text, /0 of 4xx, 1 of 5xx/)
      t.match(text, /requests per second, fleet/)
      const workers = await page.getByRole('img', { name: /^Workers: 3 now, up to 3/ }).count()
      t.equal(workers, 1, 'workers of both gateways')
      const rowOf = (table: string, name: RegExp) =>
        page.getByRole('region', { name: table, exact: true }).locator('tbody tr').filter({ hasText: name })
      t.match(await rowOf('Slowest functions', /^hello/).innerText(), /hello\s+node\s+7\s/)
      t.match(await rowOf('Failing functions', /^broken/).innerText(), /0\s+1\s+0\s+.*planted/)
      t.match(await rowOf('Runtimes', /^node/).innerText(), /up\s+8\s/)
      await checkLooks(t, page, 'overview-fleet')
      await silent.close()
      await other.close()
      await page.getByText(/^Fleet: 4 requests in/).waitFor()
      await page.getByText('the sum of 1 gateway.').waitFor()
      t.equal(await page.getByText('Not in the sum').count(), 0)
    })
  },
)

t.test('[console/fleet.3] a gateway without a store has no such page in its menu', { skip: noBrowser }, async t => {
  const { url } = await makeConsoleBed(t, {}, { runtimes: ['lua'] })
  await withPage(t, `${url}/console/fleet`, async page => {
    await page.getByRole('heading', { name: 'Not in a fleet' }).waitFor()
    t.match(await page.locator('main').innerText(), /FN_STORE_URL=redis/)
    t.equal(await page.getByRole('link', { name: 'Fleet', exact: true }).count(), 0)
    await page.keyboard.press('?')
    const keys = page.getByRole('dialog', { name: 'Keys' })
    await keys.getByText('Settings').waitFor()
    t.equal(await keys.getByText('Fleet').count(), 0)
  })
})
