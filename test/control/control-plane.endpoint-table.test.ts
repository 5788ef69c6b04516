import t from 'tap'
import { endpoint as toEndpoint, type Endpoint } from '../../lib/control/endpoint.ts'
import { EndpointTable, toEndpointPaths } from '../../lib/control/control-plane.ts'

const endpoint = (method: Endpoint['method'], path: string): Endpoint =>
  toEndpoint(`${method} ${path}`, 'read', () => ({ status: 200, body: `${method} ${path}` }))

const ENDPOINTS = [
  endpoint('GET', '/_fn/jobs'),
  endpoint('POST', '/_fn/jobs'),
  endpoint('GET', '/_fn/jobs/:id'),
  endpoint('DELETE', '/_fn/jobs/:id'),
  endpoint('GET', '/_fn/jobs/all'),
  endpoint('GET', '/_fn/jobs/:id/result'),
]

t.test('[control/control-plane.7] a path is found with its methods and parameters', t => {
  const table = new EndpointTable(ENDPOINTS)
  const cases: [path: string, methods: string[] | null, params: Record<string, string>][] = [
    ['/_fn/jobs', ['GET', 'POST'], {}],
    ['/_fn/jobs/', null, {}],
    ['/_fn/jobs/a', ['GET', 'DELETE'], { id: 'a' }],
    ['/_fn/jobs/__proto__', ['GET', 'DELETE'], { id: '__proto__' }],
    ['/_fn/jobs/:id', ['GET', 'DELETE'], { id: ':id' }],
    ['/_fn/jobs/all', ['GET'], {}],
    ['/_fn/jobs/a/result', ['GET'], { id: 'a' }],
    ['/_fn/jobs/a/other', null, {}],
    ['/_fn/jobs/a/b/result', null, {}],
    ['/_fn/jobs//result', null, {}],
    ['/_fn', null, {}],
  ]
  for (const [path, methods, params] of cases) {
    const found = table.find(path)
    t.same(found?.endpoints.map(one => one.method) ?? null, methods, path)
    if (found !== null) t.same({ ...found.params }, params, path)
  }
  t.end()
})

t.test(
  '[control/control-plane.7] the paths for documents come from the same list, and nothing stands in it twice',
  t => {
    t.same(toEndpointPaths(ENDPOINTS), [
      { path: '/_fn/jobs', methods: ['GET', 'POST'] },
      { path: '/_fn/jobs/:id', methods: ['GET', 'DELETE'] },
      { path: '/_fn/jobs/all', methods: ['GET'] },
      { path: '/_fn/jobs/:id/result', methods: ['GET'] },
    ])
    t.throws(() => new EndpointTable([...ENDPOINTS, endpoint('POST', '/_fn/jobs')]), /two endpoints for POST/)
    t.end()
  },
)
