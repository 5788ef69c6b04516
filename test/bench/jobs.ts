// 10,000 jobs: what they take of memory, disk and time, and what public requests notice of them.
// Usage: npm run bench:jobs [jobs]
import { spawn } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { makeTree } from '../helpers/tree.ts'

const JOBS = Number(process.argv[2] ?? 10_000)
const INDEX = JSON.stringify(fileURLToPath(new URL('../../lib/index.ts', import.meta.url)))
const GATEWAY = `
const { createGateway } = await import(${INDEX})
const from = performance.now()
const gateway = await createGateway({ functionsRoot: process.argv[1], consoleWriteEnabled: true, jobsMaxConcurrency: 2, runtimes: ['node'], env: process.env })
const { url } = await gateway.listen({ port: 0, host: '127.0.0.1' })
console.log(url + ' ' + Math.round(performance.now() - from))
process.on('message', () => { globalThis.gc(); globalThis.gc(); process.send(process.memoryUsage().heapUsed) })
process.on('disconnect', () => process.exit())`

const tree = makeTree({
  'hello/handler.js': 'exports.handler = () => ({ status: 200, body: "hello" })',
  'work/handler.js': 'exports.handler = () => ({ status: 200, body: "done" })',
})
const say = (text: string): void => void process.stdout.write(`${text}\n`)
const agent = new Agent({ keepAlive: true, maxSockets: 64 })

function call(url: string, body?: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const from = performance.now()
    const headers = { 'content-type': 'application/json', ...(body && { 'content-length': Buffer.byteLength(body) }) }
    const outgoing = request(url, { agent, method: body === undefined ? 'GET' : 'POST', headers }, answer => {
      answer.resume()
      answer.on('end', () => {
        if (answer.statusCode !== 200 && answer.statusCode !== 201) reject(new Error(`status ${answer.statusCode}`))
        else resolve(performance.now() - from)
      })
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })
}

/** Public requests, one after the other, until told to stop. */
function probe(url: string): { stop: () => Promise<string> } {
  const times: number[] = []
  let isOver = false
  const running = (async () => {
    while (!isOver) times.push(await call(`${url}/hello`))
  })()
  return {
    stop: async () => {
      isOver = true
      await running
      times.sort((a, b) => a - b)
      const at = (share: number): string => times[Math.floor((times.length - 1) * share)]!.toFixed(2)
      return `public p50 ${at(0.5)} ms, p99 ${at(0.99)} ms (${times.length} requests)`
    },
  }
}

async function start() {
  const args = ['--expose-gc', '--import', import.meta.resolve('tsx'), '--input-type=module', '-e', GATEWAY, tree.root]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
  const { value } = await createInterface({ input: child.stdout! })[Symbol.asyncIterator]().next()
  const [url, ms] = String(value).split(' ') as [string, string]
  const heap = (): Promise<number> =>
    new Promise(resolve => {
      child.once('message', resolve as (value: unknown) => void)
      child.send('heap')
    })
  const stop = async (): Promise<void> => {
    const ended = new Promise(resolve => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
  }
  return { url, ms: Number(ms), heap, stop }
}

async function createAll(url: string, fields: object): Promise<number> {
  const from = performance.now()
  let left = JOBS
  const body = JSON.stringify({ name: 'work', context: { n: 1 }, ...fields })
  const lane = async (): Promise<void> => {
    while (left-- > 0) await call(`${url}/_fn/jobs`, body)
  }
  await Promise.all(Array.from({ length: 32 }, lane))
  return performance.now() - from
}

const wait = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))
const mib = (bytes: number): string => (bytes / 1024 / 1024).toFixed(1)
let gateway = await start()
say(`start without jobs: ${gateway.ms} ms`)
for (let i = 0; i < 500; i++) await call(`${gateway.url}/hello`)
const alone = probe(gateway.url)
await wait(3000)
say(`alone: ${await alone.stop()}`)
const before = await gateway.heap()
const during = probe(gateway.url)
const ms = await createAll(gateway.url, { delay_ms: 3_600_000 })
say(
  `${JOBS} created by 32 clients at once: ${Math.round(ms)} ms, ${Math.round((JOBS / ms) * 1000)} a second; meanwhile ${await during.stop()}`,
)
const after = await gateway.heap()
say(`heap: ${mib(after - before)} MiB more, ${Math.round((after - before) / JOBS)} bytes a job`)
say(
  `log: ${mib(statSync(tree.path('.svc/jobs/log')).size)} MiB, ${Math.round(statSync(tree.path('.svc/jobs/log')).size / JOBS)} bytes a job`,
)
const queued = probe(gateway.url)
await wait(3000)
say(`${JOBS} wait: ${await queued.stop()}`)
await gateway.stop()
gateway = await start()
say(`start with ${JOBS} jobs after a kill: ${gateway.ms} ms`)
await gateway.stop()
tree.remove('.svc')
gateway = await start()
await createAll(gateway.url, {})
const running = probe(gateway.url)
const from = performance.now()
const isDone = (): Promise<boolean> =>
  fetch(`${gateway.url}/_fn/jobs?state=queued&limit=1`)
    .then(answer => answer.json() as Promise<{ jobs: unknown[] }>)
    .then(({ jobs }) => jobs.length === 0)
const first = readFileSync(tree.path('.svc/jobs/log')).toString('latin1').split('"done"').length
while (!(await isDone())) await wait(200)
say(
  `about ${JOBS - first} of them run, two at once: ${Math.round(performance.now() - from)} ms; meanwhile ${await running.stop()}`,
)
say(`log at the end: ${mib(statSync(tree.path('.svc/jobs/log')).size)} MiB`)
await gateway.stop()
agent.destroy()
tree.cleanup()
