/** The end of a request's span. Owner: page observe/trace. */

import type { OpenSpan } from '../observe/trace.ts'
import type { Exchange } from './exchange.ts'

/** Ends the span of an exchange under the name of its route, as tracers group requests. */
export function endRequestSpan(span: OpenSpan, { method, route, fn, id }: Exchange, status: number): void {
  span.end({
    status,
    attributes: {
      'fngw.request_id': id,
      ...(route !== null && { 'http.route': route }),
      ...(fn !== null && { 'faas.name': fn.key }),
    },
    ...(route !== null && { name: `${method} ${route}` }),
  })
}
