import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import t, { type Test } from 'tap'
import { findSpans, Spans } from '../../lib/observe/trace.ts'
import { serveTree } from '../helpers/gateway-bed.ts'
import { httpUpstream } from '../helpers/upstream.ts'

/** A host application that traces. */
function startTracing(t: Test, sampler?: Sampler) {
  const exporter = new InMemorySpanExporter()
  const spanProcessors = [new SimpleSpanProcessor(exporter)]
  const provider = new BasicTracerProvider({ spanProcessors, ...(sampler !== undefined && { sampler }) })
  trace.setGlobalTracerProvider(provider)
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  t.teardown(() => {
    trace.disable()
    context.disable()
    return provider.shutdown()
  })
  const take = (): ReadableSpan[] => {
    const spans = exporter.getFinishedSpans()
    exporter.reset()
    return spans
  }
  return { take, tracer: provider.getTracer('host') }
}

async function serve(t: Test) {
  const seen: Record<string, unknown>[] = []
  const upstream = await httpUpstream((req, res) => {
    seen.push(req.headers)
    res.statusCode = req.url === '/missing' ? 404 : 200
    res.end('there')
  })
  t.teardown(upstream.close)
  const proxy = 'function handler(event) return { proxy = { path = "/" .. (event.query.to or "") } } end\n'
  const bed = await serveTree(
    t,
    {
      'users/[id].lua': 'function handler(event) return event.context.trace end\n',
      'broken.lua': 'function handler() error("boom") end\n',
      'away/handler.lua': proxy,
      'away/fn.config.json': JSON.stringify({ runtime: 'lua', edge: { base_url: upstream.url, allow_private: true } }),
    },
    { runtimes: ['lua'] },
  )
  return { ...bed, seen }
}

const PARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'

t.test('[observe/trace.7] without a registered tracer there are no spans', async t => {
  t.equal(await findSpans(), null)
})

t.test(
  '[observe/trace.7, observe/trace.8] a request is a span in the trace of its headers, under the name of its route',
  async t => {
    const { take } = startTracing(t)
    const { gateway } = await serve(t)
    const headers = { traceparent: PARENT, tracestate: 'a=1', 'x-request-id': 'my-id' }
    const answer = await gateway.inject({ url: '/users/7?secret=x', headers })
    const [span, ...others] = take()
    t.same(others, [])
    t.match(span, {
      name: 'GET /users/:id',
      kind: SpanKind.SERVER,
      parentSpanContext: { traceId: PARENT.slice(3, 35), spanId: PARENT.slice(36, 52), isRemote: true },
      status: { code: SpanStatusCode.UNSET },
      ended: true,
    })
    t.same(span!.attributes, {
      'http.request.method': 'GET',
      'url.path': '/users/7',
      'http.route': '/users/:id',
      'faas.name': 'lua/users/[id]@default',
      'http.response.status_code': 200,
      'fngw.request_id': 'my-id',
    })
    const own = span!.spanContext()
    t.equal(own.traceId, PARENT.slice(3, 35))
    t.equal(own.traceState?.serialize(), 'a=1')
    t.equal(JSON.parse(answer.body.toString()), `00-${own.traceId}-${own.spanId}-01`, 'the handler is in the span')

    await gateway.inject({ url: '/users/7', headers: { traceparent: 'x' } })
    t.equal(take()[0]!.parentSpanContext, undefined, 'a new trace')
    await gateway.inject('/nowhere')
    t.match(take(), [
      { name: 'GET', attributes: { 'http.response.status_code': 404 }, status: { code: SpanStatusCode.UNSET } },
    ])
    await gateway.inject('/broken')
    t.match(take(), [
      { name: 'GET /broken', attributes: { 'error.type': '500' }, status: { code: SpanStatusCode.ERROR } },
    ])
  },
)

t.test('[observe/trace.8] in a host application the span that is active comes first', async t => {
  const { take, tracer } = startTracing(t)
  const { gateway } = await serve(t)
  await tracer.startActiveSpan('host', async host => {
    await gateway.inject({ url: '/users/7', headers: { traceparent: PARENT } })
    await gateway.invoke('users/[id]')
    host.end()
  })
  const [request, invoked, host] = take()
  t.equal(request!.parentSpanContext?.spanId, host!.spanContext().spanId)
  t.equal(invoked!.parentSpanContext?.spanId, host!.spanContext().spanId)
  t.match(invoked, { name: 'invoke lua/users/[id]@default', kind: SpanKind.INTERNAL })
  await gateway.invoke('users/[id]', { headers: { traceparent: PARENT } })
  t.equal(take()[0]!.parentSpanContext?.spanId, PARENT.slice(36, 52))
})

t.test('[observe/trace.9] an upstream request is a span of its own, and the upstream is told of it', async t => {
  const { take } = startTracing(t)
  const { gateway, seen } = await serve(t)
  await gateway.inject({ url: '/away', headers: { traceparent: PARENT } })
  const [client, server] = take()
  t.match(client, { name: 'GET', kind: SpanKind.CLIENT, status: { code: SpanStatusCode.UNSET } })
  t.match(client!.attributes, { 'server.address': '127.0.0.1', 'http.response.status_code': 200 })
  t.equal(client!.parentSpanContext?.spanId, server!.spanContext().spanId)
  t.equal(seen[0]!.traceparent, `00-${PARENT.slice(3, 35)}-${client!.spanContext().spanId}-01`)
  await gateway.inject('/away?to=missing')
  t.match(take(), [
    { kind: SpanKind.CLIENT, status: { code: SpanStatusCode.ERROR }, attributes: { 'error.type': '404' } },
    { kind: SpanKind.SERVER, status: { code: SpanStatusCode.UNSET } },
  ])
})

t.test('[observe/trace.10] what is not sampled says so to the handler', async t => {
  const { take } = startTracing(t, new AlwaysOffSampler())
  const { gateway } = await serve(t)
  const answer = await gateway.inject({ url: '/users/7', headers: { traceparent: PARENT } })
  t.match(JSON.parse(answer.body.toString()), new RegExp(`^00-${PARENT.slice(3, 35)}-[0-9a-f]{16}-00$`))
  t.same(take(), [])
})

t.test('[observe/trace.10] a tracer that throws, or gives no ids, harms no request', async t => {
  const api = await import('@opentelemetry/api')
  const fail = (): never => {
    throw new Error('no tracer today')
  }
  const withSpan = (span: object) =>
    new Spans({
      ...api,
      trace: { ...api.trace, getTracer: () => ({ startSpan: () => span }) },
    } as unknown as typeof api)
  const broken = new Spans({
    ...api,
    trace: { getTracer: () => ({ startSpan: fail }), getSpanContext: () => undefined },
  } as unknown as typeof api)
  t.equal(broken.request('GET', '/', null, null), null)
  t.equal(withSpan({ spanContext: () => api.INVALID_SPAN_CONTEXT }).call('a', null, null), null)
  const ids = { traceId: PARENT.slice(3, 35), spanId: PARENT.slice(36, 52), traceFlags: 1 }
  const late = withSpan({ spanContext: () => ids, setAttribute: fail, end: fail }).call('a', null, null)!
  t.equal(late.trace, PARENT)
  late.end({ status: 200 })
})
