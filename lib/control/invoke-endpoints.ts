/** `/_fn/invoke` and `/_fn/explain`: runs a function by its name, and tells who answers a request. Owner: page control/invoke. */

import { GatewayError } from '../core/errors.ts'
import { isHeaderName } from '../core/http-text.ts'
import type { Exchange } from '../http/exchange.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import { type CallFields, readCallFields } from './call-fields.ts'
import type { ControlRequest } from './control-request.ts'
import { ACT, type ControlReply, type Endpoint, READ } from './endpoint.ts'
import { sendFailure, toInvokeRecord } from './invoke-record.ts'
import { InvokeStream, STREAM_TYPE } from './invoke-stream.ts'

/** Bytes of the JSON that describes a call; larger bodies go to the function's own URL. */
export const INVOKE_BODY_BYTES = 8 * 1024 * 1024

/** Longest method that is explained. */
const MAX_METHOD_CHARS = 32

/** Runs functions by name. */
interface NamedCalls {
  /** @throws GatewayError for a name, route or params that lead nowhere */
  prepare(
    name: string,
    request: Omit<CallFields, 'name' | 'runtime' | 'query'> & {
      runtime?: string
      query: Readonly<Record<string, unknown>>
      signal: AbortSignal
    },
    asker: Pick<Exchange, 'id' | 'ip' | 'trace' | 'traceState'>,
  ): InternalRequest & { readonly pattern: string | null }
  /** Never rejects. */
  run(request: InternalRequest): Promise<InternalResult>
}

export interface InvokeEndpointsDeps {
  calls: NamedCalls
  explain: (method: string, path: string, host: string) => object
}

export function createInvokeEndpoints({ calls, explain }: InvokeEndpointsDeps): readonly Endpoint[] {
  return [
    {
      method: 'POST',
      path: '/_fn/invoke',
      access: ACT,
      handle: request => invoke(calls, request),
    },
    {
      method: 'GET',
      path: '/_fn/explain',
      access: READ,
      query: ['method', 'path', 'host'],
      handle: ({ query }) => {
        const method = query.text('method') ?? 'GET'
        const path = query.required('path')
        if (!isHeaderName(method) || method.length > MAX_METHOD_CHARS)
          throw new GatewayError('BAD_REQUEST', 'query field method must be a method of HTTP, such as GET')
        if (!path.startsWith('/'))
          throw new GatewayError('BAD_REQUEST', 'query field path must start with /, such as /users/7')
        return { status: 200, body: explain(method.toUpperCase(), path, query.text('host') ?? '') }
      },
    },
  ]
}

async function invoke(calls: NamedCalls, request: ControlRequest): Promise<ControlReply> {
  const { exchange } = request
  const { name, runtime, query, ...fields } = readCallFields(await request.readJson(INVOKE_BODY_BYTES))
  // For when the client leaves: nobody reads the answer then.
  const stop = new AbortController()
  exchange.work = { abandon: () => stop.abort() }
  const call = calls.prepare(
    name,
    { ...fields, ...(runtime !== null && { runtime }), query: query ?? {}, signal: stop.signal },
    { id: exchange.id, ip: exchange.ip, trace: exchange.trace, traceState: exchange.traceState },
  )
  if (wantsStream(request.header('accept'))) {
    const stream = new InvokeStream(exchange, call)
    exchange.work = {
      abandon: () => {
        stop.abort()
        stream.leave()
      },
    }
    return { send: () => void stream.run(sink => calls.run({ ...call, sink })) }
  }
  const result = await calls.run(call)
  const { error } = result
  if (error !== null) return { send: exchange => sendFailure(exchange, error, result) }
  return { status: 200, body: toInvokeRecord(result, call.path, call.pattern) }
}

/** True for a client that takes the answer line by line, as it comes. */
function wantsStream(accept: string | null): boolean {
  return (accept ?? '').split(',').some(type => type.split(';')[0]!.trim().toLowerCase() === STREAM_TYPE)
}
