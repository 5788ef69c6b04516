import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { createMetricsEndpoints } from '../../lib/control/metrics-endpoints.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { serveEndpoints } from '../helpers/control.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

const LINE = `m ${'1'.repeat(1000)}\n`

t.test('[observe/metrics.8] a long text is made in pieces, and others have their turn between two', async t => {
  let turns = 0
  const ticker = setInterval(() => {
    turns += 1
  }, 0)
  t.teardown(() => clearInterval(ticker))
  let turnsAtEnd = 0
  const metrics = {
    *toText() {
      for (let i = 0; i < 2000; i++) yield LINE
      turnsAtEnd = turns
    },
  }
  const ask = serveEndpoints(t, createMetricsEndpoints({ metrics, clock: systemClock }))
  const answer = await ask({ url: '/_fn/metrics' })
  t.equal(answer.status, 200)
  t.ok(answer.body.toString().startsWith(LINE.repeat(2000)))
  t.match(answer.body.toString(), /\nprocess_resident_memory_bytes \d+\n/)
  t.ok(turnsAtEnd > 0, `${turnsAtEnd}`)
  const head = await ask({ method: 'HEAD', url: '/_fn/metrics' })
  t.match(head, { status: 200, headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' } })
  t.equal(head.body.length, 0)
  t.equal((await ask({ url: '/_fn/metrics?names=x' })).status, 400)
})

t.test('[observe/metrics.8] numbers that cannot be read are an error of this answer alone', async t => {
  const failing = (lines: number) => ({
    *toText() {
      for (let i = 0; i < lines; i++) yield LINE
      throw new GatewayError('INTERNAL', 'no numbers')
    },
  })
  const ask = (lines: number) =>
    serveEndpoints(t, createMetricsEndpoints({ metrics: failing(lines), clock: systemClock }))({ url: '/_fn/metrics' })
  t.equal((await ask(0)).status, 500)
  await t.rejects(ask(1000), 'an answer that has begun is cut')
})

t.test('[observe/metrics.8] a reader who leaves in the middle ends the answer', async t => {
  const { port, gateway } = await serveTree(t, { 'a.lua': 'function handler() return 1 end\n' }, { runtimes: ['lua'] })
  const socket = connect(port, '127.0.0.1')
  socket.write('GET /_fn/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n')
  await once(socket, 'data')
  socket.destroy()
  t.equal((await gateway.inject('/_fn/metrics')).status, 200)
})
