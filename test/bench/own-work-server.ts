/** The request path over a runtime that answers at once, so that what is measured is the gateway's own work. Prints its port. */

import { systemClock } from '../../lib/core/clock.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

const made = makePublic({
  '/hello': makeFn({ policy: { maxConcurrency: 0 } }),
  '/users/:id': makeFn({ name: 'users' }),
})
const header = '{"status":200,"headers":{"content-type":"application/json"}}'
const body = Buffer.from('{"message":"hello"}')
const frame = Buffer.alloc(64 * 1024)
made.finished.push = () => 0
made.runtime.dispatch = call => {
  // What every runtime has to do with the text: bring it into bytes.
  frame.write(call.header, 'latin1')
  call.onReply(header, body, false)
}
const server = new HttpServer({
  handle: made.handle,
  clock: systemClock,
  requestIds: made.requestIds,
  lifecycle: made.lifecycle,
})
const { port } = await server.listen(0, '127.0.0.1')
process.stdout.write(`${port}\n`)
