import { readdirSync, symlinkSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { MISSING_TOOLS, nodeTool, pythonTool, runTool, TOOL_MODULES } from './contract-tools.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

t.setTimeout(600_000)

const EXAMPLES = fileURLToPath(new URL('../../examples/functions', import.meta.url))
const CONFORMANCE = fileURLToPath(new URL('../../spec/fixtures/functions', import.meta.url))
const API = `${EXAMPLES}/checked-api`

const hasPhp = findProgram('php', {}, process.env.PATH ?? '').path !== null
const NO_PHP = hasPhp ? false : 'php is not installed: apt-get install php-cli'

/** Names, params and configs that are not usual. */
const ODD = {
  'a/[id].js': '// @query {"q": "\u0000", "r": [1]}\n// @body {"a": null}\n// @content_type text/plain\n',
  'a/post.[name].js': '',
  'b/[[...rest]].py': '# @summary "quotes" <tags> \\ and \u{1f600}\n',
  'c/handler.js': '',
  'c/fn.config.json':
    '{ "runtime": "node", "invoke": { "routes": ["/c", "/d/:wildcard/*"], "query": { "a b&c": 1 } } }',
  'c/v1/handler.js': '',
  'c/v1/fn.config.json': '{ "invoke": { "methods": ["PATCH"] } }',
  'e_f.js': '',
  'e/f.js': '',
  'g/put.js': '',
  'g/put.schema.json':
    '{ "$defs": { "T": { "type": ["object", "null"], "properties": { "t": { "$ref": "#/$defs/T" } } } }, "body": { "$ref": "#/$defs/T" }, "responses": { "2XX": { "$ref": "#/$defs/T" }, "404": true, "204": {} }, "security": ["bearer", "none", "cookie:sid"] }',
}

async function writeDocument(tree: Tree, name: string, options: GatewayOptions): Promise<string> {
  const gateway = await createGateway({
    env: process.env,
    inspect: true,
    logFiles: false,
    openapiIncludeInternal: true,
    ...options,
  })
  try {
    tree.write({ [`${name}.json`]: (await gateway.inject('/openapi.json')).text() })
  } finally {
    await gateway.close()
  }
  return tree.path(`${name}.json`)
}

t.test(
  '[http/openapi.10] documents of every example and of the odd are valid for others',
  { skip: MISSING_TOOLS },
  async t => {
    const tree = makeTree({ 'odd/': '' })
    t.teardown(tree.cleanup)
    for (const [path, text] of Object.entries(ODD)) tree.write({ [`odd/${path}`]: text })
    const roots = { conformance: CONFORMANCE, odd: tree.path('odd') } as Record<string, string>
    for (const name of readdirSync(EXAMPLES)) roots[name] = `${EXAMPLES}/${name}`
    const runtimes = ['python', 'node', 'php', 'lua', 'go', 'rust']
    for (const [name, functionsRoot] of Object.entries(roots))
      await writeDocument(tree, name, {
        functionsRoot,
        runtimes,
        publicBaseUrl: 'https://api.example',
      } as GatewayOptions)
    const files = Object.keys(roots).map(name => tree.path(`${name}.json`))
    t.ok(files.length >= 12, `${files.length} documents`)
    const validator = await runTool(pythonTool('openapi-spec-validator'), files)
    t.equal(validator.status, 0, validator.output)
    // A licence is the author's to choose, and the token of the control plane is not for every operation.
    const skipped = ['info-license', 'operation-4xx-response', 'no-server-example.com']
    const rules = skipped.flatMap(rule => ['--skip-rule', rule])
    const redocly = await runTool(nodeTool('redocly'), ['lint', '--extends=recommended-strict', ...rules, ...files])
    t.equal(redocly.status, 0, redocly.output.slice(0, 3000))
  },
)

async function serveApi(t: Test) {
  const gateway = await createGateway({
    functionsRoot: API,
    env: process.env,
    logFiles: false,
    defaultTimeoutMs: 20_000,
  })
  t.teardown(() => gateway.close())
  t.same(gateway.warnings, [])
  const warnings: string[] = []
  gateway.on('warning', ({ message }) => warnings.push(message))
  const { url } = await gateway.listen({ port: 0 })
  return { url, warnings }
}

t.test(
  '[http/openapi.10] schemathesis finds nothing in the checked example',
  { skip: MISSING_TOOLS || NO_PHP },
  async t => {
    const { url, warnings } = await serveApi(t)
    const tree = makeTree()
    t.teardown(tree.cleanup)
    const cases = process.env.FN_TEST_CONTRACT_CASES ?? '60'
    // A machine that is busy is no fault of the API.
    const options = [
      '--max-examples',
      cases,
      '--suppress-health-check',
      'all',
      '--seed',
      '1',
      '--request-timeout',
      '30',
    ]
    const found = await runTool(pythonTool('schemathesis'), ['run', `${url}/openapi.json`, ...options], tree.root)
    t.equal(found.status, 0, found.output.slice(-6000))
    t.match(found.output, /4 selected/, 'every operation was looked at')
    t.same(warnings, [], 'and no answer differed from its schema')
  },
)

const CLIENT = `
import createClient from 'openapi-fetch'
import type { paths } from './schema'

const client = createClient<paths>({ baseUrl: process.argv[2]! })
const made = await client.POST('/quotes', { body: { items: [{ sku: 'A-1', count: 2 }] } })
const total: number = made.data!.total
const converted = await client.GET('/convert/{from}/{to}', {
  params: { path: { from: 'EUR', to: 'JPY' }, query: { amount: 2 } },
})
const result: number = converted.data!.result
const refused = await client.GET('/slots', { params: { query: { day: 'tomorrow' } } })
const why: string = refused.error!.error
const label = await client.GET('/labels', { params: { query: { text: 'x', times: 2 } }, parseAs: 'text' })
const text: string = label.data!
// @ts-expect-error: not a currency
await client.GET('/convert/{from}/{to}', { params: { path: { from: 'XXX', to: 'JPY' }, query: { amount: 2 } } })
// @ts-expect-error: items are missing
await client.POST('/quotes', { body: {} })
console.log(JSON.stringify({ total, result, why, text }))
`

t.test(
  '[http/openapi.10] a generated client compiles and calls the checked example',
  { skip: MISSING_TOOLS || NO_PHP },
  async t => {
    const { url } = await serveApi(t)
    const tree = makeTree({ 'client.ts': CLIENT, 'package.json': '{ "type": "module" }' })
    t.teardown(tree.cleanup)
    symlinkSync(TOOL_MODULES, tree.path('node_modules'))
    const generated = await runTool(
      nodeTool('openapi-typescript'),
      [`${url}/openapi.json`, '-o', 'schema.d.ts'],
      tree.root,
    )
    t.equal(generated.status, 0, generated.output)
    const flags = [
      '--strict',
      '--module',
      'esnext',
      '--moduleResolution',
      'bundler',
      '--target',
      'es2022',
      '--lib',
      'es2022,dom',
      '--types',
      'node',
      '--typeRoots',
      fileURLToPath(new URL('../../node_modules/@types', import.meta.url)),
    ]
    const compiled = await runTool(nodeTool('tsc'), [...flags, 'client.ts'], tree.root)
    t.equal(compiled.status, 0, compiled.output)
    const { status, output } = await runTool(process.execPath, ['client.js', url], tree.root)
    t.equal(status, 0, output)
    t.same(JSON.parse(output), {
      total: 25,
      result: 320,
      why: 'query.day must be a valid date, got "tomorrow" (string)',
      text: 'x\nx',
    })
  },
)
