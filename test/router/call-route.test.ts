import t from 'tap'
import type { GatewayError } from '../../lib/core/errors.ts'
import { findCallRoute } from '../../lib/router/call-route.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

const user = makeFn({ name: 'user', policy: { methods: ['GET', 'POST'] } })
const files = makeFn({ name: 'files' })
const hosted = makeFn({ name: 'hosted', policy: { allowHosts: ['a.example'] } })
const { routes } = makePublic({
  '/users/:id': user,
  '/users/:id/notes/:note': user,
  '/users/me': files,
  '/files/:path*': files,
  '/docs/:slug*?': files,
  '/hosted': hosted,
}).catalog
// The builder's table has everything; a public catalog shows less of it.
const table = routes as Parameters<typeof findCallRoute>[0]

function find(fn: typeof user, asked: Partial<Parameters<typeof findCallRoute>[2]>) {
  const { path, params, pattern } = findCallRoute(table, fn, {
    method: 'GET',
    route: null,
    params: {},
    host: '',
    ...asked,
  })
  return [path, { ...params }, pattern]
}

t.test('[control/invoke.7] a path, a route in any spelling, or params alone', async t => {
  const cases: [fn: typeof user, asked: Parameters<typeof find>[1], found: unknown[]][] = [
    [user, { route: '/users/7' }, ['/users/7', { id: '7' }, '/users/:id']],
    [user, { route: '/users/a%2Fb/' }, ['/users/a/b', { id: 'a/b' }, '/users/:id']],
    [user, { route: '/users/:id', params: { id: 'a b' } }, ['/users/a b', { id: 'a b' }, '/users/:id']],
    [user, { route: '/users/{id}', params: { id: 'é?#' } }, ['/users/é?#', { id: 'é?#' }, '/users/:id']],
    [user, { route: '/users/[id]', params: { id: 'a/b%' } }, ['/users/a/b%', { id: 'a/b%' }, '/users/:id']],
    [user, { params: { id: '7' } }, ['/users/7', { id: '7' }, '/users/:id']],
    [user, { params: { note: '1', id: '7' } }, ['/users/7/notes/1', { id: '7', note: '1' }, '/users/:id/notes/:note']],
    [files, { params: { path: 'a/b c' } }, ['/files/a/b c', { path: 'a/b c' }, '/files/:path*']],
    [files, { route: '/docs/[[...slug]]' }, ['/docs', {}, '/docs/:slug*?']],
    [hosted, { route: '/hosted', host: 'a.example' }, ['/hosted', {}, '/hosted']],
  ]
  for (const [fn, asked, found] of cases) t.same(find(fn, asked), found, JSON.stringify(asked))
})

t.test('[control/invoke.7] what is no place of the function is refused by name', async t => {
  const cases: [fn: typeof user, asked: Parameters<typeof find>[1], status: number, says: RegExp][] = [
    [
      user,
      { route: '/users/me' },
      400,
      /^route "\/users\/me" leads to node\/files@default, not to node\/user@default$/,
    ],
    [user, { route: '/users/:id', params: { id: 'me' } }, 400, /leads to node\/files/],
    [user, { route: '/users/:id', params: { id: '..' } }, 400, /^params\.id must be text .* and not \. or \.\.$/],
    [user, { route: '/nowhere' }, 400, /does not lead to a function/],
    [user, { route: '/_fn/health' }, 400, /does not lead to a function/],
    [user, { route: '/x/../_fn/health' }, 400, /does not lead to a function/],
    [user, { route: '/%zz' }, 400, /malformed percent escape/],
    [user, { route: '/../x' }, 400, /leaves the root/],
    [user, { route: '/users/:id' }, 400, /^params\.id is missing: the route is \/users\/:id$/],
    [
      user,
      { route: '/users/:id', params: { id: '1', x: '2' } },
      400,
      /^params\.x is not a param of the route \/users\/:id$/,
    ],
    [user, { route: '/users/7', params: { id: '7' } }, 400, /^params must be absent/],
    [user, { route: '/users/:a:b' }, 400, /malformed param/],
    [
      user,
      { params: { x: '1' } },
      400,
      /^params must be those of a route of node\/user@default \(\/users\/:id, .*got x$/,
    ],
    [user, { params: {} }, 400, /^params must be those of a route .*got none$/],
    [user, { route: '/users/7', method: 'PUT' }, 405, /method not allowed/],
    [hosted, { route: '/hosted', host: 'b.example' }, 421, /host not allowed/],
  ]
  for (const [fn, asked, status, says] of cases) {
    const name = JSON.stringify(asked)
    try {
      t.fail(`${name} found ${JSON.stringify(find(fn, asked))}`)
    } catch (error) {
      t.equal((error as GatewayError).status, status, name)
      t.match((error as GatewayError).message, says, name)
    }
  }
})
