// Another client beside an attacker, on a thread of its own: the attacker's work must not count as waiting.
// Asks `GET /hello` again and again, each time on a new connection, until it is told to stop.
import { get } from 'node:http'
import { parentPort, workerData } from 'node:worker_threads'

let isOver = false
parentPort.once('message', () => {
  isOver = true
})

/** Status of the answer; 0 when there is none. */
const ask = () =>
  new Promise(resolve => {
    const req = get({ port: workerData.port, host: '127.0.0.1', path: '/hello', agent: false }, res => {
      res.resume()
      res.once('end', () => resolve(res.statusCode))
      res.once('error', () => resolve(0))
    })
    req.once('error', () => resolve(0))
  })

const seen = { asked: 0, worstMs: 0, wrong: [] }
do {
  const startedAt = performance.now()
  const status = await ask()
  seen.worstMs = Math.max(seen.worstMs, performance.now() - startedAt)
  seen.asked++
  if (status !== 200) seen.wrong.push(status)
} while (!isOver && seen.wrong.length < 5)
parentPort.postMessage(seen)
