import t from 'tap'
import {
  extensionOf,
  isConfigName,
  isSourceName,
  manifestRuntime,
  nameToSegment,
  parseFileName,
  type RouteFile,
} from '../../lib/discovery/layouts.ts'

const routeOf = (name: string): RouteFile => {
  const parsed = parseFileName(name)
  if (parsed.kind !== 'route') throw new Error(`${name} is ${parsed.kind}`)
  return parsed
}

t.test('[discovery/layouts.12, discovery/layouts.13, discovery/layouts.15] names of routes', async t => {
  const rows: [string, string, string | null, string, boolean, boolean][] = [
    // name, runtime, method, path, stands for its folder, explicit
    ['hello.js', 'node', null, 'hello', false, false],
    ['Keep_Me-2.py', 'python', null, 'Keep_Me-2', false, false],
    ['get.py', 'python', 'GET', '', false, true],
    ['DELETE.lua', 'lua', 'DELETE', '', false, true],
    ['get.items.py', 'python', 'GET', 'items', false, true],
    ['post.users.[id].js', 'node', 'POST', 'users/:id', false, true],
    ['[id].rs', 'rust', null, ':id', false, true],
    ['[...slug].go', 'go', null, ':slug*', false, true],
    ['[[...slug]].php', 'php', null, ':slug*?', false, true],
    ['a.b.[c].mts', 'node', null, 'a/b/:c', false, true],
    ['index.js', 'node', null, '', true, false],
    ['handler.go', 'go', null, '', true, false],
    ['main.cts', 'node', null, '', true, false],
    ['post.index.js', 'node', 'POST', '', false, true],
    ['users.handler.js', 'node', null, 'users', false, false],
    ['index.users.js', 'node', null, 'index/users', false, false],
    ['users.get.js', 'node', null, 'users/get', false, false],
    ['getter.js', 'node', null, 'getter', false, false],
    ['test_x.js', 'node', null, 'test_x', false, false],
  ]
  for (const [name, runtime, method, path, isFolderFile, isExplicit] of rows) {
    const { stem, extension, ...parsed } = routeOf(name)
    t.same(parsed, { kind: 'route', fileName: name, runtime, method, path, isFolderFile, isExplicit }, name)
    t.equal(stem + extension, name)
  }
})

t.test('[discovery/layouts.14, discovery/layouts.16] names that break a rule', async t => {
  const rows: [string, string, RegExp][] = [
    ['get.post.items.js', 'AMBIGUOUS_METHOD_PREFIX', /two method prefixes, get and post/],
    ['PUT.patch.py', 'AMBIGUOUS_METHOD_PREFIX', /PUT and patch/],
    ['a..b.js', 'UNSUPPORTED_NAME', /an empty part between two dots/],
    ['ünï.js', 'UNSUPPORTED_NAME', /ASCII set in "ünï"/],
    ['with space.py', 'UNSUPPORTED_NAME', /ASCII/],
    ['[id.js', 'UNSUPPORTED_NAME', /malformed dynamic part "\[id"/],
    ['[[id]].js', 'UNSUPPORTED_NAME', /malformed dynamic part/],
    ['x[id].js', 'UNSUPPORTED_NAME', /malformed dynamic part/],
    [':id.js', 'UNSUPPORTED_NAME', /ASCII/],
    ['*.js', 'UNSUPPORTED_NAME', /ASCII/],
    ['{id}.js', 'UNSUPPORTED_NAME', /ASCII/],
  ]
  for (const [name, code, message] of rows)
    t.match(parseFileName(name), { kind: 'bad', code, message, hint: /./ }, name)
})

t.test('[discovery/layouts.17, discovery/layouts.18, discovery/layouts.42] private names', async t => {
  const rows: [string, RegExp, boolean, boolean][] = [
    // name, reason, inert, test
    ['_shared.js', /"_"/, false, false],
    ['_x.test.js', /"_"/, false, false],
    ['types.d.ts', /declaration/, true, false],
    ['types.d.mts', /declaration/, true, false],
    ['a.test.js', /test file/, true, true],
    ['a.spec.ts', /test file/, true, true],
    ['a_test.go', /test file/, true, true],
    ['test_a.py', /test file/, true, true],
    ['conftest.py', /test file/, true, true],
  ]
  for (const [name, reason, isInert, isTest] of rows)
    t.match(parseFileName(name), { kind: 'private', reason, isInert, isTest }, name)
  for (const name of [
    'x.d.js',
    'd.ts',
    'test.js',
    'spec.ts',
    'config.js',
    'get.config.js',
    'setup.js',
    'setup.py',
    'a_test.js',
  ])
    t.equal(parseFileName(name).kind, 'route', name)
})

t.test('[discovery/layouts.18] what is no source file', async t => {
  const rows: [string, RegExp | null][] = [
    ['notes.txt', null],
    ['a.rb', /no runtime runs \.rb files/],
    ['a.tsx', /\.tsx/],
    ['.hidden.js', null],
    ['.js', null],
    ['Makefile', null],
    ['js', null],
  ]
  for (const [name, reason] of rows) t.match(parseFileName(name), { kind: 'other', reason }, name)
})

t.test('[discovery/layouts.13] segments of folders and tokens', async t => {
  const good: [string, string, string][] = [
    ['users', 'static', 'users'],
    ['[id]', 'param', ':id'],
    ['[...all]', 'catch-all', ':all*'],
    ['[[...all]]', 'optional-catch-all', ':all*?'],
    ['__proto__', 'static', '__proto__'],
  ]
  for (const [name, kind, canonical] of good) t.match(nameToSegment(name), { kind, canonical }, name)
  for (const name of ['', ':id', '{id}', '*', 'a b', 'é', '[]', '[a b]', '[id', 'id]'])
    t.ok('problem' in nameToSegment(name), JSON.stringify(name))
})

t.test('[discovery/layouts.33, discovery/layouts.37] kinds of names', async t => {
  t.same(['a.js', 'a.b.ts', '.js', 'a', '.a.py', 'a.'].map(extensionOf), ['.js', '.ts', '', '', '.py', '.'])
  for (const name of ['a.js', 'a.py', '_a.rs', 'a.d.ts']) t.ok(isSourceName(name), name)
  for (const name of ['.a.js', 'a.json', 'a.rb', 'js']) t.notOk(isSourceName(name), name)
  for (const name of ['fn.config.json', 'fn.routes.json', 'fn.env.json']) t.ok(isConfigName(name), name)
  for (const name of ['fn.x.json', 'config.json', 'xfn.config.json']) t.notOk(isConfigName(name), name)
  t.same(['go.mod', 'go.sum', 'Cargo.toml', 'Cargo.lock', 'go.work', 'tsconfig.json'].map(manifestRuntime), [
    'go',
    'go',
    'rust',
    'rust',
    undefined,
    undefined,
  ])
})
