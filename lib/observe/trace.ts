/**
 * Which trace a call belongs to, by the rules of W3C Trace Context: taken from the client when well-formed, else begun here.
 * Owner: page observe/trace.
 */

import { randomFillSync } from 'node:crypto'
import type * as OpenTelemetry from '@opentelemetry/api'

/** `00`, 32 digits of a trace, 16 of the span that asks, 2 of flags; what later versions add follows a further `-`. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?$/
const TRACEPARENT_CHARS = 55

/** Entries of a `tracestate`, and its characters: longer ones need not be passed on, and would grow every call. */
const MAX_STATE_ENTRIES = 32
const MAX_STATE_CHARS = 512
const STATE_KEY = /^(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})$/
const STATE_VALUE = /^[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/

/**
 * A `traceparent` header as it is handed on, in version 00.
 * @returns null for one that is not well-formed: then a new trace begins
 */
export function readTraceparent(text: string): string | null {
  if (text.length === TRACEPARENT_CHARS && text.startsWith('00-')) return TRACEPARENT.test(text) ? text : null
  const match = TRACEPARENT.exec(text)
  if (match === null || text.startsWith('00-')) return null
  return `00-${match[1]}`
}

/**
 * A `tracestate` header as it is handed on.
 * @returns null for none and for one that breaks a rule: a part of it would say something else than its writers meant
 */
export function readTracestate(text: string): string | null {
  if (text.length > MAX_STATE_CHARS) return null
  const keys = new Set<string>()
  const entries = text
    .split(',')
    .map(entry => entry.replace(/^[ \t]+|[ \t]+$/g, ''))
    .filter(entry => entry !== '')
  for (const entry of entries) {
    const equals = entry.indexOf('=')
    const key = entry.slice(0, Math.max(0, equals))
    if (!STATE_KEY.test(key) || !STATE_VALUE.test(entry.slice(equals + 1)) || keys.has(key)) return null
    keys.add(key)
  }
  return entries.length === 0 || entries.length > MAX_STATE_ENTRIES ? null : entries.join(',')
}

/** The trace's own id in a `traceparent` that was read or made here. */
export function traceIdOf(traceparent: string): string {
  return traceparent.slice(3, 35)
}

/** Whatever is part of a trace. */
interface Traced {
  trace: string
  traceState: string | null
  /** A span that it has already decides. */
  span: { readonly trace: string; readonly traceState: string | null } | null
}

const ID_BYTES = 24
const POOL_BYTES = 340 * ID_BYTES

/** Begins traces. Random bytes come from a pool, because asking the system for a few costs more than a request's routing. */
export class TraceIds {
  readonly #bytes = Buffer.alloc(POOL_BYTES)
  #digits = ''
  #at = POOL_BYTES * 2

  /** A new `traceparent`, sampled: the access line of the call is the record that it promises. */
  next(): string {
    if (this.#at >= POOL_BYTES * 2) this.#refill()
    const at = this.#at
    this.#at = at + ID_BYTES * 2
    return `00-${this.#digits.slice(at, at + 32)}-${this.#digits.slice(at + 32, at + 48)}-01`
  }

  /**
   * Lets a call be part of the trace that its headers name, or of a new one.
   * @param call - without a trace
   */
  join(call: Traced, traceparent: string | null, tracestate: string | null): void {
    if (call.span !== null) {
      call.trace = call.span.trace
      call.traceState = call.span.traceState
      return
    }
    const taken = traceparent === null ? null : readTraceparent(traceparent)
    call.trace = taken ?? this.next()
    // What others noted about a trace that does not go on is about nothing here.
    if (taken !== null && tracestate !== null) call.traceState = readTracestate(tracestate)
  }

  #refill(): void {
    this.#digits = randomFillSync(this.#bytes).toString('hex')
    this.#at = 0
  }
}

// // Spans of requests, calls and upstream requests, by the OpenTelemetry API of the host application: only when it has
// registered a tracer. Whatever a tracer throws harms no request.
//   request (SERVER) ─► upstream request (CLIENT)
//   gateway.invoke (INTERNAL) ─► upstream request (CLIENT)

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
