import { writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import type { Warning } from '../../lib/core/errors.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

t.setTimeout(180_000)

const ECHO =
  'export const handler = event => ({ status: 200, headers: { "content-type": "application/json" }, body: event.body || "{}" })\n'
const VALIDATE = { json: { invoke: { validate: true } } }
const SCHEMA = {
  json: {
    params: { properties: { id: { type: 'integer' } } },
    query: { properties: { page: { type: 'integer' } } },
    headers: { properties: { 'X-Kind': { enum: ['a'] } } },
    body: { type: 'object', required: ['name'] },
    responses: { 200: { type: 'object', properties: { name: { type: 'string' } } } },
  },
}
const TREE: Record<string, TreeEntry> = {
  'users/fn.config.json': VALIDATE,
  'users/get.[id].js': ECHO,
  'users/get.[id].schema.json': SCHEMA,
  'users/post.js': ECHO,
  'users/post.schema.json': SCHEMA,
  'free.js': ECHO,
  'free.schema.json': SCHEMA,
}

async function serve(t: Test, tree: Record<string, TreeEntry>, options: GatewayOptions = {}) {
  const { root, path, cleanup } = makeTree(tree)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, ...options })
  t.teardown(() => gateway.close())
  const warnings: Warning[] = []
  gateway.on('warning', warning => warnings.push(warning))
  const ask = async (method: string, url: string, payload?: string, headers: Record<string, string> = {}) => {
    const answer = await gateway.inject({
      method: method as 'GET',
      url,
      headers,
      ...(payload !== undefined && { payload }),
    })
    return [answer.status, answer.text()]
  }
  return { gateway, ask, warnings, path }
}

t.test('[validation/request-schema.9] HTTP requests are checked where the function asks for it', async t => {
  const { gateway, ask } = await serve(t, TREE)
  t.same(gateway.warnings, [])
  t.same(await ask('GET', '/users/7?page=2'), [200, '{}'])
  t.same(await ask('GET', '/users/x'), [400, '{"error":"params.id must be of type integer, got \\"x\\" (string)"}'])
  t.match(await ask('GET', '/users/7?page=x'), [400, /query\.page/])
  t.match(await ask('HEAD', '/users/7?page=x'), [400])
  t.match(await ask('GET', '/users/7', undefined, { 'x-kind': 'b' }), [400, /headers\.x-kind must be one of/])
  t.same(await ask('POST', '/users', '{"name":"Kim"}'), [200, '{"name":"Kim"}'])
  t.match(await ask('POST', '/users', '{}'), [400, /body\.name is required/])
  t.match(await ask('POST', '/users'), [400, /body must be of type object, got null/])
  t.match(await ask('POST', '/users', 'x', { 'content-type': 'text/csv' }), [415, /Content-Type/])
  t.same(await ask('GET', '/free?page=x'), [200, '{}'], 'a schema alone checks nothing')
})

t.test('[validation/request-schema.9] calls by name are checked as well, pings are not', async t => {
  const { gateway } = await serve(t, TREE)
  const name = 'users/post'
  t.equal((await gateway.invoke(name, { method: 'POST', body: '{"name":"a"}' })).status, 200)
  const refused = await gateway.invoke(name, { method: 'POST', body: '{}' })
  t.match([refused.status, refused.error?.message], [400, 'body.name is required'])
  t.match((await gateway.invoke(name, { method: 'POST', body: '{"name":"a"}', query: { page: 'x' } })).error, {
    status: 400,
  })
})

t.test('[validation/request-schema.9] a request that comes again on its connection is checked again', async t => {
  const { gateway } = await serve(t, TREE)
  const { url } = await gateway.listen({ port: 0 })
  for (const [page, status] of [
    ['2', 200],
    ['2', 200],
    ['2', 200],
    ['x', 400],
    ['x', 400],
    ['2', 200],
  ] as const)
    t.equal((await fetch(`${url}/users/7?page=${page}`)).status, status)
  for (const [body, status] of [
    ['{"name":"a"}', 200],
    ['{"name":"a"}', 200],
    ['{"nome":"a"}', 400],
    ['{"name":"a"}', 200],
  ] as const)
    t.equal(
      (await fetch(`${url}/users`, { method: 'POST', body, headers: { 'content-type': 'application/json' } })).status,
      status,
    )
})

t.test(
  '[validation/request-schema.10] in development a differing answer is told once; in production it is not looked at',
  async t => {
    const one = await serve(t, TREE)
    for (let i = 0; i < 3; i++) t.match(await one.ask('POST', '/users', '{"name":"a"}'), [200])
    t.same(one.warnings, [])
    for (let i = 0; i < 3; i++)
      t.match(await one.ask('POST', '/users', '{"name":5}'), [200, '{"name":5}'], 'the client gets it')
    t.match(one.warnings, [
      {
        code: 'ANSWER_DIFFERS',
        path: 'users/post.schema.json',
        message:
          /users\/post\.js: its answer 200 to POST differs from users\/post\.schema\.json: body\.name must be of type string, got a hidden value \(number\)/,
      },
    ])
    t.equal(one.warnings.length, 1)
    const two = await serve(t, TREE, { production: true })
    t.match(await two.ask('POST', '/users', '{"name":5}'), [200])
    t.same(two.warnings, [])
  },
)

t.test(
  '[validation/request-schema.11] a reload puts a new schema in force, and a broken one keeps the last good',
  async t => {
    const { gateway, ask, path, warnings } = await serve(t, TREE)
    writeFileSync(path('users/post.schema.json'), '{ "body": { "type": "array" } }')
    await gateway.reload()
    t.match(await ask('POST', '/users', '[]'), [200])
    writeFileSync(path('users/post.schema.json'), '{ "body": { "type": "wrong" } }')
    await gateway.reload()
    t.match(
      warnings.map(({ code }) => code),
      ['CONFIG_VALUE', 'CONFIG_KEPT'],
    )
    t.match(await ask('POST', '/users', '[]'), [200])
    t.match(await ask('POST', '/users', '{}'), [400])
    const broken = await serve(t, { ...TREE, 'users/post.schema.json': '{' }, { production: true })
    t.same(await broken.ask('POST', '/users', '{}'), [500, '{"error":"function could not be loaded"}'])
  },
)
