import { rmSync } from 'node:fs'
import t from 'tap'
import { createGateway } from '../../lib/index.ts'
import { buildConsole, checkLooks, makeConsoleBed, noBrowser, withPage } from '../helpers/console-bed.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(280_000)

/** One red pixel. */
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=='

const TREE = {
  'users/[id].js': `exports.handler = async event => {
    console.log('looked for', event.params.id)
    console.error('and complained')
    if (event.query.wait) await new Promise(resolve => setTimeout(resolve, Number(event.query.wait)))
    return { id: event.params.id, q: event.query.q ?? null, header: event.headers['x-mine'] ?? null, big: '<b>not bold</b>' }
  }\n`,
  'post.notes.js': `exports.handler = async event => ({
    status: 201,
    headers: { 'content-type': 'text/plain' },
    body: event.headers['content-type'].split(';')[0] + ' ' + event.body,
  })\n`,
  'picture.js': `exports.handler = async () => ({ headers: { 'content-type': 'image/png' }, is_base64: true, body_base64: '${PNG}' })\n`,
  // Goes on when there is a file, so that the test says when the second piece comes, whichever worker has the call.
  'slow.js': `const { existsSync } = require('node:fs')
    const told = async () => { while (!existsSync(__dirname + '/.go')) await new Promise(done => setTimeout(done, 5)) }
    exports.handler = async () => {
      return { headers: { 'content-type': 'text/plain' }, body: (async function* () { yield 'first piece'; await told(); yield ' second piece' })() }
    }\n`,
  'fails.js': `exports.handler = async () => { console.error('about to fail'); throw new Error('on purpose') }\n`,
  'public/hello.txt': 'a file of the assets\n',
}

t.test(
  '[console/try.1, console/try.2, console/try.3, console/try.5, console/try.9] a request is built, sent, and its answer shown',
  { skip: noBrowser },
  async t => {
    const { url } = await makeConsoleBed(t, TREE)
    await withPage(
      t,
      `${url}/console/try?path=/users/7`,
      async page => {
        const answer = page.getByRole('region', { name: 'Response' })
        const send = page.getByRole('button', { name: /^Send/ })
        await page.getByRole('textbox', { name: /^Headers/ }).fill('X-Mine: yes\nAuthorization: Bearer s3cret')
        await page.getByRole('combobox', { name: 'Path' }).fill('/users/7?q=a%20b')
        await send.click()
        await answer.getByText('"q": "a b"').waitFor()
        await answer.getByText('"header": "yes"').waitFor()
        await answer.getByText('<b>not bold</b>').waitFor()
        await answer.getByText('looked for 7').waitFor()
        await answer.getByText('and complained').waitFor()
        await answer.getByText('Queue').waitFor()
        await answer.getByText('Worker').waitFor()
        await answer.getByRole('link', { name: 'node/users/[id]@default' }).waitFor()
        t.match(await answer.locator('a[href*="/console/requests/"]').textContent(), /^[\w-]+$/)
        t.match(page.url(), /path=%2Fusers%2F7%3Fq%3Da/)
        t.notMatch(page.url(), 's3cret', 'no secret in the address')
        await checkLooks(t, page, 'try')
        // A reload, and the back button, bring it back.
        await page.reload()
        t.equal(await page.getByRole('combobox', { name: 'Path' }).inputValue(), '/users/7?q=a%20b')

        await page.getByRole('combobox', { name: 'Method' }).selectOption('POST')
        await page.getByRole('combobox', { name: 'Path' }).fill('/notes')
        await page.getByRole('textbox', { name: /^Headers/ }).fill('')
        await page.getByRole('radio', { name: 'JSON' }).check()
        await page.getByRole('textbox', { name: 'Body' }).fill('{ "a": ')
        await page.getByText('the body is not JSON').waitFor()
        t.ok(await send.isDisabled())
        await page.getByRole('textbox', { name: 'Body' }).fill('{ "a": 1 }')
        await page.getByRole('textbox', { name: 'Body' }).press('Control+Enter')
        await answer.getByText('application/json { "a": 1 }').waitFor()
        await answer.getByText('201', { exact: true }).waitFor()

        await page.getByRole('radio', { name: 'Form' }).check()
        await page.getByRole('button', { name: 'Add field' }).click()
        await page.getByRole('textbox', { name: 'Name of field 1' }).fill('upload')
        await page
          .getByLabel('File of field 1')
          .setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('of the file') })
        await send.click()
        await answer.getByText('of the file').waitFor()
        await answer.getByText('multipart/form-data').waitFor()

        await page.goto(`${url}/console/try?path=/picture`)
        await send.click()
        await answer.getByText('image/png 1 × 1').waitFor()

        await page.goto(`${url}/console/try?path=/fails`)
        await send.click()
        await answer.getByText('500', { exact: true }).waitFor()
        await answer.getByText('about to fail').waitFor()
        await answer.getByText('Total').waitFor()
        await answer.locator('a[href*="/console/requests/"]').waitFor()
        t.match(await answer.getByRole('region', { name: 'Stack' }).textContent(), /fails\.js:1/)
      },
      { allowed: [/50\d \(/] },
    )
  },
)

t.test('[console/try.3] what no function answers is asked of the URL itself', { skip: noBrowser }, async t => {
  const config = { json: { assets: { directory: 'public' } } }
  const { url } = await makeConsoleBed(t, { ...TREE, 'fn.config.json': config })
  await withPage(
    t,
    `${url}/console/try?path=/hello.txt`,
    async page => {
      const answer = page.getByRole('region', { name: 'Response' })
      const send = page.getByRole('button', { name: /^Send/ })
      await send.click()
      await answer.getByText('a file of the assets').waitFor()
      await answer.getByText('no function: sent to the URL').waitFor()
      await page.goto(`${url}/console/try?path=//other.example/x`)
      await send.click()
      await answer.getByText('404', { exact: true }).waitFor()
    },
    { allowed: [/404 \(/] },
  )
})

t.test(
  '[console/try.4] a streamed answer is shown piece by piece, and can be stopped',
  { skip: noBrowser },
  async t => {
    const { url, tree } = await makeConsoleBed(t, TREE)
    await withPage(t, `${url}/console/try?path=/slow`, async page => {
      const answer = page.getByRole('region', { name: 'Response' })
      const send = page.getByRole('button', { name: /^Send/ })
      await send.click()
      await answer.getByText('first piece', { exact: true }).waitFor()
      await answer.getByText('receiving').waitFor()
      t.equal(await answer.getAttribute('aria-busy'), 'true')
      tree.write({ '.go': '' })
      await answer.getByText('first piece second piece').waitFor()
      await answer.getByText('in 2 pieces').waitFor()
      rmSync(tree.path('.go'))
      await send.click()
      await answer.getByText('first piece', { exact: true }).waitFor()
      await page.getByRole('button', { name: 'Stop' }).click()
      await answer.getByText('stopped').waitFor()
      t.equal(await answer.getAttribute('aria-busy'), 'false')
      tree.write({ '.go': '' })
    })
  },
)

t.test('[console/try.7] what was tried is kept without secrets and found again', { skip: noBrowser }, async t => {
  for (const isWriting of [true, false]) {
    const { url } = await makeConsoleBed(t, TREE, { consoleWriteEnabled: isWriting })
    await withPage(t, `${url}/console/try?path=/users/1`, async page => {
      const history = page.getByRole('region', { name: 'History' })
      await page.getByRole('textbox', { name: /^Headers/ }).fill('Authorization: Bearer s3cret')
      await page.getByRole('button', { name: /^Send/ }).click()
      await history.getByRole('link', { name: 'GET /users/1' }).waitFor()
      await history.getByText(isWriting ? 'stored by the gateway' : 'stored in this browser').waitFor()
      await page.goto(`${url}/console/try?path=/users/2`)
      await history.getByRole('link', { name: 'GET /users/1' }).click()
      await page.waitForURL(/users%2F1/)
      const path = page.getByRole('combobox', { name: 'Path' })
      // The page is drawn a moment after it has its address.
      while ((await path.inputValue()) === '/users/2') await page.evaluate('new Promise(requestAnimationFrame)')
      t.equal(await path.inputValue(), '/users/1')
      const kept = `${await page.evaluate('JSON.stringify({ ...localStorage })')} ${await (await fetch(`${url}/_fn/ui-state`)).text()}`
      t.match(kept, 'users/1')
      t.notMatch(kept, 's3cret')
      await history.getByRole('button', { name: 'Clear history' }).click()
      await history.waitFor({ state: 'hidden' })
    })
  }
})

t.test(
  '[console/try.8] with a port of its own the console reaches functions, and says what it cannot',
  { skip: noBrowser },
  async t => {
    buildConsole()
    const tree = makeTree(TREE)
    t.teardown(tree.cleanup)
    const gateway = await createGateway({
      functionsRoot: tree.root,
      runtimes: ['node'],
      uiEnabled: true,
      controlPort: 0,
    })
    t.teardown(() => gateway.close())
    const { control } = await gateway.listen({ port: 0 })
    await withPage(t, `${control!.url}/console/try?path=/users/7`, async page => {
      const answer = page.getByRole('region', { name: 'Response' })
      const send = page.getByRole('button', { name: /^Send/ })
      await send.click()
      await answer.getByText('"id": "7"').waitFor()
      await page.goto(`${control!.url}/console/try?path=/nothing`)
      await send.click()
      await answer.getByText(/no function serves this, and the console has a separate port/).waitFor()
    })
  },
)
