// The yardstick of `npm run bench -- fleet`: BullMQ with an empty processor, which creates and completes as many jobs as its parent says.
// Arguments: port of Redis, jobs that run at once, jobs that are created at once.
import { Queue, Worker } from 'bullmq'

const [port, concurrency, lanes] = process.argv.slice(2).map(Number)
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null }
const options = { connection, prefix: '{bare}' }
const queue = new Queue('jobs', options)
const worker = new Worker('jobs', async () => {}, {
  ...options,
  concurrency,
  removeOnComplete: { count: 0 },
  removeOnFail: { count: 0 },
})
await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])

process.on('message', async jobs => {
  const from = performance.now()
  let left = jobs
  const completed = new Promise(resolve => {
    let count = 0
    const onCompleted = () => {
      if (++count < jobs) return
      worker.off('completed', onCompleted)
      resolve()
    }
    worker.on('completed', onCompleted)
  })
  const lane = async () => {
    while (left-- > 0) await queue.add('run', { name: 'work', context: { n: 1 } })
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  const createdMs = performance.now() - from
  await completed
  process.send({ createdMs, completedMs: performance.now() - from })
})
process.on('disconnect', () => process.exit())
process.send('ready')
