import t from 'tap'
import { parseRoutesFile } from '../../lib/config/function-config.ts'

const FILE = 'shop/fn.routes.json'
const parse = (given: unknown) => {
  const { value: routes, warnings: problems } = parseRoutesFile(JSON.stringify(given), FILE)
  return { routes, problems }
}

t.test('[config/function-config.18] a line gives methods, path and file', async t => {
  const cases: [definition: string, target: string, methods: string[], path: string, file: string][] = [
    ['GET /items', 'items.js', ['GET'], '/items', 'items.js'],
    ['GET,POST /items/:id', './a/items.py', ['GET', 'POST'], '/items/:id', 'a/items.py'],
    ['post, get  PUT /x', 'x.js', ['GET', 'POST', 'PUT'], '/x', 'x.js'],
    [' /plain/{id} ', 'x.js', ['GET'], '/plain/{id}', 'x.js'],
    ['DELETE /files/*', 'x.lua', ['DELETE'], '/files/*', 'x.lua'],
    ['/', 'root.php', ['GET'], '/', 'root.php'],
  ]
  for (const [definition, target, methods, path, file] of cases) {
    const { routes, problems } = parse({ routes: { [definition]: target } })
    t.same(problems, [], definition)
    t.same(routes, [{ methods, path, target: file, definition }])
  }
})

t.test('[config/function-config.19] a wrong line is a warning and the others stay', async t => {
  const wrong: [definition: string, target: unknown, message: RegExp][] = [
    [
      'FETCH /a',
      'x.js',
      /routes\["FETCH \/a"\] names the method FETCH, which is none of GET, POST, PUT, PATCH, DELETE/,
    ],
    ['GET items', 'x.js', /must be methods and a path that starts with \//],
    ['GET', 'x.js', /must be methods and a path/],
    ['', 'x.js', /must be methods and a path/],
    ['GET /_fn/x', 'x.js', /not below \/_fn or \/console/],
    ['GET //console', 'x.js', /not below/],
    ['GET /a/../_fn', 'x.js', /must be methods and a path/],
    ['GET /a?b=1', 'x.js', /must be methods and a path/],
    ['/a', '../x.js', /must be a file, relative to this folder and without \.\., got "\.\.\/x\.js"/],
    ['/a', '/etc/passwd', /must be a file/],
    ['/a', 'a\\b.js', /must be a file/],
    ['/a', '', /must be a file/],
    ['/a', 5, /got 5 \(number\)/],
    ['/a', null, /got null/],
  ]
  for (const [definition, target, message] of wrong) {
    const { routes, problems } = parse({ routes: { [definition]: target, '/good': 'good.js' } })
    t.same(
      routes.map(route => route.path),
      ['/good'],
      definition,
    )
    t.equal(problems.length, 1, definition)
    t.match(problems[0], { code: 'CONFIG_VALUE', path: FILE, message }, definition)
  }
  const partly = parse({ routes: { 'GET,FETCH /a': 'a.js' } })
  t.same(partly.routes[0]?.methods, ['GET'])
  t.equal(partly.problems.length, 1)
})

t.test('[config/function-config.20] a file of another shape has no routes and one warning', async t => {
  const cases: [value: unknown, message: RegExp][] = [
    [[], /fn\.routes\.json must be an object/],
    [{}, /routes is missing/],
    [{ routes: [] }, /routes must be an object/],
    [{ routes: 'x' }, /routes must be an object/],
    [{ routes: null }, /routes must be an object/],
  ]
  for (const [value, message] of cases) {
    const { routes, problems } = parse(value)
    t.same(routes, [])
    t.match(problems, [{ message }], JSON.stringify(value))
    t.equal(problems.length, 1)
  }
  t.match(parse({ $schema: 'x', route: {}, routes: {} }).problems, [
    { message: /route is not a known key, did you mean routes/ },
  ])
  t.match(parseRoutesFile('{"routes": {', FILE), { value: [], warnings: [{ code: 'CONFIG_NOT_JSON' }] })
  t.same(
    parseRoutesFile('{"routes":{"/a":"a.js","/a":"b.js"}}', FILE).value.map(({ target }) => target),
    ['b.js'],
  )
})
