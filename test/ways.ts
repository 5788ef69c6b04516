// Counts the files of lib that run code for one piece of work, as V8's precise coverage sees them: how much a reader has to open to
// follow it. Usage: npm run check:ways [-- --files]   --files lists them
import { Session } from 'node:inspector/promises'
import { mkdtempSync, rmSync, writeFileSync, mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createGateway } from '../lib/index.ts'

const LIB = new URL('../lib/', import.meta.url).href
const LIST = process.argv.includes('--files')
const WRITE = { 'content-type': 'application/json' }

const root = mkdtempSync(join(tmpdir(), 'fngw-ways-'))
const write = (file: string, text: string): void => {
  mkdirSync(join(root, file, '..'), { recursive: true })
  writeFileSync(join(root, file), text)
}
write('hello/handler.py', 'def handler(event):\n    return {"n": 1}\n')
write('edit/handler.js', 'exports.handler = () => ({ n: 0 })\n')
write('work/handler.js', 'exports.handler = () => ({ n: 1 })\n')
write('work/fn.config.json', '{ "invoke": { "methods": ["POST"] } }')

const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })

/** Files of lib in which a function was called since the counts were last taken. */
async function take(): Promise<string[]> {
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const ran = result.filter(
    ({ url, functions }) =>
      url.startsWith(LIB) && functions.some(({ functionName, ranges }) => functionName !== '' && ranges[0]!.count > 0),
  )
  return ran.map(({ url }) => url.slice(LIB.length)).sort()
}

async function until(isDone: () => Promise<boolean>): Promise<void> {
  while (!(await isDone())) await new Promise(resolve => setTimeout(resolve, 20))
}

const gateway = await createGateway({
  functionsRoot: root,
  hotReload: true,
  env: { ...process.env, FN_CONSOLE_WRITE_ENABLED: '1' },
})
const { url } = await gateway.listen({ port: 0 })
// Without a watcher nothing is installed ahead of the call.
const packed = mkdtempSync(join(tmpdir(), 'fngw-ways-packed-'))
writeFileSync(join(packed, 'package.json'), '{ "dependencies": { "left-pad": "1.3.0" } }')
writeFileSync(join(packed, 'index.js'), 'exports.handler = () => require("left-pad")("x", 3)\n')
const installing = await createGateway({ functionsRoot: packed, runtimes: ['node'], env: process.env })
const get = async (path: string): Promise<unknown> => (await fetch(url + path)).json()

/** The work is done once before it is counted, where once is not what it is about. */
const ways: [name: string, atMost: number, first: (() => Promise<unknown>) | null, work: () => Promise<unknown>][] = [
  ['GET of a Python function', 35, () => get('/hello'), () => get('/hello')],
  [
    'save of a file until the route serves it',
    80,
    () => get('/edit'),
    async () => {
      write('edit/handler.js', 'exports.handler = () => ({ n: 7 })\n')
      await until(async () => ((await get('/edit')) as { n: number }).n === 7)
    },
  ],
  [
    'PUT /_fn/function-config',
    90,
    null,
    () =>
      fetch(`${url}/_fn/function-config?name=hello`, { method: 'PUT', headers: WRITE, body: '{"timeout_ms": 900}' }),
  ],
  [
    'job from POST to done',
    75,
    null,
    async () => {
      const created = await fetch(`${url}/_fn/jobs`, { method: 'POST', headers: WRITE, body: '{"name":"work"}' })
      const { id } = (await created.json()) as { id: string }
      await until(async () => ((await get(`/_fn/jobs/${id}`)) as { status: string }).status === 'done')
    },
  ],
  ['GET /_fn/metrics', 35, () => fetch(`${url}/_fn/metrics`), () => fetch(`${url}/_fn/metrics`)],
  [
    'first call that installs one npm package',
    100,
    null,
    async () => {
      const { status, body } = await installing.inject('/')
      if (status !== 200) throw new Error(`the package was not installed: ${status} ${body.toString()}`)
    },
  ],
]
let isHigh = false
for (const [name, atMost, first, work] of ways) {
  await first?.()
  await new Promise(resolve => setTimeout(resolve, 300))
  await take()
  await work()
  const files = await take()
  isHigh ||= files.length > atMost
  process.stdout.write(`${String(files.length).padStart(4)} of at most ${String(atMost).padEnd(4)} ${name}\n`)
  if (LIST) process.stdout.write(files.map(file => `       ${file}\n`).join(''))
}
await Promise.all([gateway.close(), installing.close()])
for (const folder of [root, packed]) rmSync(folder, { recursive: true, force: true })
process.exitCode = isHigh ? 1 : 0
