import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createOpenApiStep } from '../../lib/http/docs-page.ts'
import { inject } from '../../lib/http/inject.ts'
import { createGateway } from '../../lib/index.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { makeTree } from '../helpers/tree.ts'

async function serve(t: Test) {
  const { root, cleanup } = makeTree({ 'hello.js': 'export const handler = () => 1\n' })
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env })
  t.teardown(() => gateway.close())
  return { root, gateway }
}

t.test('[http/openapi.7] the document is made once and need not be sent again', async t => {
  const { gateway, root } = await serve(t)
  const ask = (headers: Record<string, string> = {}) => gateway.inject({ url: '/openapi.json', headers })
  const first = await ask()
  const { etag } = first.headers
  t.match(first.headers, { etag: /^"[\w-]{22}"$/, 'cache-control': 'no-cache', 'content-type': 'application/json' })
  t.ok((await ask({ host: 'other.example' })).body.equals(first.body))
  for (const known of [etag!, `W/${etag}`, `"x", ${etag}`, '*']) {
    const again = await ask({ 'if-none-match': known })
    t.match([again.status, again.body.length, again.headers.etag], [304, 0, etag], known)
  }
  t.equal((await ask({ 'if-none-match': '"x"' })).status, 200)
  writeFileSync(join(root, 'new.js'), 'export const handler = () => 1\n')
  await gateway.reload()
  const changed = await ask({ 'if-none-match': etag! })
  t.equal(changed.status, 200)
  t.not(changed.headers.etag, etag)
})

t.test('[http/openapi.4, http/openapi.7] hints are read once, and a file that cannot be read has none', async t => {
  const tree = makeTree({ 'a.js': '// @summary First\n', 'long.js': `// @summary Long\n${'x'.repeat(50_000)}` })
  t.teardown(tree.cleanup)
  const functions = ['a', 'long', 'missing'].map(name =>
    makeFn({ name, key: name, entryPath: tree.path(`${name}.js`) }),
  )
  let asked = 0
  const step = createOpenApiStep({
    functions,
    routes: () => {
      asked += 1
      return functions.map(fn => ({ pattern: `/${fn.name}`, owners: [{ fn, methods: ['GET'] }] }))
    },
    schemaOf: () => null,
    publicBaseUrl: null,
    internal: [],
    isClaimed: false,
    info: { title: 't', version: '1', description: '' },
  })
  const { handle } = makePublic({}, { before: [step] })
  const ask = async () => (await inject(handle, { url: '/openapi.json' })).json()
  const all = await Promise.all([ask(), ask(), ask()])
  t.equal(asked, 1, 'three at once are one')
  t.same(all[0], all[1])
  t.match(all[0], {
    paths: {
      '/a': { get: { summary: 'GET First' } },
      '/long': { get: { summary: 'GET Long' } },
      '/missing': { get: { summary: 'GET invoke node/missing' } },
    },
  })
  tree.write({ 'a.js': '// @summary Second\n' })
  t.same(await ask(), all[0], 'what was read stays while the catalog is in force')
  for (const [method, url] of [
    ['POST', '/openapi.json'],
    ['GET', '/openapi.jsonx'],
  ] as const)
    t.equal((await inject(handle, { method, url })).status, 404)
})

t.test('[http/openapi.7] a document that cannot be made is a 500, for everybody who asks', async t => {
  const step = createOpenApiStep({
    functions: [],
    routes: () => {
      throw new Error('secret')
    },
    schemaOf: () => null,
    publicBaseUrl: null,
    internal: [],
    isClaimed: false,
    info: { title: 't', version: '1', description: '' },
  })
  const { handle } = makePublic({}, { before: [step] })
  for (let i = 0; i < 2; i++) {
    const answer = await inject(handle, { url: '/openapi.json' })
    t.equal(answer.status, 500)
    t.same(answer.json(), { error: 'gateway exception' })
  }
})
