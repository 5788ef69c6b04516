import t from 'tap'
import { toJobTarget } from '../../lib/jobs/job-input.ts'
import { makeFn } from '../helpers/fn.ts'

const fn = makeFn()

t.test('[jobs/jobs.6] params fill the route', async t => {
  const rows: [string, Record<string, string>, string, string][] = [
    ['/hello', {}, '/hello', '/hello'],
    ['/users/:id', { id: '7' }, '/users/7', '/users/7'],
    ['/users/:id/x', { id: 'a/b c' }, '/users/a/b c/x', '/users/a%2Fb%20c/x'],
    ['/docs/:slug*', { slug: 'a/b' }, '/docs/a/b', '/docs/a/b'],
    ['/docs/:slug*?', {}, '/docs', '/docs'],
    ['/hello/*', { wildcard: 'x' }, '/hello/x', '/hello/x'],
  ]
  for (const [route, params, path, rawPath] of rows)
    t.match(toJobTarget(fn, 'GET', null, [route], params), { routeTemplate: route, path, rawPath, params }, route)
})

t.test('[jobs/jobs.5] a route that is none of its, and params that are missing, are refused', async t => {
  const routes = ['/a/:id', '/b']
  t.equal(toJobTarget(fn, 'GET', '/a/{id}', routes, { id: '1' }).path, '/a/1', 'in any spelling')
  t.throws(() => toJobTarget(fn, 'GET', '/c', routes, {}), {
    code: 'NOT_FOUND',
    message: /"\/c" is not a route of node\/hello@default for GET: it has \/a\/:id, \/b/,
  })
  t.throws(() => toJobTarget(fn, 'GET', '/c', [], {}), { message: /it has none/ })
  t.throws(() => toJobTarget(fn, 'GET', null, routes, {}), {
    code: 'BAD_REQUEST',
    message: 'params.id is missing: the route is /a/:id',
  })
  t.match(
    toJobTarget(fn, 'GET', null, [], {}),
    { routeTemplate: null, path: '/hello' },
    'a function without a route is called by its name',
  )
})

t.test('[jobs/jobs.6] params that no URL could carry are refused, and so are those of no route', async t => {
  for (const id of ['', '.', '..', '\ud800', 'a\0b'])
    t.throws(
      () => toJobTarget(fn, 'GET', null, ['/a/:id'], { id }),
      { code: 'BAD_REQUEST', message: /^params\.id / },
      id,
    )
  t.throws(() => toJobTarget(fn, 'GET', null, ['/docs/:slug*'], { slug: 'a/../../b' }), { message: /^params\.slug / })
  t.throws(() => toJobTarget(fn, 'GET', null, ['/docs/:slug*'], { slug: '//' }), { message: /is missing/ })
  t.throws(() => toJobTarget(fn, 'GET', null, ['/a/:id'], { id: '1', ids: '2' }), {
    message: /^params\.ids is not a param/,
  })
})
