import t, { type Test } from 'tap'
import { ApiClient } from '../../bin/api-client.ts'
import { runOpen } from '../../bin/open-command.ts'
import type { Output } from '../../bin/output.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(180_000)

async function serve(t: Test, options: GatewayOptions = {}) {
  const { root, cleanup } = makeTree({ 'hello.js': '' })
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, ...options })
  t.teardown(() => gateway.close())
  return (await gateway.listen({ port: 0 })).url
}

async function open(url: string, env: Record<string, string>) {
  const printed: string[] = []
  const opened: string[] = []
  const api = new ApiClient({ url, token: null })
  const output = { result: (line: string) => printed.push(line), note: () => {} } as unknown as Output
  await runOpen({ output, env, publicApi: api, controlApi: api, open: address => opened.push(address) })
  return { printed, opened }
}

t.test('[bin/openapi.3] the documentation is opened and its address printed', async t => {
  const url = await serve(t)
  t.same(await open(url, { DISPLAY: ':0' }), { printed: [`${url}/docs`], opened: [`${url}/docs`] })
  const isShown = process.platform !== 'linux'
  t.same(await open(url, {}), { printed: [`${url}/docs`], opened: isShown ? [`${url}/docs`] : [] })
})

t.test('[bin/openapi.4] neither page, or nobody there', async t => {
  const url = await serve(t, { docsEnabled: false })
  await t.rejects(open(url, {}), { message: /serves neither \/docs nor \/console: FN_DOCS_ENABLED=1/ })
  await t.rejects(open('http://127.0.0.1:1', {}), { message: /no gateway answers at http:\/\/127\.0\.0\.1:1/ })
})
