import { createHash, scryptSync } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Endpoint } from '../../lib/control/endpoint.ts'
import type { GatewayOptions } from '../../lib/index.ts'
import { type ControlBed, makeControlBed } from '../helpers/control-bed.ts'
import { listEndpoints } from '../../build/endpoint-meanings.ts'

// A machine with other work to do is many times slower.
t.setTimeout(180_000)

const TREE = {
  'hello/handler.lua': 'function handler() return 1 end\n',
  'hello/fn.config.json': '{ "runtime": "lua" }\n',
  'hello/fn.env.json': '{ "A": "x" }\n',
}

interface Sample {
  url: string
  /** Of a request that would change something, or answer. Absent: the endpoint reads no body. */
  body?: unknown
}

/** Each endpoint with a request that is right. A new endpoint needs a row here, and one on the page. */
const SAMPLES: Readonly<Record<string, Sample>> = {
  'GET /_fn/health': { url: '/_fn/health' },
  'GET /_fn/catalog': { url: '/_fn/catalog' },
  'GET /_fn/doctor': { url: '/_fn/doctor' },
  'GET /_fn/fleet': { url: '/_fn/fleet' },
  'GET /_fn/schedules': { url: '/_fn/schedules' },
  'GET /_fn/schedules/next': { url: '/_fn/schedules/next?name=hello' },
  'POST /_fn/schedules/run': { url: '/_fn/schedules/run', body: { name: 'hello' } },
  'POST /_fn/reload': { url: '/_fn/reload' },
  'GET /_fn/reload': { url: '/_fn/reload' },
  'GET /_fn/packs': { url: '/_fn/packs' },
  'GET /_fn/function': { url: '/_fn/function?name=hello' },
  'POST /_fn/function': { url: '/_fn/function?name=new&runtime=lua', body: {} },
  'DELETE /_fn/function': { url: '/_fn/function?name=hello' },
  'GET /_fn/function-config': { url: '/_fn/function-config?name=hello' },
  'PUT /_fn/function-config': { url: '/_fn/function-config?name=hello', body: { timeout_ms: 5 } },
  'GET /_fn/function-env': { url: '/_fn/function-env?name=hello' },
  'PUT /_fn/function-env': { url: '/_fn/function-env?name=hello', body: { B: 'y' } },
  'PUT /_fn/function-code': { url: '/_fn/function-code?name=hello', body: { code: 'x' } },
  'POST /_fn/invoke': { url: '/_fn/invoke', body: { name: 'hello', method: 'GET' } },
  'GET /_fn/explain': { url: '/_fn/explain?path=/hello' },
  'GET /_fn/events': { url: '/_fn/events' },
  'GET /_fn/logs': { url: '/_fn/logs' },
  'GET /_fn/metrics': { url: '/_fn/metrics' },
  'GET /_fn/jobs': { url: '/_fn/jobs' },
  'POST /_fn/jobs': { url: '/_fn/jobs', body: { name: 'hello' } },
  'GET /_fn/jobs/:id': { url: '/_fn/jobs/job-1' },
  'DELETE /_fn/jobs/:id': { url: '/_fn/jobs/job-1' },
  'GET /_fn/jobs/:id/input': { url: '/_fn/jobs/job-1/input' },
  'POST /_fn/jobs/:id/retry': { url: '/_fn/jobs/job-1/retry', body: {} },
  'GET /_fn/jobs/:id/result': { url: '/_fn/jobs/job-1/result' },
  'POST /_fn/login': { url: '/_fn/login', body: { token: 'token-1' } },
  'POST /_fn/logout': { url: '/_fn/logout' },
  'GET /_fn/settings': { url: '/_fn/settings' },
  'GET /_fn/workers': { url: '/_fn/workers' },
  'GET /_fn/dependencies': { url: '/_fn/dependencies' },
  'GET /_fn/ui-state': { url: '/_fn/ui-state' },
  'POST /_fn/ui-state': { url: '/_fn/ui-state', body: { ui_enabled: false } },
  'PUT /_fn/ui-state': { url: '/_fn/ui-state', body: { ui_enabled: false } },
  'PATCH /_fn/ui-state': { url: '/_fn/ui-state', body: { ui_enabled: false } },
  'DELETE /_fn/ui-state': { url: '/_fn/ui-state' },
}

const ENDPOINTS = listEndpoints()
const sampleOf = ({ method, path }: Endpoint): Sample => SAMPLES[`${method} ${path}`] ?? { url: path }

const SALT = Buffer.alloc(16, 7)
const HASH = `scrypt:16384:8:1:${SALT.toString('hex')}:${scryptSync('right', SALT, 32).toString('hex')}`

/** How a gateway is set up. */
const GATEWAYS = {
  usual: {},
  writable: { consoleWriteEnabled: true },
  off: { consoleApiEnabled: false, consoleWriteEnabled: true },
  everywhere: { consoleLocalOnly: false },
  'everywhere, writable': { consoleLocalOnly: false, consoleWriteEnabled: true },
  login: { consoleLoginApi: true, consoleLocalOnly: false, consoleWriteEnabled: true },
  'no ui': { uiEnabled: false, consoleWriteEnabled: true },
} satisfies Record<string, GatewayOptions>

const OK = 'ok'
const OFF = '404 console api disabled'
const WRONG = '401 wrong admin token'
const LOCAL = '403 console api local-only'
const LOGIN = '401 login required'
const CROSS = '403 cross-site request refused'
const MARK = '403 send the header X-Fngw-Request: 1, or Content-Type: application/json'
const WRITE = '403 console write disabled'

type Headers = Record<string, string>
const REMOTE = '203.0.113.9'
const JSON_TYPE: Headers = { 'content-type': 'application/json' }
const TOKEN: Headers = { 'x-fn-admin-token': 'token-1' }
const BAD_TOKEN: Headers = { 'x-fn-admin-token': 'token-2' }

interface CallerRow {
  name: string
  gateway: keyof typeof GATEWAYS
  headers?: Headers
  remote?: boolean
  session?: 'token' | 'password' | 'ended'
  /** What an endpoint of each kind of access answers: let in, or status and error. */
  read: string
  acts: string
  login: string
  write: string
}

/** Callers of a writable gateway that fare alike. */
function rows(
  cells: Pick<CallerRow, 'read' | 'acts' | 'login' | 'write'>,
  callers: readonly { name: string; headers: Headers }[],
): CallerRow[] {
  return callers.map(caller => ({ ...caller, gateway: 'writable', ...cells }))
}

/** The table: who asks, and what endpoints of each access answer. Health is open to all of them. */
const CALLERS: readonly CallerRow[] = [
  { name: 'a local program', gateway: 'usual', read: OK, acts: OK, login: OK, write: WRITE },
  { name: 'a local program', gateway: 'writable', read: OK, acts: OK, login: OK, write: OK },
  { name: 'a local program', gateway: 'off', read: OFF, acts: OFF, login: OFF, write: OFF },
  { name: 'a local program', gateway: 'login', read: LOGIN, acts: LOGIN, login: OK, write: LOGIN },
  { name: 'the token', gateway: 'usual', headers: TOKEN, read: OK, acts: OK, login: OK, write: OK },
  { name: 'the token', gateway: 'off', headers: TOKEN, read: OFF, acts: OFF, login: OFF, write: OFF },
  { name: 'the token', gateway: 'login', headers: TOKEN, read: OK, acts: OK, login: OK, write: OK },
  { name: 'the token', gateway: 'usual', remote: true, headers: TOKEN, read: OK, acts: OK, login: OK, write: OK },
  {
    name: 'a wrong token',
    gateway: 'writable',
    headers: BAD_TOKEN,
    read: WRONG,
    acts: WRONG,
    login: WRONG,
    write: WRONG,
  },
  {
    name: 'a wrong token',
    gateway: 'usual',
    remote: true,
    headers: BAD_TOKEN,
    read: WRONG,
    acts: WRONG,
    login: WRONG,
    write: WRONG,
  },
  { name: 'a remote program', gateway: 'writable', remote: true, read: LOCAL, acts: LOCAL, login: LOCAL, write: LOCAL },
  { name: 'a remote program', gateway: 'off', remote: true, read: OFF, acts: OFF, login: OFF, write: OFF },
  { name: 'a remote program', gateway: 'everywhere', remote: true, read: OK, acts: OK, login: OK, write: WRITE },
  { name: 'a remote program', gateway: 'everywhere, writable', remote: true, read: OK, acts: OK, login: OK, write: OK },
  { name: 'a remote program', gateway: 'login', remote: true, read: LOGIN, acts: LOGIN, login: OK, write: LOGIN },
  ...rows({ read: LOCAL, acts: LOCAL, login: LOCAL, write: LOCAL }, [
    { name: 'a rebound name', headers: { host: 'evil.example' } },
    { name: 'a proxy that nobody trusts', headers: { 'x-forwarded-for': '127.0.0.1' } },
    { name: 'another proxy', headers: { via: '1.1 proxy' } },
  ]),
  ...rows({ read: CROSS, acts: CROSS, login: CROSS, write: CROSS }, [
    { name: 'a page of another site', headers: { origin: 'http://evil.example' } },
    { name: 'a page of another port', headers: { origin: 'http://localhost:1' } },
    { name: 'a page without origin', headers: { origin: 'null' } },
    { name: 'a link of another site', headers: { 'sec-fetch-site': 'cross-site' } },
    { name: 'a marked page of another site', headers: { origin: 'http://evil.example', 'x-fngw-request': '1' } },
  ]),
  ...rows({ read: OK, acts: MARK, login: MARK, write: MARK }, [
    { name: 'a form', headers: { 'content-type': 'application/x-www-form-urlencoded' } },
    { name: 'a form of its own site', headers: { 'content-type': 'text/plain', 'sec-fetch-site': 'same-origin' } },
  ]),
  {
    name: 'a script of its own site',
    gateway: 'writable',
    headers: { 'sec-fetch-site': 'same-origin', 'x-fngw-request': '1' },
    ...{ read: OK, acts: OK, login: OK, write: OK },
  },
  { name: 'a password', gateway: 'usual', session: 'password', read: OK, acts: OK, login: OK, write: WRITE },
  {
    name: 'a password',
    gateway: 'usual',
    session: 'password',
    remote: true,
    read: LOCAL,
    acts: LOCAL,
    login: LOCAL,
    write: LOCAL,
  },
  { name: 'a password', gateway: 'login', session: 'password', remote: true, read: OK, acts: OK, login: OK, write: OK },
  {
    name: 'a token session',
    gateway: 'usual',
    session: 'token',
    remote: true,
    read: OK,
    acts: OK,
    login: OK,
    write: OK,
  },
  {
    name: 'a token session, from another site',
    gateway: 'usual',
    session: 'token',
    headers: { origin: 'http://evil.example' },
    ...{ read: CROSS, acts: CROSS, login: CROSS, write: CROSS },
  },
  {
    name: 'a token session, from a form',
    gateway: 'usual',
    session: 'token',
    headers: { 'content-type': 'text/plain' },
    ...{ read: OK, acts: MARK, login: MARK, write: MARK },
  },
  {
    name: 'a session that ended',
    gateway: 'login',
    session: 'ended',
    read: LOGIN,
    acts: LOGIN,
    login: OK,
    write: LOGIN,
  },
  {
    name: 'a made-up session',
    gateway: 'usual',
    remote: true,
    headers: { cookie: `fngw_session=${'A'.repeat(43)}` },
    ...{ read: LOCAL, acts: LOCAL, login: LOCAL, write: LOCAL },
  },
  {
    name: 'a method in a header',
    gateway: 'usual',
    headers: { 'x-http-method-override': 'GET' },
    read: OK,
    acts: OK,
    login: OK,
    write: WRITE,
  },
]

/** Everything below a folder, but for logs and what else a gateway writes for itself. */
function hashTree(root: string): string {
  const hash = createHash('sha256')
  for (const name of (readdirSync(root, { recursive: true }) as string[]).sort()) {
    if (name === '.svc' || name.startsWith('.svc/')) continue
    const path = join(root, name)
    hash.update(name)
    if (statSync(path).isFile()) hash.update(readFileSync(path))
  }
  return hash.digest('hex')
}

async function logIn({ ask }: ControlBed, session: CallerRow['session']): Promise<Headers> {
  if (session === undefined) return {}
  const body = session === 'password' ? { username: 'admin', password: 'right' } : { token: 'token-1' }
  const answer = await ask('POST', '/_fn/login', body)
  const cookie = answer.headers['set-cookie']!.split(';')[0]!
  if (session === 'ended') await ask('POST', '/_fn/logout', undefined, { cookie })
  return { cookie }
}

t.test('[control/access.13] every endpoint has a sample', t => {
  const names = ENDPOINTS.map(({ method, path }) => `${method} ${path}`)
  t.same(
    names.filter(name => SAMPLES[name] === undefined),
    [],
    'endpoints without a row',
  )
  t.end()
})

t.test(
  '[control/access.13] every caller at every endpoint: let in, or refused with its reason and nothing changed',
  async t => {
    const beds = new Map<string, ControlBed>()
    for (const [name, options] of Object.entries(GATEWAYS)) {
      const login = { uiEnabled: true, adminToken: 'token-1', consoleLoginPasswordHash: HASH }
      beds.set(
        name,
        await makeControlBed(t, TREE, { ...login, consoleWriteEnabled: false, runtimes: ['lua'], ...options }),
      )
    }
    let cells = 0
    for (const row of CALLERS) {
      const bed = beds.get(row.gateway)!
      const before = hashTree(bed.tree.root)
      const catalog = JSON.stringify((bed.gateway.catalog() as { mapped_routes: unknown }).mapped_routes)
      const cookie = await logIn(bed, row.session)
      // Logging out comes last: it ends the session.
      const endpoints = [...ENDPOINTS].sort(
        (a, b) => Number(a.path === '/_fn/logout') - Number(b.path === '/_fn/logout'),
      )
      for (const { method, path, access } of endpoints) {
        const { url, body } = sampleOf({ method, path } as Endpoint)
        if (access === 'page') throw new Error('no endpoint is the page')
        const wanted = access === 'open' ? OK : row[access]
        // Who is let in shows it by a field that no endpoint has, so that nothing happens; who is refused asks for the real thing.
        const probe = wanted === OK ? `${url}${url.includes('?') ? '&' : '?'}probe=1` : url
        const type = body === undefined ? {} : JSON_TYPE
        const answer = await bed.gateway.inject({
          method,
          url: probe,
          headers: { ...type, ...row.headers, ...cookie },
          ...(body !== undefined && { body }),
          ...(row.remote === true && { remoteAddress: REMOTE }),
        })
        const { error } = answer.json() as { error?: string }
        const name = `${row.name} (${row.gateway}${row.remote === true ? ', remote' : ''}): ${method} ${path}`
        if (access === 'open') t.equal(answer.status, 200, name)
        else if (wanted === OK) t.match(`${answer.status} ${error}`, /^400 query field "probe" is not known/, name)
        else t.equal(`${answer.status} ${error}`, wanted, name)
        t.equal(answer.headers['content-type'], 'application/json', name)
        cells += 1
      }
      t.equal(hashTree(bed.tree.root), before, `${row.name} (${row.gateway}): nothing is changed on disk`)
      const after = JSON.stringify((bed.gateway.catalog() as { mapped_routes: unknown }).mapped_routes)
      t.equal(after, catalog, `${row.name} (${row.gateway}): nor in force`)
    }
    t.equal(cells, CALLERS.length * ENDPOINTS.length)
    const unknown = await beds.get('usual')!.gateway.inject({ url: '/_fn/none', remoteAddress: REMOTE })
    t.equal(unknown.status, 403, 'who is refused is not told what exists')
  },
)

const PATHS = [
  '../hello',
  'hello/../hello',
  '..',
  '.',
  '/etc/passwd',
  '%2e%2e/hello',
  '..%2fhello',
  'hello%00',
  '..%5chello',
  'hello/.',
  '',
]
const DEEP = `${'['.repeat(5000)}${']'.repeat(5000)}`
const BODIES: readonly (readonly [what: string, body: string | Buffer, statuses: readonly number[]])[] = [
  ['nothing', '', [400]],
  ['no JSON', '{', [400]],
  ['a list', '[]', [400]],
  ['a text', '"x"', [400]],
  ['null', 'null', [400]],
  ['no UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), [400]],
  ['a byte too many', '{} x', [400]],
  ['a deep list', DEEP, [400]],
  ['a deep object', `{"name":${DEEP}}`, [400]],
]

t.test(
  '[control/control-plane.8, control/control-plane.9] names that are paths and bodies that are none, at every endpoint',
  async t => {
    const bed = await makeControlBed(t, TREE, { uiEnabled: true, adminToken: 'token-1', runtimes: ['lua'] })
    const before = hashTree(bed.tree.root)
    for (const endpoint of ENDPOINTS) {
      const { method, path } = endpoint
      const { url, body } = sampleOf(endpoint)
      const base = url.split('?')[0]!
      if (endpoint.query !== null && 'name' in endpoint.query) {
        for (const name of PATHS) {
          const runtime = method === 'POST' ? '&runtime=lua' : ''
          const [status, answer] = await bed.say(method, `${base}?name=${name}${runtime}`, body)
          t.ok(
            status >= 400 && status < 500 && typeof answer.error === 'string',
            `${method} ${base} name=${name}: ${status}`,
          )
          for (const field of ['runtime', 'version']) {
            const wrong = await bed.ask(method, `${base}?name=hello&${field}=${name === '' ? '%2f' : name}`, body)
            t.ok(wrong.status >= 400 && wrong.status < 500, `${method} ${base} ${field}=${name}: ${wrong.status}`)
          }
        }
      }
      if (path.includes('/:')) {
        for (const name of PATHS.filter(part => part !== '' && part !== '.')) {
          const answer = await bed.ask(method, path.replace(/:\w+/, name), body)
          t.ok(answer.status >= 400 && answer.status < 500, `${method} ${path} ${name}: ${answer.status}`)
        }
      }
      if (body === undefined) continue
      for (const [what, text, statuses] of BODIES) {
        const answer = await bed.ask(method, url, text)
        t.ok(statuses.includes(answer.status), `${method} ${path} with ${what}: ${answer.status}`)
        t.type((answer.json() as { error: unknown }).error, 'string')
      }
      const huge = await bed.ask(method, url, '{}', { 'content-length': '1000000000' })
      t.match([huge.status, huge.json()], [413, { error: String }], `${method} ${path} with 1 GB: ${huge.status}`)
    }
    t.equal(hashTree(bed.tree.root), before, 'nothing is changed')
  },
)
