// The yardstick: bare node:http answering the same JSON, or as many bytes as its second argument says. Listens on the port of
// the first, or any free one. Prints its port.
import { executionAsyncResource } from 'node:async_hooks'
import { createServer } from 'node:http'

// As lib/core/host.ts: without it one start in three serves a third less, and every ratio to it would be too good.
export let kept
process.nextTick(() => {
  kept = executionAsyncResource()
})

const [, , port = '0', bytes] = process.argv
const body = bytes === undefined ? JSON.stringify({ message: 'hello' }) : 'x'.repeat(Number(bytes))
const server = createServer((_req, res) => {
  res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) })
  res.end(body)
})
server.listen(Number(port), '127.0.0.1', () => process.stdout.write(`${server.address().port}\n`))
