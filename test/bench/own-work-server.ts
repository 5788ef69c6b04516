/** The request path over a runtime that answers at once, so that what is measured is the gateway's own work. Prints its port. */

import { systemClock } from '../../lib/core/clock.ts'
import { keepTickShape } from '../../lib/core/host.ts'
import { toRequestRecord } from '../../lib/http/exchange.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { AccessLogFormat } from '../../lib/observe/access-log.ts'
import { LogStore } from '../../lib/observe/log-store.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

// As the gateway and the bare server do: without it one start in three is slower for its whole life.
keepTickShape()
const made = makePublic({
  '/hello': makeFn({ policy: { maxConcurrency: 0 } }),
  '/users/:id': makeFn({ name: 'users', policy: { maxConcurrency: 0, methods: ['GET', 'POST'] } }),
})
const header = '{"status":200,"headers":{"content-type":"application/json"}}'
const body = Buffer.from('{"message":"hello"}')
const frame = Buffer.alloc(64 * 1024)
const [directory] = process.argv.slice(2)
const logs = new LogStore({
  clock: systemClock,
  directory: directory === undefined ? null : new OwnFolder(directory),
  onProblem: text => process.stderr.write(text),
})
const format = new AccessLogFormat()
made.finished.push = exchange => {
  if (directory !== undefined)
    logs.access(format, toRequestRecord(exchange!, systemClock.wall(), systemClock.monotonic()))
  return 0
}
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
