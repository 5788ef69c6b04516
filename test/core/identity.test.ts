import t from 'tap'
import * as identity from '../../lib/core/identity.ts'

t.test('[core/identity.1, core/identity.2, core/identity.4] names', async t => {
  for (const name of ['hello', 'A', '_x', '-', 'a_b-C9', 'api/v1/users', 'a'.repeat(512)])
    t.ok(identity.isFunctionName(name), name)
  const bad = ['', '/', '/a', 'a/', 'a//b', 'a.b', 'a b', 'é', 'a\n', '../a', 'a/./b', 'a@b', '[id]', 'a'.repeat(513)]
  for (const name of bad) t.notOk(identity.isFunctionName(name), JSON.stringify(name))
  t.notOk(identity.isNameSegment('a/b'))
})

t.test('[core/identity.3, core/identity.4] versions', async t => {
  for (const version of ['v1', '1.0.3', '_', 'RC-1', '...', '2024-05-01']) t.ok(identity.isVersion(version), version)
  for (const version of ['', '.', '..', 'a b', 'a/b', 'é', 'v1\n', '@'])
    t.notOk(identity.isVersion(version), JSON.stringify(version))
})

t.test('[core/identity.6] keys', async t => {
  t.equal(identity.toFunctionKey('node', 'api/users', null), 'node/api/users@default')
  t.equal(identity.toFunctionKey('python', 'hello', 'v2'), 'python/hello@v2')
})

t.test('[core/identity.7] runtimes, their order and extensions', async t => {
  t.same(identity.RUNTIMES, ['python', 'node', 'php', 'lua', 'go', 'rust'])
  t.same(identity.DEFAULT_RUNTIMES, ['python', 'node', 'php', 'lua'])
  const extensions = identity.RUNTIMES.map(runtime =>
    [...identity.RUNTIME_OF_EXTENSION]
      .filter(([, name]) => name === runtime)
      .map(([extension]) => extension)
      .join(' '),
  )
  t.same(extensions, ['.py', '.js .ts .mjs .cjs .mts .cts', '.php', '.lua', '.go', '.rs'])
  t.ok(identity.isRuntimeName('go'))
  for (const value of ['Python', '', 'ruby', null, 1, 'toString']) t.notOk(identity.isRuntimeName(value), String(value))
})

t.test('[core/identity.8] methods', async t => {
  for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) t.ok(identity.isMethod(method), method)
  for (const method of ['get', 'HEAD', 'OPTIONS', 'TRACE', '', null]) t.notOk(identity.isMethod(method), String(method))
})

t.test('[core/identity.9] reserved paths', async t => {
  for (const path of ['/_fn', '/_fn/', '/_fn/health', '/console', '/console/x/y'])
    t.ok(identity.isReservedPath(path), path)
  for (const path of ['/', '/_fnx', '/consoles', '/x/_fn', '/Console', '/x/console'])
    t.notOk(identity.isReservedPath(path), path)
})
