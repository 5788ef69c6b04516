import t from 'tap'
import { init } from '../../bin/init.ts'
import { API_FILES, toSpaFiles } from '../../bin/starters.ts'
import { createGateway } from '../../lib/index.ts'

const make = (cwd: string, name: string, template: string) =>
  init({ cwd, functionsRoot: cwd, name, template, version: '0.0.0' })

t.test('[bin/init.7] api is three routes, spa a page and its function', async t => {
  const cwd = t.testdir({})
  t.equal(make(cwd, 'items', 'api').urlPath, '/items')
  const spa = make(cwd, 'greet', 'spa')
  t.same([spa.urlPath, spa.files], ['/', ['fn.config.json', 'public/index.html', 'public/app.js', 'api/greet.js']])
  const gateway = await createGateway({ functionsRoot: cwd, env: process.env })
  t.teardown(() => gateway.close())
  t.same(gateway.warnings, [])
  const get = async (url: string) => {
    const response = await gateway.inject(url)
    return [response.status, response.json()]
  }
  t.match(await get('/items'), [200, { items: [{ id: '1' }, { id: '2' }] }])
  t.same(await get('/items/2'), [200, { id: '2', name: 'second' }])
  t.same(await get('/items/9'), [404, { error: 'no item 9' }])
  const post = (body: string) => gateway.inject({ method: 'POST', url: '/items', body })
  const created = await post('{"name":"third"}')
  t.match([created.status, created.json(), created.headers.location], [201, { name: 'third' }, /^\/items\/[\w-]{36}$/])
  for (const body of ['', 'no json', '{}', 'null']) t.equal((await post(body)).status, 400, body)
  t.match((await gateway.inject('/')).text(), /<script type="module" src="\/app\.js">/)
  t.match((await gateway.inject('/app.js')).text(), /fetch\('\/api\/greet/)
  t.match((await gateway.inject({ url: '/some/page', headers: { Accept: 'text/html' } })).text(), /<main>/)
  t.same(await get('/api/greet?name=Kim'), [200, { message: 'Hello, Kim!' }])
})

t.test('[bin/init.7] the function of a page is below api/ once', async t => {
  const pathsOf = (name: string) => toSpaFiles(name, 'x').map(([path]) => path)
  t.ok(pathsOf('greet').includes('api/greet.js'))
  t.ok(pathsOf('api/greet').includes('api/greet.js'))
  t.same(
    API_FILES.map(([path]) => path),
    ['index.js', '[id].js', 'post.js', '_items.js'],
  )
})
