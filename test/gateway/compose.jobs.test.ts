import t from 'tap'
import { createRoutesOf } from '../../lib/gateway/catalog-loader.ts'
import { makeFn } from '../helpers/fn.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

t.test('[jobs/jobs.6] the routes of a function and method, looked up once for each catalog', async t => {
  const owner = { runtime: 'node', name: 'hello', version: null, methods: ['GET', 'POST'] }
  let records: { mapped_routes: Record<string, object[]> } = {
    mapped_routes: { '/a': [owner], '/b': [{ ...owner, methods: ['GET'] }] },
  }
  let asked = 0
  const routesOf = createRoutesOf(() => {
    asked += 1
    return records as never
  })
  t.same([routesOf(makeFn(), 'GET'), routesOf(makeFn(), 'POST'), routesOf(makeFn(), 'PUT')], [['/a', '/b'], ['/a'], []])
  t.same(routesOf(makeFn({ version: 'v2' }), 'GET'), [])
  records = { mapped_routes: { '/c': [owner], '/b': [] } }
  t.same(routesOf(makeFn(), 'GET'), ['/c'])
  t.equal(asked, 5)
})

t.test('[jobs/jobs.8, jobs/jobs.17] a program makes jobs that count in the admission of their function', async t => {
  const handler = `let running = 0, most = 0
    exports.handler = async () => { most = Math.max(most, ++running); await new Promise(r => setTimeout(r, 20)); running--; return { most } }`
  const { gateway } = await serveTree(
    t,
    { 'one/handler.js': handler, 'one/fn.config.json': { json: { name: 'one', runtime: 'node', max_concurrency: 1 } } },
    { jobsMaxConcurrency: 5 },
  )
  const ended = new Promise<void>(resolve => {
    let count = 0
    gateway.on('job', ({ state }) => {
      if (state === 'done' && ++count === 6) resolve()
      if (state === 'failed') t.fail('no job fails for want of room')
    })
  })
  const made = await Promise.all(Array.from({ length: 6 }, () => gateway.jobs.create({ name: 'one' })))
  await ended
  for (const { record } of made) {
    const { result } = await gateway.jobs.result(record.id)
    let text = ''
    for await (const piece of result!.body) text += String(piece)
    t.equal(text, '{"most":1}')
    t.equal((await gateway.jobs.get(record.id)).attempt, 1)
  }
  const { body } = await gateway.inject('/_fn/metrics')
  t.match(String(body), 'fn_jobs{state="done"} 6\n', 'the metrics count them by state')
})
