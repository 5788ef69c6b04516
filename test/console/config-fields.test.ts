import { readFileSync } from 'node:fs'
import t from 'tap'
import { type Schema, toGroups } from '../../console/pages/function/config-fields.ts'

const file = new URL('../../spec/schema/fn.config.schema.json', import.meta.url)
const groups = toGroups(JSON.parse(readFileSync(file, 'utf8')) as Schema)
const fields = new Map(groups.flatMap(group => group.fields.map(field => [field.name, field])))

t.test('[console/function.6] every field of the schema that one would write has a control', async t => {
  t.match(fields.get('timeout_ms'), { kind: 'number', minimum: 1, maximum: 86_400_000, path: ['timeout_ms'] })
  t.match(fields.get('invoke.methods'), { kind: 'checks', choices: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] })
  t.match(fields.get('invoke.routes'), { kind: 'list' })
  t.match(fields.get('invoke.validate'), { kind: 'switch' })
  t.match(fields.get('runtime'), { kind: 'choice' })
  t.match(fields.get('worker_pool.max_workers'), { kind: 'number' })
  t.match(fields.get('schedule.cron'), { kind: 'text' })
  t.match(fields.get('schedule.retry'), { kind: 'json' })
  t.match(fields.get('cors'), { kind: 'json' })
  t.equal(new Set(groups.map(({ name }) => name)).size, groups.length)
})

t.test('[console/function.6] other spellings, copies and what does nothing are not offered', async t => {
  for (const name of ['$schema', 'force_url', 'forceUrl', 'force-url', 'methods', 'routes', 'sharedDeps', 'deps'])
    t.notOk(fields.has(name), name)
  for (const name of ['invoke.default_method', 'invoke.home_route', 'schedule.tz', 'include_debug_headers'])
    t.notOk(fields.has(name), name)
  t.ok(fields.has('invoke.force-url'))
  t.ok(fields.has('response.include_debug_headers'))
})
