// The yardstick: bare node:http answering the same JSON. Prints its port.
import { createServer } from 'node:http'

const body = JSON.stringify({ message: 'hello' })
const server = createServer((_req, res) => {
  res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) })
  res.end(body)
})
server.listen(0, '127.0.0.1', () => process.stdout.write(`${server.address().port}\n`))
