import t from 'tap'
import { runCli } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(120_000)

const TREE = {
  'users/index.js': 'export const handler = () => 1\n',
  'users/[id].js': 'export const handler = () => 1\n',
  'users/get.me.py': 'def handler(event):\n    return 1\n',
  'users/_shared.js': 'export const x = 1\n',
  'twice/index.js': 'export const handler = () => 1\n',
  'twice.py': 'def handler(event):\n    return 1\n',
  'hello/handler.js': 'export const handler = () => 1\n',
  'hello/handler.py': 'def handler(event):\n    return 1\n',
}

t.test('[bin/routes.1] routes prints the table and its problems', async t => {
  const { root, cleanup } = await makeTree(TREE)
  t.teardown(cleanup)
  const { status, stdout, stderr } = runCli(['routes', '.'], { cwd: root })
  t.equal(status, 0)
  t.same(
    stdout
      .trimEnd()
      .split('\n')
      .map(line => line.trim().split(/\s+/)),
    [
      ['METHODS', 'PATH', 'RUNTIME', 'FILE'],
      ['GET', '/hello', 'python', 'hello/handler.py'],
      ['409', '/twice', 'conflict', 'twice/index.js,', 'twice.py'],
      ['GET', '/users', 'node', 'users/index.js'],
      ['GET', '/users/:id', 'node', 'users/[id].js'],
      ['GET', '/users/me', 'python', 'users/get.me.py'],
    ],
  )
  t.match(stderr, /warning DUPLICATE_ENTRY: hello\/handler\.py.*ignored beside it: handler\.js\n +fix: /)
  const json = JSON.parse(runCli(['routes', '--json'], { cwd: root }).stdout)
  t.same(Object.keys(json), ['mapped_routes', 'mapped_route_conflicts', 'warnings', 'ignored'])
  t.match(json.mapped_routes['/users/:id'], [{ runtime: 'node', methods: ['GET'], file: 'users/[id].js' }])
  t.equal(json.mapped_route_conflicts['/twice'].length, 2)
})

t.test('[bin/routes.1] functions without a route are marked private', async t => {
  const { root, cleanup } = await makeTree({
    'a.js': 'export const handler = () => 1\n',
    'jobs/sync.js': 'export const handler = () => 1\n',
    'jobs/fn.config.json': '{ "private": true }',
    'none/handler.js': 'export const handler = () => 1\n',
    'none/fn.config.json': '{ "invoke": { "routes": [] } }',
    'none/v2/handler.js': 'export const handler = () => 1\n',
    'none/v2/fn.config.json': '{ "private": true }',
  })
  t.teardown(cleanup)
  const rows = runCli(['routes'], { cwd: root }).stdout.trimEnd().split('\n').slice(1)
  t.same(
    rows.map(line => line.trim().split(/ {2,}/)),
    [
      ['GET', '/a', 'node', 'a.js'],
      ['private', 'jobs/sync', 'node', 'jobs/sync.js'],
      ['private', 'none', 'node', 'none/handler.js'],
      ['private', 'none/v2', 'node', 'none/v2/handler.js'],
      ['private', 'none@v2', 'node', 'none/v2/handler.js'],
    ],
  )
})

t.test('[bin/routes.1] versions and homes are in the table', async t => {
  const { root, cleanup } = await makeTree({
    'fn.config.json': '{ "home": { "route": "/hello" } }',
    'shop/fn.config.json': '{ "home": { "redirect": "/hello" } }',
    'hello/handler.js': 'export const handler = () => 1\n',
    'hello/v2/handler.py': 'def handler(event):\n    return 1\n',
  })
  t.teardown(cleanup)
  const { stdout } = runCli(['routes'], { cwd: root, env: { FN_HOME_REDIRECT: '' } })
  t.same(
    stdout
      .trimEnd()
      .split('\n')
      .slice(1)
      .map(line => line.trim().split(/ {2,}/)),
    [
      ['GET', '/', 'home', '/hello (fn.config.json)'],
      ['GET', '/hello', 'node', 'hello/handler.js'],
      ['GET', '/hello/v2', 'python', 'hello/v2/handler.py'],
      ['GET', '/hello@v2', 'python', 'hello/v2/handler.py'],
      ['GET', '/shop', 'home', 'redirect to /hello (shop/fn.config.json)'],
    ],
  )
})

t.test('[bin/routes.2] the exit code says whether somebody answers', async t => {
  const { root, cleanup } = await makeTree({ ...TREE, 'fn.config.json': '{ "home": { "redirect": "/hello" } }' })
  t.teardown(cleanup)
  const status = (method: string, path: string) => runCli(['explain', method, path], { cwd: root }).status
  t.same([status('GET', '/users/7'), status('GET', '/'), status('GET', '/_fn/health')], [0, 0, 0])
  t.same([status('GET', '/nope'), status('POST', '/users/7'), status('GET', '/twice')], [1, 1, 1])
})

t.test('[bin/routes.2] explain says who answers, who lost and what is ignored', async t => {
  const { root, cleanup } = await makeTree(TREE)
  t.teardown(cleanup)
  const explain = (...args: string[]): string => runCli(['explain', ...args], { cwd: root }).stdout
  t.match(
    explain('GET', '/users/me'),
    /answered by users\/get\.me\.py \(python[\s\S]*lost \(less-specific\): users\/\[id\]\.js/,
  )
  t.match(explain('get', '/users/7', '.'), /answered by users\/\[id\]\.js[\s\S]*id = "7"/)
  t.match(explain('POST', '/users/7'), /no route matches: 405.*Allow: GET, HEAD[\s\S]*lost \(method\)/)
  t.match(
    explain('GET', '/twice'),
    /no route matches: 409[\s\S]*lost \(conflict\): twice\/index\.js[\s\S]*lost \(conflict\): twice\.py/,
  )
  t.match(explain('GET', '/users/shared'), /ignored: users\/_shared\.js: /)
  t.match(explain('GET', '/hello'), /answered by hello\/handler\.py[\s\S]*hello\/handler\.js/)
  const json = JSON.parse(explain('GET', '/nope', '--json'))
  t.match(json, { winner: null, refusal: { status: 404 }, losers: [] })
})
