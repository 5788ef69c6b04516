import t from 'tap'
import { explainIgnored } from '../../lib/discovery/discover.ts'
import { discoverTree } from '../helpers/discovery.ts'

const TREE = {
  '_hello.js': '',
  'hello.rb': '',
  'get.post.items.js': '',
  'users/handler.py': '',
  'users/list.js': '',
  'users/handler.js': '',
  'users/_lib/db.py': '',
  'console.js': '',
  'bad(1)/x.js': '',
  'go/tool/handler.go': '',
  'python/a/b/c/d/handler.py': '',
  'shop/fn.config.json': '{',
  'shop/handler.js': '',
  'tools/vite.config.ts': '',
}

t.test('[discovery/layouts.40] what a URL might have meant', async t => {
  const discovery = discoverTree(TREE)
  const cases: [string, string[], string[]][] = [
    ['/hello', ['_hello.js', 'hello.rb'], []],
    ['/HELLO', ['_hello.js', 'hello.rb'], []],
    ['/items', ['get.post.items.js'], ['AMBIGUOUS_METHOD_PREFIX']],
    ['/users', ['users/handler.js'], ['DUPLICATE_ENTRY']],
    ['/users/list', ['users/list.js'], []],
    ['/users/lib/db', ['users/_lib'], []],
    ['/console', [], ['RESERVED_PREFIX']],
    ['/bad(1)/x', ['bad(1)'], ['UNSUPPORTED_NAME']],
    ['/tool', ['go/tool/handler.go'], []],
    ['/a/b/c/d', ['python/a/b/c/d'], ['NAMESPACE_DEPTH']],
    ['/shop/x', [], ['CONFIG_NOT_JSON', 'CONFIG_CLOSED']],
    ['/tools/vite.config', ['tools/vite.config.ts'], []],
    ['/tools/vite.config.ts', ['tools/vite.config.ts'], []],
    ['/tools/vite/config', ['tools/vite.config.ts'], []],
    ['/nothing', [], []],
    ['/', [], []],
  ]
  for (const [path, ignored, codes] of cases) {
    const found = explainIgnored(discovery, path)
    t.same(
      found.ignored.map(entry => entry.path),
      ignored,
      path,
    )
    t.same(
      found.warnings.map(warning => warning.code),
      codes,
      path,
    )
  }
})

t.test('[discovery/layouts.40] a handler is not among the ignored', async t => {
  const discovery = discoverTree({
    'hello/app.py': '',
    'hello/util.py': '',
    'hello/fn.config.json': { json: { entrypoint: 'app.py', invoke: { routes: ['/hello/app'] } } },
    'fn.routes.json': { json: { routes: { '/hello/list': 'hello/_list.js' } } },
    'hello/_list.js': '',
  })
  for (const path of ['/hello/app', '/hello/list']) t.same(explainIgnored(discovery, path).ignored, [], path)
  t.same(
    explainIgnored(discovery, '/hello/util').ignored.map(({ path }) => path),
    ['hello/util.py'],
  )
})
