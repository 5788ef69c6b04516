import { writeFileSync } from 'node:fs'
import t from 'tap'
import { ADAPTER_SPELLINGS, ADAPTERS, hasAdapter, RUNTIMES } from '../../lib/core/identity.ts'
import { createGateway, type Gateway } from '../../lib/index.ts'
import type { InjectRequest, InjectResponse } from '../../lib/http/inject.ts'
import { checkAdapter } from '../../lib/invocation/adapters.ts'
import type { LogRecord } from '../../lib/observe/events.ts'
import { discoverTree } from '../helpers/discovery.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.test('[invocation/adapters.1] names, aliases, and another name', async t => {
  for (const [given, meant] of [...Object.entries(ADAPTER_SPELLINGS), ...ADAPTERS.map(name => [name, name] as const)]) {
    const config = { json: { name: 'a', invoke: { adapter: given } } }
    const { functions, warnings } = discoverTree({ 'a/handler.js': '', 'a/fn.config.json': config })
    t.same([functions[0]?.policy.adapter, warnings], [meant, []], JSON.stringify(given))
  }
  const { functions, warnings } = discoverTree({
    'a/handler.js': '',
    'a/fn.config.json': { json: { name: 'a', invoke: { adapter: 'azure' } } },
  })
  t.match(warnings, [{ path: 'a/fn.config.json', message: /invoke\.adapter must be one of .* got "azure" \(string\)/ }])
  t.equal(functions[0]?.policy.adapter, null)
  t.match(checkAdapter(functions[0]!), { status: 500, message: 'unknown adapter: invoke.adapter is "azure"' })
})

t.test('[invocation/adapters.2] adapters of a language that lacks them', async t => {
  const extensions = { python: 'py', node: 'js', php: 'php', lua: 'lua', go: 'go', rust: 'rs' }
  for (const runtime of RUNTIMES) {
    for (const adapter of ADAPTERS) {
      const { functions, warnings } = discoverTree(
        {
          [`a/handler.${extensions[runtime]}`]: '',
          'a/fn.config.json': { json: { name: 'a', invoke: { adapter } } },
        },
        { runtimes: RUNTIMES },
      )
      const isThere = adapter === 'native' || runtime === 'node' || runtime === 'python'
      t.equal(hasAdapter(runtime, adapter), isThere)
      const refusal = checkAdapter(functions[0]!)
      if (isThere) t.same([warnings, refusal], [[], null], `${runtime} ${adapter}`)
      else {
        t.match(warnings, [{ code: 'ADAPTER_UNAVAILABLE', path: 'a/fn.config.json', message: `"${adapter}"` }])
        const message = `adapter not available in ${runtime}: invoke.adapter is "${adapter}"`
        t.match(refusal, { status: 500, message, detail: { file: `a/handler.${extensions[runtime]}` } })
      }
    }
  }
  t.equal(checkAdapter(makeFn()), null)
})

const LAMBDA_JS = `
export const handler = async (event, context) => {
  switch (event.queryStringParameters?.do) {
    case 'context': {
      const first = context.getRemainingTimeInMillis()
      await new Promise(resolve => setTimeout(resolve, 30))
      const { getRemainingTimeInMillis, done, fail, succeed, ...names } = context
      return { statusCode: 200, body: { first, second: context.getRemainingTimeInMillis(), names } }
    }
    case 'throw': throw new Error('no way')
    case 'text': return 'plain'
    case 'bytes': return { statusCode: 200, isBase64Encoded: true, body: Buffer.from([0, 255]).toString('base64') }
    case 'cookies': return { statusCode: 201, headers: { 'Set-Cookie': 'a=1' }, cookies: ['b=2; Path=/', 'c=3'], body: 'x' }
    case 'wrong': return { statusCode: '200' }
    default: return { statusCode: 200, body: event }
  }
}
`

const LAMBDA_PY = `
import asyncio, base64, time

def handler(event, context):
    do = (event.get('queryStringParameters') or {}).get('do')
    if do == 'context':
        first = context.getRemainingTimeInMillis()
        time.sleep(0.03)
        names = {n: getattr(context, n) for n in ('awsRequestId', 'functionName', 'functionVersion', 'invokedFunctionArn',
            'memoryLimitInMB', 'logGroupName', 'logStreamName', 'aws_request_id', 'function_name', 'memory_limit_in_mb')}
        return {'statusCode': 200, 'body': {'first': first, 'second': context.get_remaining_time_in_millis(), 'names': names}}
    if do == 'throw':
        raise ValueError('no way')
    if do == 'text':
        return 'plain'
    if do == 'bytes':
        return {'statusCode': 200, 'isBase64Encoded': True, 'body': base64.b64encode(bytes([0, 255])).decode()}
    if do == 'cookies':
        return {'statusCode': 201, 'headers': {'Set-Cookie': 'a=1'}, 'cookies': ['b=2; Path=/', 'c=3'], 'body': 'x'}
    if do == 'wrong':
        return {'statusCode': '200'}
    return {'statusCode': 200, 'body': event}
`

/** The same handler in every style a language has. */
const LAMBDAS: Record<string, string> = {
  'esm.mjs': LAMBDA_JS,
  'default.mjs': LAMBDA_JS.replace('export const handler =', 'export default'),
  'object.mjs': `${LAMBDA_JS.replace('export const handler =', 'const handler =')}export default { handler }\n`,
  'common.cjs': LAMBDA_JS.replace('export const handler =', 'exports.handler ='),
  'typed.ts': `type Event = Record<string, any>\n${LAMBDA_JS.replace('(event, context)', '(event: Event, context: any): Promise<unknown>')}`,
  'sync.py': LAMBDA_PY,
  'async.py': LAMBDA_PY.replace('def handler', 'async def handler'),
}

const COMPLETIONS: Record<string, string> = {
  'node.mjs': `
exports_ = {
  done: (event, context) => { setImmediate(() => context.done(null, { statusCode: 200, body: 'done' })) },
  failDone: (event, context) => { setImmediate(() => context.done(new Error('done failed'))) },
  fail: (event, context) => { setImmediate(() => context.fail(new Error('failed'))) },
  succeed: (event, context) => { setImmediate(() => context.succeed({ statusCode: 200, body: 'succeeded' })) },
  callback: (event, context, callback) => { setImmediate(() => callback(null, { statusCode: 200, body: 'called back' })) },
  failBack: (event, context, callback) => callback(new Error('back failed')),
  twice: (event, context, callback) => { callback(null, 'first'); callback(new Error('second')); context.succeed('third') },
  both: async (event, context, callback) => { callback(null, 'first'); await null; return 'second' },
  promise: async (event, context, callback) => 'returned',
}
`,
  'sync.py': `
def done(event, context): context.done(None, {'statusCode': 200, 'body': 'done'})
def failDone(event, context): context.done(ValueError('done failed'))
def fail(event, context): context.fail(ValueError('failed'))
def succeed(event, context):
    context.succeed({'statusCode': 200, 'body': 'succeeded'})
    return 'late'
def twice(event, context):
    context.succeed('first')
    context.fail('second')
`,
}
const OUTCOMES: Record<string, [status: number, text: string]> = {
  done: [200, 'done'],
  failDone: [500, 'done failed'],
  fail: [500, 'failed'],
  succeed: [200, 'succeeded'],
  callback: [200, 'called back'],
  failBack: [500, 'back failed'],
  twice: [200, '"first"'],
  both: [200, '"first"'],
  promise: [200, '"returned"'],
}

const EDGE_JS = `
const { existsSync } = process.getBuiltinModule('fs')
export default {
  async fetch(request, env, ctx) {
    const url = new URL(request.url)
    switch (url.searchParams.get('do')) {
      case 'bytes': return new Response(await request.arrayBuffer(), { headers: { 'content-type': 'application/x-test' } })
      case 'response': {
        const headers = new Headers({ 'x-a': 'b' })
        headers.append('set-cookie', 'a=1')
        headers.append('set-cookie', 'b=2')
        return new Response('created', { status: 201, headers })
      }
      case 'empty': return new Response(null, { status: 204 })
      case 'json': return Response.json({ a: 1 })
      case 'wait':
        ctx.waitUntil((async () => {
          while (!existsSync(url.searchParams.get('file'))) await new Promise(resolve => setTimeout(resolve, 5))
          console.log('waited ' + url.searchParams.get('n'))
        })())
        return new Response('at once')
      case 'reject':
        ctx.waitUntil(Promise.reject(new Error('lost work')))
        return new Response('at once')
      case 'throw': throw new Error('no way')
      case 'pass': ctx.passThroughOnException(); throw new Error('passed on')
      case 'json-in': return Response.json(await request.json())
      default: return Response.json({
        method: request.method, url: request.url, header: request.headers.get('X-Test'), text: await request.text(),
        env, params: ctx.params, isRequest: request instanceof Request,
      })
    }
  },
}
`

const EDGE_PY = `
import asyncio, json, os
from urllib.parse import urlsplit, parse_qs

async def fetch(request, env, ctx):
    do = parse_qs(urlsplit(request.url).query).get('do', [None])[0]
    if do == 'bytes':
        return {'status': 200, 'headers': {'content-type': 'application/x-test'}, 'body': await request.bytes()}
    if do == 'response':
        return {'status': 201, 'headers': {'x-a': 'b', 'set-cookie': ['a=1', 'b=2']}, 'body': 'created'}
    if do == 'empty':
        return {'status': 204}
    if do == 'json':
        return {'a': 1}
    if do == 'wait':
        query = parse_qs(urlsplit(request.url).query)
        async def work():
            while not os.path.exists(query['file'][0]):
                await asyncio.sleep(0.005)
            print('waited', query['n'][0])
        ctx.waitUntil(work())
        return {'status': 200, 'body': 'at once'}
    if do == 'reject':
        async def lost():
            raise ValueError('lost work')
        ctx.wait_until(lost())
        return {'status': 200, 'body': 'at once'}
    if do == 'throw':
        raise ValueError('no way')
    if do == 'pass':
        ctx.passThroughOnException()
        raise ValueError('passed on')
    if do == 'json-in':
        return await request.json()
    return {'method': request.method, 'url': request.url, 'header': request.headers.get('X-Test'),
            'text': await request.text(), 'env': dict(env), 'params': ctx.params, 'isRequest': True}
`

const EDGES: Record<string, string> = {
  'esm.mjs': EDGE_JS,
  'named.mjs': `${EDGE_JS.replace('export default {', 'const worker = {')}export const fetch = worker.fetch\n`,
  'common.cjs': EDGE_JS.replace('export default', 'module.exports ='),
  'typed.ts': EDGE_JS.replace(
    '(request, env, ctx)',
    '(request: Request, env: Record<string, string>, ctx: any): Promise<Response>',
  ),
  'async.py': EDGE_PY,
}

/** `esm.mjs` as the folder `kind-esm-mjs` with that handler. */
function addFunctions(
  tree: Record<string, TreeEntry>,
  kind: string,
  files: Record<string, string>,
  config: object,
): void {
  for (const [file, text] of Object.entries(files)) {
    const folder = `${kind}-${file.replace('.', '-')}`
    tree[`${folder}/handler${file.slice(file.indexOf('.'))}`] = text
    tree[`${folder}/fn.env.json`] = { json: { KEY: 'vältue' } }
    tree[`${folder}/fn.config.json`] = {
      json: {
        timeout_ms: 20_000,
        entrypoint: `handler${file.slice(file.indexOf('.'))}`,
        ...config,
        invoke: {
          routes: [`/${folder}`, `/${folder}/items/{id}`],
          ...('invoke' in config ? (config.invoke as object) : {}),
        },
      },
    }
  }
}

let gateway: Gateway
let tree: Tree
const logs: LogRecord[] = []

t.before(async () => {
  const entries: Record<string, TreeEntry> = {}
  addFunctions(entries, 'lambda', LAMBDAS, { invoke: { adapter: 'cloud-lambda' } })
  addFunctions(entries, 'edge', EDGES, { invoke: { adapter: 'edge-worker' } })
  for (const name of Object.keys(OUTCOMES)) {
    const [js, py] = [COMPLETIONS['node.mjs']!, COMPLETIONS['sync.py']!]
    const files = { 'node.cjs': js.replace('exports_', 'module.exports') }
    const invoke = { adapter: 'lambda', handler: name }
    addFunctions(entries, `ends-${name}`, py.includes(`def ${name}(`) ? { ...files, 'sync.py': py } : files, { invoke })
  }
  addFunctions(
    entries,
    'upstream',
    { 'pass.mjs': EDGE_JS, 'pass.py': EDGE_PY },
    {
      invoke: { adapter: 'edge-worker' },
      // Nobody listens there: what counts is that the call was passed on.
      edge: { base_url: 'http://127.0.0.1:9', allow_private: true },
    },
  )
  addFunctions(
    entries,
    'fallback',
    {
      'named.mjs': 'export const run = request => new Response("ran " + request.method)\n',
      'named.py': 'def run(request, env, ctx):\n    return {"status": 200, "body": "ran " + request.method}\n',
    },
    { invoke: { adapter: 'worker', handler: 'run' } },
  )
  addFunctions(entries, 'refused', { 'x.lua': 'function handler() return 1 end\n' }, { invoke: { adapter: 'lambda' } })
  tree = makeTree(entries)
  gateway = await createGateway({ functionsRoot: tree.root, runtimes: ['node', 'python', 'lua'] })
  gateway.on('log', record => logs.push(record))
})

const call = (path: string, more: Partial<InjectRequest> = {}): Promise<InjectResponse> =>
  gateway.inject({ url: path, ...more })

const namesOf = (kind: string, files: Record<string, string>): string[] =>
  Object.keys(files).map(file => `/${kind}-${file.replace('.', '-')}`)

t.test('[invocation/adapters.3, invocation/adapters.4] cloud-lambda: the gateway-v2 event in every style', async t => {
  for (const path of namesOf('lambda', LAMBDAS)) {
    const target = `${path}/items/a%20b?x=1&x=2&y=%C3%BC&z`
    const headers = { host: 'api.test:8080', 'user-agent': 'ua/1', cookie: 'a=1; b=2', 'x-test': 'v' }
    const answer = await call(target, { method: 'POST', headers, body: 'text ü' })
    t.equal(answer.status, 200, path)
    const event = answer.json() as Record<string, never>
    t.match(event, {
      version: '2.0',
      routeKey: `POST ${path}/items/a%20b`,
      rawPath: `${path}/items/a%20b`,
      rawQueryString: 'x=1&x=2&y=%C3%BC&z',
      cookies: ['a=1', 'b=2'],
      headers: { host: 'api.test:8080', 'user-agent': 'ua/1', 'x-test': 'v', cookie: 'a=1; b=2' },
      queryStringParameters: { x: '1,2', y: 'ü', z: '' },
      pathParameters: { id: 'a b' },
      body: 'text ü',
      isBase64Encoded: false,
      requestContext: {
        accountId: String,
        apiId: String,
        domainName: 'api.test',
        domainPrefix: String,
        requestId: answer.headers['x-request-id'],
        routeKey: `POST ${path}/items/a%20b`,
        stage: '$default',
        time: /^\d\d\/[A-Z][a-z]{2}\/\d{4}:\d\d:\d\d:\d\d \+0000$/,
        timeEpoch: Number,
        http: {
          method: 'POST',
          path: `${path}/items/a%20b`,
          protocol: 'HTTP/1.1',
          sourceIp: '127.0.0.1',
          userAgent: 'ua/1',
        },
      },
    })
    const bare = (await call(path)).json() as object
    for (const name of ['cookies', 'queryStringParameters', 'pathParameters', 'body'])
      t.notOk(name in bare, `no ${name}`)
    const binary = await call(path, { method: 'POST', body: Buffer.from([0, 255]) })
    t.match(binary.json(), { body: 'AP8=', isBase64Encoded: true })
  }
})

t.test('[invocation/adapters.5] cloud-lambda: the context', async t => {
  for (const path of namesOf('lambda', LAMBDAS)) {
    const answer = await call(`${path}?do=context`)
    const { first, second, names } = answer.json() as { first: number; second: number; names: object }
    t.ok(first <= 20_000 && first > 10_000 && second < first && second > first - 10_000, `${path}: ${first} ${second}`)
    t.match(names, {
      awsRequestId: answer.headers['x-request-id'],
      functionName: path.slice(1),
      functionVersion: '$LATEST',
      invokedFunctionArn: /^arn:.*:function:/,
      memoryLimitInMB: '512',
      logGroupName: String,
      logStreamName: String,
    })
    if (path.endsWith('py')) t.match(names, { function_name: path.slice(1), memory_limit_in_mb: '512' })
  }
})

t.test('[invocation/adapters.6] cloud-lambda: done, fail, succeed, callback; the first one counts', async t => {
  for (const [name, [status, text]] of Object.entries(OUTCOMES)) {
    for (const file of ['node-cjs', 'sync-py']) {
      const answer = await call(`/ends-${name}-${file}`)
      if (answer.status === 404 && file === 'sync-py') continue
      const seen = status === 500 ? (answer.json() as { error: string }).error : answer.text()
      t.same([answer.status, seen], [status, text], `${name} ${file}`)
    }
  }
})

t.test('[invocation/adapters.7] cloud-lambda: answers', async t => {
  for (const path of namesOf('lambda', LAMBDAS)) {
    const cookies = await call(`${path}?do=cookies`)
    const lines = cookies.rawHeaders.filter((_, at) => cookies.rawHeaders[at - 1]?.toLowerCase() === 'set-cookie')
    t.same([cookies.status, lines, cookies.text()], [201, ['a=1', 'b=2; Path=/', 'c=3'], 'x'], path)
    t.equal((await call(`${path}?do=text`)).text(), '"plain"')
    t.same([...(await call(`${path}?do=bytes`)).body], [0, 255])
    t.match((await call(`${path}?do=throw`)).json(), { error: 'no way', detail: { file: /^lambda-/ } })
    const wrong = await call(`${path}?do=wrong`)
    t.equal(wrong.status, 502)
    t.match(wrong.json(), { error: /status must be an integer from 100 to 599, got "200" \(string\)$/ })
  }
})

t.test('[invocation/adapters.8, invocation/adapters.9] edge-worker: lookup, request, env and ctx', async t => {
  for (const path of namesOf('edge', EDGES)) {
    const headers = { host: 'edge.test:1234', 'x-test': 'välue' }
    const answer = await call(`${path}/items/a%20b?q=%C3%BC`, { method: 'PUT', headers, body: 'text ü' })
    t.same(
      answer.json(),
      {
        method: 'PUT',
        url: `http://edge.test:1234${path}/items/a%20b?q=%C3%BC`,
        header: 'välue',
        text: 'text ü',
        env: { KEY: 'vältue' },
        params: { id: 'a b' },
        isRequest: true,
      },
      path,
    )
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
    const back = await call(`${path}?do=bytes`, { method: 'POST', body: bytes })
    t.ok(back.body.equals(bytes), 'any bytes')
    t.equal(back.headers['content-type'], 'application/x-test')
    t.same((await call(`${path}?do=json-in`, { method: 'POST', body: '{"a":[1]}' })).json(), { a: [1] })
    t.match((await call(path)).json(), { method: 'GET', text: '' })
    t.match((await call(`${path}?do=throw`)).json(), { error: 'no way' })
  }
  for (const file of ['named-mjs', 'named-py']) t.equal((await call(`/fallback-${file}`)).text(), 'ran GET', file)
})

t.test('[invocation/adapters.10] edge-worker: answers', async t => {
  for (const path of namesOf('edge', EDGES)) {
    const answer = await call(`${path}?do=response`)
    const cookies = answer.rawHeaders.filter((_, at) => answer.rawHeaders[at - 1]?.toLowerCase() === 'set-cookie')
    t.same([answer.status, answer.text(), answer.headers['x-a'], cookies], [201, 'created', 'b', ['a=1', 'b=2']], path)
    const empty = await call(`${path}?do=empty`)
    t.same([empty.status, empty.body.length], [204, 0])
    const json = await call(`${path}?do=json`)
    t.same([json.headers['content-type'], json.json()], ['application/json', { a: 1 }])
  }
})

t.test('[invocation/adapters.11] edge-worker: waitUntil outlives the answer, a rejection is logged', async t => {
  for (const path of namesOf('edge', EDGES)) {
    const from = logs.length
    const heard = (text: string): boolean => logs.slice(from).some(record => record.message.includes(text))
    // The work waits for the file, which is there only after the answer.
    const file = tree.path(`go${path.replaceAll('/', '-')}`)
    t.equal((await call(`${path}?do=wait&n=${path}&file=${file}`)).text(), 'at once', path)
    t.notOk(heard(`waited ${path}`), 'the work is not done yet')
    writeFileSync(file, '')
    await until(() => heard(`waited ${path}`))
    t.equal((await call(`${path}?do=reject`)).text(), 'at once')
    await until(() => heard('wait_until_rejection: ') && heard('lost work'))
    t.equal((await call(`${path}?do=json`)).status, 200, 'the worker serves on')
  }
})

t.test('[invocation/adapters.12] edge-worker: passThroughOnException', async t => {
  for (const file of ['pass-mjs', 'pass-py']) {
    t.match((await call(`/upstream-${file}?do=throw`)).json(), { error: 'no way' }, `${file}: not asked for`)
    const passed = await call(`/upstream-${file}?do=pass`)
    t.equal(passed.status, 502, `${file}: passed to an upstream that is not there`)
    t.notMatch(passed.json(), { error: 'passed on' })
    await until(() => logs.some(({ fn, message }) => fn === `upstream-${file}` && message.includes('passed on')))
  }
  for (const path of namesOf('edge', EDGES)) {
    t.match((await call(`${path}?do=pass`)).json(), { error: 'passed on' }, `${path}: no upstream`)
  }
})

t.test('[invocation/adapters.2] a function that is refused is found, with its reason', async t => {
  const answer = await call('/refused-x-lua')
  t.equal(answer.status, 500)
  t.match(answer.json(), {
    error: 'adapter not available in lua: invoke.adapter is "cloud-lambda"',
    detail: { hint: /remove invoke\.adapter/ },
  })
  t.match(gateway.warnings, [{ code: 'ADAPTER_UNAVAILABLE', path: 'refused-x-lua/fn.config.json' }])
  await gateway.close({ timeoutMs: 1000 })
  tree.cleanup()
})
