// The yardstick for bodies: bare node:http that gives them back, takes them, answers with 64 KiB, or streams. Prints its port.
import { createServer } from 'node:http'

const LARGE = JSON.stringify({ text: 'x'.repeat(64 * 1024 - 11) })
const PIECE = Buffer.alloc(64 * 1024, 'x')

/** @param {import('node:http').ServerResponse} res @param {string} type @param {string | Buffer} body */
function answer(res, type, body) {
  res.writeHead(200, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) })
  res.end(body)
}

/** @param {import('node:http').ServerResponse} res @param {number} pieces */
function stream(res, pieces) {
  let left = pieces
  const go = () => {
    while (left-- > 0) {
      if (res.write(PIECE)) continue
      res.once('drain', go)
      return
    }
    res.end()
  }
  go()
}

const server = createServer((req, res) => {
  const { pathname, searchParams } = new URL(String(req.url), 'http://bench')
  if (pathname === '/large') return answer(res, 'application/json', LARGE)
  if (pathname === '/stream') return stream(res, Number(searchParams.get('mb')) * 16)
  const chunks = /** @type {Buffer[]} */ ([])
  req.on('data', chunk => chunks.push(chunk))
  req.on('end', () => {
    const body = Buffer.concat(chunks)
    if (pathname === '/take') answer(res, 'text/plain', String(body.length))
    else if (req.headers['content-type'] === 'application/json') answer(res, 'application/json', body.toString())
    else answer(res, 'application/octet-stream', body)
  })
})
server.listen(0, '127.0.0.1', () => process.stdout.write(`${server.address().port}\n`))
