import { readdirSync, readFileSync } from 'node:fs'
import { createRequire, syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { constants, PerformanceObserver } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { makeTree } from '../helpers/tree.ts'

const v8 = createRequire(import.meta.url)('node:v8') as { setFlagsFromString: (flags: string) => void }
const set: string[] = []
v8.setFlagsFromString = flags => void set.push(flags)
syncBuiltinESMExports()

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BODY = 'x'.repeat(15_000)
const FULL_LUA = 'function handler() local kept = {} while true do kept[#kept + 1] = string.rep("x", 1e6) end end\n'
const GARBAGE_LUA = `function handler()
  local last
  for i = 1, 400 do last = string.rep(string.char(65 + i % 26), 1e6) end
  return { bytes = #last }
end\n`

t.test('[gateway/gateway.20] a process that embeds the gateway keeps its V8 flags and its collector', async t => {
  let forced = 0
  const observer = new PerformanceObserver(list => {
    for (const entry of list.getEntries()) {
      const { flags } = (entry as unknown as { detail: { flags: number } }).detail
      if ((flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) !== 0) forced += 1
    }
  })
  observer.observe({ entryTypes: ['gc'] })
  t.teardown(() => observer.disconnect())
  const handler = 'export const handler = event => ({ bytes: event.body.length })\n'
  const { root, cleanup } = makeTree({
    'js/post.js': handler,
    'lua/post.lua': 'function handler(event) return { bytes = #event.body } end\n',
    'full/post.lua': FULL_LUA,
    'garbage/post.lua': GARBAGE_LUA,
  })
  t.teardown(cleanup)
  const { createGateway } = await import('../../lib/index.ts')
  const options = {
    functionsRoot: root,
    env: process.env,
    runtimes: ['node', 'lua'] as const,
    defaultTimeoutMs: 60_000,
  }
  const gateway = await createGateway(options)
  t.teardown(() => gateway.close())
  const { url } = await gateway.listen({ port: 0, host: '127.0.0.1' })
  const post = async (path: string): Promise<[number, unknown]> => {
    const response = await fetch(`${url}${path}`, { method: 'POST', body: BODY })
    return [response.status, await response.json()]
  }
  for (let i = 0; i < 100; i++) {
    for (const answer of await Promise.all([post('/js'), post('/js'), post('/js'), post('/lua')]))
      t.same(answer, [200, { bytes: 15_000 }])
  }
  t.same(await post('/garbage'), [200, { bytes: 1e6 }], 'garbage of a Lua thread does not count as used memory')
  t.match(await post('/full'), [500, { error: /out of memory/ }])
  await new Promise(setImmediate)
  t.same(set, [], 'no flag is set')
  t.equal(runInNewContext('typeof globalThis.gc'), 'undefined', 'nor by a Lua thread')
  t.equal(forced, 0, 'no collection is forced')
})

t.test('[gateway/gateway.20] V8 flags are set by the command line, and by one function that it calls', async t => {
  const files = ['lib', 'runtimes', 'conformance'].flatMap(folder =>
    readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
      .filter(
        entry =>
          entry.isFile() && /\.(?:ts|mjs|cjs|js)$/.test(entry.name) && !entry.parentPath.includes('node_modules'),
      )
      .map(entry => join(entry.parentPath, entry.name)),
  )
  t.ok(files.length > 100)
  t.same(
    files.filter(file => readFileSync(file, 'utf8').includes('setFlagsFromString')),
    [join(ROOT, 'lib/core/byte-pool.ts')],
  )
})
