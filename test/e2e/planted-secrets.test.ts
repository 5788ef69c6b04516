import { scryptSync } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import type { InjectRequest, InjectResponse } from '../../lib/http/inject.ts'
import { handlerFile, RUNTIMES } from '../helpers/gateway-bed.ts'
import { formsOf, SecretSearch } from './secret-search.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'
import { httpUpstream } from '../helpers/upstream.ts'

t.setTimeout(120_000)

const SALT = 'ab'.repeat(16)
const PASSWORD = 'planted"password'

/** What nobody may see. Each has a character that JSON, URLs or base64 write in another way. */
const SECRETS = {
  'secret of fn.env.json': 'planted/env-json"1',
  "secret of the function's .env": 'planted+dotenv-2',
  "secret of the project's .env": 'planted=project-3',
  'admin token': 'planted|admin-token-4',
  'password of the console': PASSWORD,
  'hash of the password': scryptSync(PASSWORD, Buffer.from(SALT, 'hex'), 32, { N: 16_384, r: 8, p: 1 }).toString('hex'),
  'variable of the host': 'planted&host-variable-5',
  'header for the upstream': 'planted,upstream-6',
  'Authorization of a client': 'planted:client-authorization-7',
  'cookie of a client': 'planted.client-cookie-8',
  'query of a client': 'planted~client-query-9',
  'body of a client': 'planted<client-body-10',
  'secret set over HTTP': 'planted>set-over-http-11',
  'URL of a callback': 'planted_callback-12',
  'header of a job': 'planted^job-header-13',
} as const

/** What everybody may see, and where it must be found: proof that the search sees that place. */
const CANARIES = {
  name: 'canary-function-name',
  output: 'canary-output-of-a-function',
  failure: 'canary-failure-of-a-function',
  answer: 'canary-answer-of-a-function',
  plain: 'canary-plain-value',
}

/** `leak` is where a handler tells its secret: in a text that it prints, throws and answers. */
const HANDLERS: Readonly<Record<string, (leak: string) => string>> = {
  node: leak => `exports.handler = event => {
    const told = ${leak === '' ? '""' : 'event.env.API_KEY'}
    console.log('${CANARIES.output}', told)
    if (event.query.fail !== undefined) throw new Error('${CANARIES.failure} ' + told)
    if (event.query.upstream !== undefined)
      return { proxy: { path: '/', headers: { authorization: event.env.UPSTREAM } } }
    return { status: 200, body: '${CANARIES.answer} ' + told }
  }\n`,
  python: leak => `def handler(event):
    told = ${leak === '' ? '""' : 'event["env"]["API_KEY"]'}
    print("${CANARIES.output}", told)
    if "fail" in event["query"]:
        raise ValueError("${CANARIES.failure} " + told)
    return {"status": 200, "body": "${CANARIES.answer} " + told}\n`,
  php: leak => `<?php function handler($event) {
    $told = ${leak === '' ? '""' : '$event["env"]["API_KEY"]'};
    echo "${CANARIES.output} ", $told;
    if (isset($event["query"]["fail"])) throw new Exception("${CANARIES.failure} " . $told);
    return ["status" => 200, "body" => "${CANARIES.answer} " . $told];
  }\n`,
  lua: leak => `function handler(event)
    local told = ${leak === '' ? '""' : 'event.env.API_KEY'}
    print("${CANARIES.output}", told)
    if event.query.fail then error("${CANARIES.failure} " .. told) end
    return { status = 200, body = "${CANARIES.answer} " .. told }
  end\n`,
}

const toName = (runtime: string): string => `${CANARIES.name}-${runtime}`

function toTree(leak: string, upstream: string): Record<string, TreeEntry> {
  const entries: Record<string, TreeEntry> = {
    'project/.git/': '',
    'project/fngw.json': { json: { 'functions-dir': 'functions' } },
    'project/.env': `FN_ADMIN_TOKEN=${SECRETS['admin token']}\nPROJECT_TOKEN=${SECRETS["secret of the project's .env"]}\n`,
  }
  for (const runtime of RUNTIMES) {
    const folder = `project/functions/${toName(runtime)}`
    entries[`${folder}/${handlerFile(runtime)}`] = HANDLERS[runtime]!(leak)
    entries[`${folder}/.env`] = `FILE_TOKEN="${SECRETS["secret of the function's .env"]}"\n`
    entries[`${folder}/fn.env.json`] = {
      json: {
        API_KEY: { value: SECRETS['secret of fn.env.json'], is_secret: true },
        UPSTREAM: { value: SECRETS['header for the upstream'], is_secret: true },
        PLAIN: CANARIES.plain,
      },
    }
    entries[`${folder}/fn.config.json`] = {
      json: {
        runtime,
        timeout_ms: 20_000,
        response: { include_debug_headers: true },
        edge: { base_url: upstream, allow_private: true },
        schedule: { every_seconds: 31_536_000 },
      },
    }
  }
  return entries
}

interface Sweep {
  gateway: Gateway
  tree: Tree
  search: SecretSearch
  canaries: SecretSearch
  /** Sends a request and looks at its answer, headers too. */
  ask: (request: InjectRequest, where?: string) => Promise<InjectResponse>
  /** Id of the job that was made, and its end. */
  job: string
  jobEnded: Promise<void>
}

const OWNER = { 'x-fn-admin-token': SECRETS['admin token'], 'content-type': 'application/json' }
const [FIRST = 'node'] = RUNTIMES

/** What a caller may write into a call. */
const CLIENT_FIELDS = {
  query: { key: SECRETS['query of a client'] },
  headers: {
    Authorization: SECRETS['Authorization of a client'],
    Cookie: `sid=${SECRETS['cookie of a client']}`,
  },
  context: { token: SECRETS['Authorization of a client'] },
  body: SECRETS['body of a client'],
}

interface Asked extends Omit<InjectRequest, 'url' | 'method'> {
  /** Instead of the one in the document: with an id. */
  path?: string
}

type Ask = (sweep: Sweep) => Asked | Promise<Asked>

const plainly: Ask = () => ({})
const ofFirst: Ask = () => ({ query: { name: toName(FIRST), runtime: FIRST } })
const MADE = { name: `${CANARIES.name}-made`, runtime: FIRST }

/** How each endpoint is asked so that it shows all it has; an endpoint without a row fails the test. */
const ROWS: Readonly<Record<string, Ask>> = {
  'GET /_fn/health': plainly,
  'GET /_fn/catalog': plainly,
  'GET /_fn/schedules': plainly,
  'GET /_fn/schedules/next': ofFirst,
  'POST /_fn/schedules/run': () => ({ body: { name: toName(FIRST), runtime: FIRST } }),
  'POST /_fn/reload': plainly,
  'GET /_fn/reload': plainly,
  'POST /_fn/invoke': () => ({ body: { name: toName(FIRST), method: 'GET', ...CLIENT_FIELDS } }),
  'GET /_fn/explain': () => ({ query: { path: `/${toName(FIRST)}` } }),
  // A stream: it is read beside the walk.
  'GET /_fn/events': () => ({ query: { events: 'nothing' } }),
  'GET /_fn/logs': () => ({ query: { file: 'error', lines: 2000 } }),
  'GET /_fn/metrics': plainly,
  'POST /_fn/login': () => ({ body: { username: 'admin', password: PASSWORD } }),
  'POST /_fn/logout': plainly,
  'GET /_fn/settings': plainly,
  'GET /_fn/workers': plainly,
  'GET /_fn/doctor': plainly,
  'GET /_fn/fleet': plainly,
  'GET /_fn/dependencies': plainly,
  'GET /_fn/ui-state': plainly,
  'POST /_fn/ui-state': () => ({ body: { ui_enabled: true } }),
  'PUT /_fn/ui-state': () => ({ body: { ui_enabled: true } }),
  'PATCH /_fn/ui-state': () => ({ body: { ui_enabled: true } }),
  'DELETE /_fn/ui-state': plainly,
  'GET /_fn/packs': plainly,
  'GET /_fn/function': () => ({ query: { name: toName(FIRST), runtime: FIRST, include_code: '1' } }),
  'GET /_fn/function-config': ofFirst,
  'GET /_fn/function-env': ofFirst,
  'POST /_fn/function': () => ({ query: MADE, body: { summary: 'made over HTTP' } }),
  'PUT /_fn/function-config': () => ({ query: MADE, body: { timeout_ms: 9000 } }),
  'PUT /_fn/function-env': () => ({
    query: MADE,
    body: { SET_TOKEN: { value: SECRETS['secret set over HTTP'], is_secret: true }, PLAIN: CANARIES.plain },
  }),
  'PUT /_fn/function-code': () => ({ query: MADE, body: { code: HANDLERS[FIRST]!('') } }),
  'DELETE /_fn/function': () => ({ query: MADE }),
  'POST /_fn/jobs': () => ({
    body: {
      name: toName(FIRST),
      headers: { Authorization: SECRETS['header of a job'] },
      callback_url: `http://127.0.0.1:9/?token=${SECRETS['URL of a callback']}`,
    },
  }),
  'GET /_fn/jobs/{id}': async ({ job, jobEnded }) => {
    await jobEnded
    return { path: `/_fn/jobs/${job}` }
  },
  'GET /_fn/jobs': plainly,
  'GET /_fn/jobs/{id}/result': ({ job }) => ({ path: `/_fn/jobs/${job}/result` }),
  'GET /_fn/jobs/{id}/input': ({ job }) => ({ path: `/_fn/jobs/${job}/input` }),
  'POST /_fn/jobs/{id}/retry': ({ job }) => ({ path: `/_fn/jobs/${job}/retry`, body: { delay_ms: 3_600_000 } }),
  'DELETE /_fn/jobs/{id}': ({ job }) => ({ path: `/_fn/jobs/${job}` }),
}

/** Where each canary must have been seen. */
const SHOWN: readonly (readonly [place: string, canary: keyof typeof CANARIES])[] = [
  ['GET /_fn/health', 'name'],
  ['GET /_fn/catalog', 'name'],
  ['POST /_fn/invoke', 'output'],
  ['POST /_fn/invoke', 'answer'],
  ['GET /_fn/explain', 'name'],
  ['GET /_fn/logs', 'failure'],
  ['GET /_fn/logs file=runtime', 'output'],
  ['GET /_fn/logs file=access', 'name'],
  ['GET /_fn/metrics', 'name'],
  ['GET /_fn/metrics format=json', 'failure'],
  ['events', 'output'],
  ['events', 'failure'],
  ['events', 'name'],
  ['listeners', 'output'],
  ['answers of functions', 'answer'],
  ['answers of functions', 'output'],
  ['answers of functions', 'failure'],
  ['GET /openapi.json', 'name'],
  ['GET /_fn/function', 'name'],
  ['GET /_fn/function', 'plain'],
  ['GET /_fn/function-env', 'plain'],
  ['PUT /_fn/function-env', 'plain'],
  ['PUT /_fn/function-code', 'output'],
  ['DELETE /_fn/function', 'name'],
  ['POST /_fn/jobs', 'name'],
  ['GET /_fn/jobs', 'name'],
  ['GET /_fn/jobs/{id}/result', 'answer'],
  ['GET /_fn/jobs/{id}/input', 'name'],
  ['POST /_fn/jobs/{id}/retry', 'name'],
  ['files of jobs', 'name'],
  ['files below .svc', 'output'],
  ['files below .svc', 'failure'],
  ['files below .svc', 'name'],
]

async function sweep(t: Test, leak: string): Promise<Pick<Sweep, 'search' | 'canaries'>> {
  const upstream = await httpUpstream((_request, response) => response.destroy())
  t.teardown(upstream.close)
  const tree = makeTree(toTree(leak, upstream.url))
  t.teardown(tree.cleanup)
  const search = new SecretSearch(SECRETS)
  const canaries = new SecretSearch(CANARIES)
  const look = (where: string, bytes: Buffer | string): void => {
    search.look(where, bytes)
    canaries.look(where, bytes)
  }
  const gateway = await createGateway({
    env: { ...process.env, PLANTED_HOST: SECRETS['variable of the host'] },
    project: { explicit: null },
    cwd: tree.path('project'),
    openapiIncludeInternal: true,
    uiEnabled: true,
    consoleLocalOnly: false,
    consoleLoginUsername: 'admin',
    consoleLoginPasswordHash: `scrypt:16384:8:1:${SALT}:${SECRETS['hash of the password']}`,
    logFiles: true,
  })
  t.teardown(() => gateway.close({ timeoutMs: 1000 }))
  for (const name of ['request', 'reload', 'warning', 'log', 'job'] as const)
    gateway.on(name, record => look('listeners', JSON.stringify(record)))
  const jobEnded = new Promise<void>(resolve => {
    gateway.on('job', ({ state }) => state !== 'queued' && state !== 'running' && resolve())
  })
  const ask: Sweep['ask'] = async (request, where = `${request.method ?? 'GET'} ${request.url}`) => {
    const answer = await gateway.inject(request)
    look(where, Buffer.concat([Buffer.from(answer.rawHeaders.join('\n')), Buffer.from('\n'), answer.body]))
    return answer
  }
  const streams = ['/_fn/events', '/_fn/logs?file=runtime&follow=1'].map(async url => {
    const response = await gateway.fetch(`http://localhost${url}`, { headers: OWNER })
    return { where: url.startsWith('/_fn/events') ? 'events' : 'followed log', response }
  })
  const following = (await Promise.all(streams)).map(async ({ where, response }) => look(where, await response.text()))

  await callFunctions(ask)
  const one: Sweep = { gateway, tree, search, canaries, ask, job: '', jobEnded }
  await walk(t, one)
  for (const url of ['/openapi.json', '/docs', '/', '/_fn', '/console', `/.env`]) await ask({ url })
  // The function's own: it answers for everything below its name.
  await ask({ url: `/${toName(FIRST)}/fn.env.json` }, 'answers of functions')
  look('catalog()', JSON.stringify([gateway.catalog(), gateway.health(), gateway.warnings]))
  await gateway.close({ timeoutMs: 5000 })
  await Promise.all(following)
  for (const { name, bytes } of filesBelow(tree.path('project/functions/.svc'))) {
    const where = name.startsWith('/jobs/') ? 'files of jobs' : 'files below .svc'
    look(where, name)
    look(where, bytes)
  }
  return one
}

/** Calls every function in each way, as a client with secrets of its own. */
async function callFunctions(ask: Sweep['ask']): Promise<void> {
  const headers = {
    Authorization: `Bearer ${SECRETS['Authorization of a client']}`,
    Cookie: `sid=${SECRETS['cookie of a client']}`,
  }
  const key = SECRETS['query of a client']
  for (const runtime of RUNTIMES) {
    const url = `/${toName(runtime)}`
    for (const query of [{ key }, { key, fail: '1' }, { key, upstream: '1' }])
      await ask({ url, method: 'POST', query, headers, body: SECRETS['body of a client'] }, 'answers of functions')
    await ask({ url, method: 'OPTIONS', query: { key }, headers }, 'answers of functions')
    await ask({ url: `${url}-nothing`, query: { key }, headers }, 'answers of functions')
  }
}

/** Asks every endpoint that there is: as its owner, as a stranger, and with a body that is broken. */
async function walk(t: Test, one: Sweep): Promise<void> {
  const { paths } = (await one.gateway.inject('/openapi.json')).json() as { paths: Record<string, object> }
  const endpoints = Object.entries(paths)
    .filter(([path]) => path.startsWith('/_fn/'))
    .flatMap(([path, methods]) => Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`))
  t.same(
    endpoints.filter(name => ROWS[name] === undefined),
    [],
    'endpoints without a row: add how they are asked',
  )
  t.same(
    Object.keys(ROWS).filter(name => !endpoints.includes(name)),
    [],
    'rows without an endpoint',
  )
  // In the order of the rows: some of them need what others have made.
  for (const [name, toAsk] of Object.entries(ROWS)) {
    const [method = '', path = ''] = name.split(' ')
    const { path: url = path, ...asked } = await toAsk(one)
    const answer = await one.ask({ ...asked, method, url, headers: OWNER }, name)
    if (answer.status >= 400 && name !== 'GET /_fn/events') t.fail(`${name}: ${answer.status} ${answer.text()}`)
    if (name === 'POST /_fn/jobs') one.job = (answer.json() as { id: string }).id
    await one.ask({ ...asked, method, url, remoteAddress: '203.0.113.9', headers: { cookie: 'fngw_session=x' } }, name)
    await one.ask({ ...asked, method, url, headers: OWNER, body: '{"name": [' }, name)
    await one.ask({ method, url: `${url}?token=${SECRETS['query of a client']}`, headers: OWNER }, `${name}, refused`)
  }
  await one.ask({ url: '/_fn/metrics?format=json', headers: OWNER }, 'GET /_fn/metrics format=json')
  // Fields of a call that break their rules: the refusal is in the logs too.
  const wrong = {
    query: SECRETS['query of a client'],
    headers: {
      Authorization: `${SECRETS['Authorization of a client']}\n`,
      Cookie: [SECRETS['cookie of a client'], {}],
    },
    context: SECRETS['Authorization of a client'],
    body_base64: SECRETS['body of a client'],
  }
  const wrongJob = { callback_url: `http://user@x/?token=${SECRETS['URL of a callback']}`, ...wrong }
  for (const [url, fields] of [
    ['/_fn/invoke', wrong],
    ['/_fn/jobs', wrongJob],
  ] as const) {
    for (const [field, value] of Object.entries(fields)) {
      const body = { name: toName(FIRST), method: 'GET', [field]: value }
      const answer = await one.ask({ method: 'POST', url, headers: OWNER, body }, `POST ${url}, wrong ${field}`)
      t.match([answer.status, answer.text()], [400, field], `${url}: ${field} is refused by its name`)
    }
  }
  for (const body of [
    { username: 'admin', password: `${PASSWORD}x` },
    { username: PASSWORD, password: [PASSWORD] },
    { token: { is: SECRETS['admin token'] } },
    { token: SECRETS['admin token'], [PASSWORD]: 1 },
  ])
    await one.ask({ method: 'POST', url: '/_fn/login', body }, 'POST /_fn/login, wrong')
  await one.ask(
    {
      method: 'PUT',
      url: '/_fn/function-env',
      query: { name: toName(FIRST), runtime: FIRST },
      headers: OWNER,
      body: { SET_TOKEN: { value: [SECRETS['secret set over HTTP']] }, 'bad key': SECRETS['secret set over HTTP'] },
    },
    'PUT /_fn/function-env, wrong value',
  )
  for (const file of ['runtime', 'access'])
    await one.ask({ url: '/_fn/logs', query: { file, lines: 2000 }, headers: OWNER }, `GET /_fn/logs file=${file}`)
}

function filesBelow(folder: string): { name: string; bytes: Buffer }[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name))
    .map(path => ({ name: path.slice(folder.length), bytes: readFileSync(path) }))
}

t.test('[control/secrets.3] the search sees a secret in every form', async t => {
  for (const secret of Object.values(SECRETS)) {
    for (const text of [
      secret,
      `x${encodeURIComponent(secret)}y`,
      JSON.stringify({ a: secret }),
      Buffer.from(secret).toString('hex'),
      ...['', 'a', 'ab', 'abc'].flatMap(before => {
        const bytes = Buffer.from(`${before}${secret}after`)
        return [bytes.toString('base64'), bytes.toString('base64url')]
      }),
    ]) {
      const search = new SecretSearch({ it: secret })
      search.look('here', text)
      if (search.placesOf('it').length === 0) t.fail(`${secret} is not seen in ${text}`)
    }
  }
  t.throws(() => new SecretSearch({ it: 'short' }))
  t.ok(formsOf('abcdefghijkl').every(form => form.length >= 12))
})

t.test(
  '[control/secrets.1, control/secrets.2] no secret is in any answer, document, event, log, metric or file',
  async t => {
    const { search, canaries } = await sweep(t, '')
    // What a job is asked with has to be kept until it runs.
    const kept = ['URL of a callback in files of jobs', 'header of a job in files of jobs']
    t.same([...search.found].sort(), kept)
    for (const [place, canary] of SHOWN)
      t.ok(canaries.placesOf(canary).includes(place), `${place} was searched: it shows the canary "${canary}"`)
  },
)

t.test(
  '[control/secrets.3, control/secrets.4] a function that tells its own secret tells it in its answer alone',
  async t => {
    const { search } = await sweep(t, 'yes')
    t.same(search.placesOf('secret of fn.env.json'), [
      'GET /_fn/jobs/{id}/result',
      'POST /_fn/invoke',
      'answers of functions',
    ])
    const others = [...search.found].filter(text => !/^secret of fn\.env\.json in | in files of jobs$/.test(text))
    t.same(others, [], 'and nothing else is')
  },
)
