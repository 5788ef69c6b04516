import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parseHints } from '../../lib/http/docs-page.ts'
import { toOpenApiPaths, toOperationId } from '../../lib/http/openapi.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

interface Operation {
  operationId: string
  summary: string
  tags: string[]
  parameters: { name: string; in: string; required: boolean; example?: unknown }[]
  requestBody?: { content: Record<string, { example?: unknown }> }
  responses: Record<string, unknown>
}

interface Document {
  openapi: string
  info: object
  servers: { url: string }[]
  security: unknown[]
  components: Record<string, unknown>
  tags: { name: string }[]
  paths: Record<string, Record<string, Operation>>
}

const TREE = {
  'users/[id].js': '// @summary One user\n// @query {"full":"1"}\nexport const handler = () => 1\n',
  'users/post.users.py': '# @summary Add a user\n# @body {"name":"Kim"}\ndef handler(event):\n    return 1\n',
  'docs/[[...path]].lua': '-- @summary A page\nfunction handler() return 1 end\n',
  'hello/handler.js': 'export const handler = () => 1\n',
  'hello/fn.config.json':
    '{ "runtime": "node", "invoke": { "methods": ["GET", "PUT"], "summary": "Says hello", "body": {"a":1}, "content_type": "text/x" } }',
  'hello/fn.env.json': '{ "SECRET": { "value": "planted-secret", "is_secret": true } }',
  'hello/v2/handler.js': 'export const handler = () => 1\n',
  'hello/v2/fn.config.json': '{ "invoke": { "methods": ["DELETE"] } }',
  'twice/index.js': 'export const handler = () => 1\n',
  'twice.js': 'export const handler = () => 1\n',
}

async function serve(t: Test, options: GatewayOptions = {}) {
  const { root, cleanup } = await makeTree(TREE)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, ...options })
  t.teardown(() => gateway.close())
  const read = async () =>
    (await gateway.inject({ url: '/openapi.json', headers: { host: 'api.example:8080' } })).json() as Document
  return { root, gateway, read }
}

t.test('[http/openapi.1, http/openapi.6] every route with exactly its methods, and every version', async t => {
  const { root, gateway, read } = await serve(t)
  const document = await read()
  t.equal(document.openapi, '3.1.0')
  t.same(Object.fromEntries(Object.entries(document.paths).map(([path, methods]) => [path, Object.keys(methods)])), {
    '/docs': ['get'],
    '/docs/{path}': ['get'],
    '/hello': ['get', 'put'],
    '/hello/v2': ['delete'],
    '/hello/{wildcard}': ['get', 'put'],
    '/hello@v2': ['delete'],
    '/users/users': ['post'],
    '/users/{id}': ['get'],
  })
  const text = JSON.stringify(document)
  t.notMatch(text, /planted-secret/)
  t.notOk(text.includes(root))
  writeFileSync(join(root, 'new.js'), 'export const handler = () => 1\n')
  await gateway.reload()
  t.ok((await read()).paths['/new'])
  t.equal((await gateway.inject({ method: 'POST', url: '/openapi.json' })).status, 404)
  t.equal((await gateway.inject({ method: 'HEAD', url: '/openapi.json' })).body.length, 0)
})

t.test('[http/openapi.2] patterns as templates', async t => {
  const shown = (pattern: string) =>
    toOpenApiPaths(pattern).map(({ path, params }) => [
      path,
      ...params.map(({ name, isRest }) => (isRest ? `${name}...` : name)),
    ])
  t.same(shown('/'), [['/']])
  t.same(shown('/a/:id/b/:rest*'), [['/a/{id}/b/{rest}', 'id', 'rest...']])
  t.same(shown('/a/*'), [['/a/{wildcard}', 'wildcard...']])
  t.same(shown('/:wildcard/*'), [['/{wildcard}/{wildcard2}', 'wildcard', 'wildcard2...']])
  t.same(shown('/:slug*?'), [['/'], ['/{slug}', 'slug...']])
  const { read } = await serve(t)
  for (const [path, methods] of Object.entries((await read()).paths)) {
    const wanted = [...path.matchAll(/\{([^}]+)\}/g)].map(match => match[1])
    for (const { parameters } of Object.values(methods)) {
      const listed = parameters.filter(parameter => parameter.in === 'path')
      t.same(
        listed.map(parameter => parameter.name),
        wanted,
        path,
      )
      t.ok(listed.every(parameter => parameter.required))
    }
  }
})

t.test('[http/openapi.3] operation ids', async t => {
  t.equal(toOperationId('GET', makeFn({ name: 'users/[id]', version: '1.0' })), 'get_node_users__id__1_0')
  const { read } = await serve(t)
  const { paths, tags } = await read()
  const operations = Object.values(paths).flatMap(methods => Object.values(methods))
  const ids = operations.map(operation => operation.operationId)
  t.equal(new Set(ids).size, ids.length, 'unique')
  t.ok(ids.includes('get_node_hello_default') && ids.includes('get_node_hello_2_default'), 'each ends with its version')
  t.ok(ids.includes('delete_node_hello_v2'))
  t.ok(operations.every(operation => operation.tags.join() === 'functions'))
  t.same(
    tags.map(({ name }) => name),
    ['functions'],
  )
})

t.test('[http/openapi.4] summaries and examples from configs and hints', async t => {
  const { read } = await serve(t)
  const { paths } = await read()
  t.equal(paths['/users/{id}']!.get!.summary, 'GET One user')
  t.match(paths['/users/{id}']!.get!.parameters, [
    { name: 'id' },
    { name: 'full', in: 'query', required: false, example: '1' },
  ])
  t.equal(paths['/docs']!.get!.summary, 'GET A page')
  t.match(paths['/users/users']!.post, {
    summary: 'POST Add a user',
    requestBody: { content: { 'application/json': { example: { name: 'Kim' } } } },
  })
  t.match(paths['/hello']!.put, {
    summary: 'PUT Says hello',
    requestBody: { content: { 'text/x': { example: { a: 1 } } } },
  })
  t.notOk(paths['/hello']!.get!.requestBody)
  t.equal(paths['/hello@v2']!.delete!.summary, 'DELETE Says hello', 'a version has its function’s words')
  t.same(parseHints('# @summary a\n# @summary b\n/* @query [1] */\n * @body text\n'), {
    summary: 'a',
    query: null,
    body: 'text',
    contentType: null,
  })
  t.equal(parseHints(`${'\n'.repeat(80)}// @summary late`).summary, null)
})

t.test('[http/openapi.4, http/openapi.8] examples of JSON are JSON, and any status may come', async t => {
  const invoke = (fields: object) => JSON.stringify({ runtime: 'node', invoke: { methods: ['POST'], ...fields } })
  const handler = 'export const handler = () => 1\n'
  const cases: [name: string, fields: object, type: string, example: unknown][] = [
    ['text', { body: '{"a":[1]}' }, 'application/json', { a: [1] }],
    [
      'array',
      { body: '[1]', content_type: 'application/vnd.x+json; charset=utf-8' },
      'application/vnd.x+json; charset=utf-8',
      [1],
    ],
    ['value', { body: { a: 1 } }, 'application/json', { a: 1 }],
    ['word', { body: 'hello' }, 'application/json', 'hello'],
    ['number', { body: '12' }, 'application/json', '12'],
    ['plain', { body: '{"a":1}', content_type: 'text/plain' }, 'text/plain', '{"a":1}'],
  ]
  const tree = makeTree({
    ...Object.fromEntries(
      cases.flatMap(([name, fields]) => [
        [`${name}/handler.js`, handler],
        [`${name}/fn.config.json`, invoke(fields)],
      ]),
    ),
    'hint/post.js': `// @body {"from":"a hint"}\n${handler}`,
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, env: process.env })
  t.teardown(() => gateway.close())
  const { paths } = (await gateway.inject('/openapi.json')).json() as Document
  for (const [name, , type, example] of cases) {
    const { requestBody, responses } = paths[`/${name}`]!.post!
    t.same(requestBody!.content[type]!.example, example, name)
    t.match(responses.default, { description: /any other/ }, name)
  }
  t.same(paths['/hint']!.post!.requestBody!.content['application/json']!.example, { from: 'a hint' })
})

t.test('[http/openapi.5] servers, internal paths, switched off', async t => {
  const one = await serve(t, { publicBaseUrl: 'https://api.example', openapiIncludeInternal: true })
  const document = await one.read()
  t.same(document.servers, [{ url: 'https://api.example' }])
  t.match(document.paths['/_fn/reload'], { post: { tags: ['internal'] } })
  const two = await serve(t, { docsEnabled: false })
  t.equal((await two.gateway.inject('/openapi.json')).status, 404)
  t.same(document.security, [])
  t.match(document.components.securitySchemes, {
    adminToken: { type: 'apiKey', in: 'header', name: 'x-fn-admin-token' },
  })
  t.match(document.paths['/_fn/reload']!.post, { security: [{}, { adminToken: [] }] })
  const three = await (await serve(t)).read()
  t.same(three.servers, [{ url: '/' }], 'whatever Host a client sends')
  t.match(three.info, { title: 'fngw', version: '1.0.0' })
  const info = { title: 'Shop', version: '2.3', description: 'Orders.\n\nAnd *carts*.' }
  const named = { openapiTitle: info.title, openapiVersion: info.version, openapiDescription: info.description }
  t.same((await (await serve(t, named)).read()).info, info)
  t.notOk('securitySchemes' in three.components)
})

t.test('[http/openapi.9] schema.json says what parameters, bodies and answers are', async t => {
  const schema = {
    $defs: { Item: { type: 'object', properties: { kids: { type: 'array', items: { $ref: '#/$defs/Item' } } } } },
    params: { properties: { id: { type: 'integer' } } },
    query: { properties: { page: { type: 'integer' }, filter: { type: 'object' } }, required: ['page'] },
    headers: { properties: { 'X-Kind': { enum: ['a'] }, Accept: { type: 'string' } } },
    body: { $ref: '#/$defs/Item' },
    responses: { 201: { $ref: '#/$defs/Item', description: 'made' }, 204: true, 404: { type: 'string' }, default: {} },
    security: ['bearer', 'none', 'header:X-Key'],
  }
  const tree = makeTree({
    'items/[id].js': 'export const handler = () => 1\n',
    'items/[id].schema.json': { json: schema },
    'items/[id].post.js': '',
    'orders/put.[key].js': '// @query {"page":"3","extra":"x"}\nexport const handler = () => 1\n',
    'orders/put.[key].schema.json': { json: { ...schema, params: { properties: { key: { type: 'integer' } } } } },
    'plain.js': 'export const handler = () => 1\n',
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, inspect: true })
  t.teardown(() => gateway.close())
  const { paths, components } = (await gateway.inject('/openapi.json')).json() as Document
  const item = { $ref: '#/components/schemas/node_orders_put._key__default_Item' }
  const put = paths['/orders/{key}']!.put!
  t.same(put.parameters, [
    { name: 'key', in: 'path', required: true, schema: { type: 'integer' } },
    { name: 'page', in: 'query', required: true, schema: { type: 'integer' }, example: '3' },
    { name: 'filter', in: 'query', required: false, content: { 'application/json': { schema: { type: 'object' } } } },
    { name: 'extra', in: 'query', required: false, schema: {}, example: 'x' },
    { name: 'X-Kind', in: 'header', required: false, schema: { enum: ['a'] } },
  ])
  t.same(put.requestBody, { required: true, content: { 'application/json': { schema: item } } })
  t.same(put.responses[201], {
    description: 'made',
    content: { 'application/json': { schema: { ...item, description: 'made' } } },
  })
  t.same(put.responses[204], { description: 'No Content' })
  t.same(put.responses[404], {
    description: 'Not Found',
    content: {
      'application/json': { schema: { anyOf: [{ type: 'string' }, { $ref: '#/components/schemas/Error' }] } },
    },
  })
  t.same(put.responses[503], { $ref: '#/components/responses/Error503' })
  t.notOk('200' in put.responses, 'its success is 201 and 204')
  t.same((put as unknown as { security: unknown }).security, [{ bearer: [] }, {}, { 'header_X-Key': [] }])
  const { schemas, securitySchemes } = components as Record<string, Record<string, unknown>>
  t.same(schemas!['node_orders_put._key__default_Item'], {
    type: 'object',
    properties: { kids: { type: 'array', items: item } },
  })
  t.same(securitySchemes, {
    bearer: { type: 'http', scheme: 'bearer' },
    'header_X-Key': { type: 'apiKey', in: 'header', name: 'X-Key' },
  })
  t.notOk('security' in paths['/plain']!.get!, 'only where a function says so')
  t.notOk('requestBody' in paths['/items/{id}']!.get!, 'a GET has no body')
})

t.test('[http/openapi.2] owners of one path name its params differently', async t => {
  const params = (name: string) => ({ json: { params: { properties: { [name]: { type: 'integer' } } } } })
  const tree = makeTree({
    'a/get.[id].js': '',
    'a/get.[id].schema.json': params('id'),
    'a/put.[name].js': '',
    'a/put.[name].schema.json': params('name'),
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, inspect: true })
  t.teardown(() => gateway.close())
  const { paths } = (await gateway.inject('/openapi.json')).json() as Document
  t.same(Object.keys(paths), ['/a/{id}'], 'one template')
  for (const operation of Object.values(paths['/a/{id}']!))
    t.same(operation.parameters, [{ name: 'id', in: 'path', required: true, schema: { type: 'integer' } }])
})
