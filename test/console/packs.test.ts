import t from 'tap'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'
import { makeGatedTool } from '../helpers/gated-tool.ts'
import { TEST_PACKAGES } from '../helpers/npm-bed.ts'
import { startNpmRegistry } from '../helpers/npm-registry.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(280_000)

const TREE = {
  'left/handler.js': "const left = require('left')\nexports.handler = () => ({ left })\n",
  'left/package.json': { json: { dependencies: { left: '^1.0.0' } } },
  'wrong/handler.js': "\nrequire('lefft')\nexports.handler = () => 1\n",
  'packed/handler.js': "const left = require('left')\nexports.handler = () => ({ left })\n",
  'packed/fn.config.json': { json: { shared_deps: ['tools'] } },
  'plain/handler.js': 'exports.handler = () => 1\n',
  '.svc/packs/node/tools/package.json': { json: { dependencies: { left: '^2.0.0' } } },
}

t.test(
  '[console/packs.1, console/packs.2] installs under way, ended and failed, and shared packs',
  { skip: noBrowser },
  async t => {
    const registry = await startNpmRegistry(TEST_PACKAGES)
    t.teardown(() => registry.close())
    const tools = makeTree()
    t.teardown(tools.cleanup)
    const npm = makeGatedTool(tools.root, findOnPath('npm', process.env.PATH ?? '') as string, '*install*|*ci*')
    npm.close()
    const env = {
      ...process.env,
      FN_NPM_BIN: npm.path,
      npm_config_registry: registry.url,
      npm_config_cache: tools.path('cache'),
    }
    const { url } = await makeConsoleBed(t, TREE, { runtimes: ['node'], logLevel: 'silent', env })
    const empty = await makeConsoleBed(t, {}, { runtimes: ['lua'] })
    await withPage(
      t,
      `${url}/console/packs`,
      async page => {
        const installs = page.getByRole('region', { name: 'Installs' })
        const calls = ['left', 'wrong', 'packed'].map(async name => (await fetch(`${url}/${name}`)).text())
        await page.getByText('3 functions installing').waitFor()
        await installs.getByText('preparing: installing packages of').first().waitFor()
        npm.open()
        await page.getByText('1 function failed, 2 functions ready').waitFor()
        const text = await installs.innerText()
        t.match(text, /node\/wrong@default wrong\/handler\.js:2/)
        t.match(text, /E404/)
        const rows = await installs.locator('tbody tr').allInnerTexts()
        t.same(
          rows.map(row => row.split(/\s/).slice(0, 2)),
          [
            ['node/wrong@default', 'failed'],
            ['node/left@default', 'ready'],
            ['node/packed@default', 'ready'],
          ],
        )
        const pack = page.getByRole('region', { name: 'Shared packs' }).locator('tbody tr')
        t.match(await pack.innerText(), /^tools\s+node\s+installed\s+package\.json.*node\/packed@default/s)
        await Promise.all(calls)
        await checkLooks(t, page, 'packs')
        await page.goto(`${empty.url}/console/packs`)
        await page.getByRole('heading', { name: 'No shared packs' }).waitFor()
        await checkLooks(t, page, 'packs-empty')
      },
      { allowed: [/503 \(Service Unavailable\)/] },
    )
  },
)
