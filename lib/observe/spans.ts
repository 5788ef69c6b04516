/**
 * Spans of requests, calls and upstream requests, by the OpenTelemetry API of the host application: only when it has
 * registered a tracer. Whatever a tracer throws harms no request. Owner: page observe/trace.
 *
 *   request (SERVER) ─► upstream request (CLIENT)
 *   gateway.invoke (INTERNAL) ─► upstream request (CLIENT)
 */

import type * as OpenTelemetry from '@opentelemetry/api'
import { readTraceparent, readTracestate } from './trace.ts'

type Api = typeof OpenTelemetry
type Context = OpenTelemetry.Context

/** Where every copy of the API keeps what was registered. */
const REGISTRY = Symbol.for('opentelemetry.js.api.1')
const TRACER = 'fngw'
/** Characters of an attribute. */
const MAX_TEXT_CHARS = 1024

/** How something ended. */
interface Outcome {
  /** 0 for none. */
  status: number
  /** A short word for a failure that has no status. */
  failure?: string
  /** Instead of the name that it began with. */
  name?: string
  attributes?: Readonly<Record<string, string | number>>
}

/** Something that goes on. */
export interface OpenSpan {
  /** `traceparent` and `tracestate` for what is done in it. */
  readonly trace: string
  readonly traceState: string | null
  /** An upstream request. */
  upstream(method: string, host: string, port: number): OpenSpan | null
  /** Once. */
  end(outcome: Outcome): void
}

/** @returns null when the host application has not registered a tracer, or its API cannot be found from here */
export async function findSpans(): Promise<Spans | null> {
  const registry = (globalThis as Record<symbol, unknown>)[REGISTRY] as { trace?: unknown } | undefined
  if (registry?.trace === undefined) return null
  try {
    return new Spans(await import('@opentelemetry/api'))
  } catch {
    return null
  }
}

export class Spans {
  readonly #api: Api
  readonly #tracer: OpenTelemetry.Tracer

  /** @internal Declarations name no type of the optional peer: programs without it are compiled with them. */
  constructor(api: Api) {
    this.#api = api
    this.#tracer = api.trace.getTracer(TRACER)
  }

  /**
   * A request of HTTP: in the span that is active, else in the trace of its headers.
   * @param path - what follows `?` is left out
   */
  request(method: string, path: string, traceparent: string | null, tracestate: string | null): OpenSpan | null {
    const { SpanKind } = this.#api
    const attributes = { 'http.request.method': method, 'url.path': cut(path.split('?', 1)[0]!) }
    return this.#begin(method, SpanKind.SERVER, attributes, () => this.#parentOf(traceparent, tracestate))
  }

  /** A call that the host program asks for. */
  call(key: string, traceparent: string | null, tracestate: string | null): OpenSpan | null {
    const { SpanKind } = this.#api
    return this.#begin(`invoke ${key}`, SpanKind.INTERNAL, {}, () => this.#parentOf(traceparent, tracestate))
  }

  #parentOf(traceparent: string | null, tracestate: string | null): Context {
    const { context, trace, isSpanContextValid, createTraceState, ROOT_CONTEXT } = this.#api
    const active = context.active()
    const around = trace.getSpanContext(active)
    if (around !== undefined && isSpanContextValid(around)) return active
    const taken = traceparent === null ? null : readTraceparent(traceparent)
    if (taken === null) return ROOT_CONTEXT
    const state = tracestate === null ? null : readTracestate(tracestate)
    return trace.setSpanContext(ROOT_CONTEXT, {
      traceId: taken.slice(3, 35),
      spanId: taken.slice(36, 52),
      traceFlags: Number.parseInt(taken.slice(53), 16),
      isRemote: true,
      ...(state !== null && { traceState: createTraceState(state) }),
    })
  }

  #begin(
    name: string,
    kind: OpenTelemetry.SpanKind,
    attributes: OpenTelemetry.Attributes,
    parent: () => Context,
  ): OpenSpan | null {
    try {
      const around = parent()
      const span = this.#tracer.startSpan(name, { kind, attributes }, around)
      const { traceId, spanId, traceFlags, traceState } = span.spanContext()
      const text = readTraceparent(`00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`)
      // A tracer that gives no ids traces nothing.
      if (text === null) return null
      return {
        trace: text,
        traceState: traceState?.serialize() || null,
        upstream: (method, host, port) => {
          const upstream = { 'http.request.method': method, 'server.address': host, 'server.port': port }
          return this.#begin(method, this.#api.SpanKind.CLIENT, upstream, () => this.#api.trace.setSpan(around, span))
        },
        end: outcome => this.#end(span, kind, outcome),
      }
    } catch {
      return null
    }
  }

  #end(span: OpenTelemetry.Span, kind: OpenTelemetry.SpanKind, { status, failure, name, attributes }: Outcome): void {
    const { SpanKind, SpanStatusCode } = this.#api
    try {
      if (name !== undefined) span.updateName(cut(name))
      if (attributes !== undefined) span.setAttributes(attributes)
      if (status > 0) span.setAttribute('http.response.status_code', status)
      // A server's span is no failure when the client was wrong (semantic conventions of HTTP).
      if (failure !== undefined || status === 0 || status >= (kind === SpanKind.CLIENT ? 400 : 500)) {
        span.setStatus({ code: SpanStatusCode.ERROR })
        span.setAttribute('error.type', failure ?? String(status || 'canceled'))
      }
      span.end()
    } catch {
      // It is the tracer's loss.
    }
  }
}

function cut(text: string): string {
  return text.length > MAX_TEXT_CHARS ? `${text.slice(0, MAX_TEXT_CHARS)}...` : text
}
