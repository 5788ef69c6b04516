/**
 * One endpoint of `/_fn/*`: what it is called by, who may call it, what it is asked and what it answers. Owner: §4.2.
 * A family of endpoints is a file `<family>-endpoints.ts` with `create<Family>Endpoints(deps)`; `lib/gateway/compose.ts` joins them.
 */

import type { ConstantAnswer } from '../http/constant-answer.ts'
import type { Exchange } from '../http/exchange.ts'
import type { EndpointAccess } from './access.ts'
import type { ControlRequest } from './control-request.ts'

export interface Endpoint {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Below `/_fn`; a segment `:id` takes any text, which is then `params.id`. */
  readonly path: string
  readonly access: EndpointAccess
  /** Names of its query fields: any other is 400. Absent: it takes none. `any` lets everything pass unread. */
  readonly query?: readonly string[] | 'any'
  readonly handle: (request: ControlRequest) => ControlReply | Promise<ControlReply>
}

/** A JSON value with its status, bytes made before, or an answer that the endpoint sends itself: a stream. */
export type ControlReply =
  | {
      readonly status: number
      readonly body: unknown
      /** More headers, names and values in turn. */
      readonly headers?: readonly string[]
    }
  | ConstantAnswer
  | { readonly send: (exchange: Exchange) => void }

/** Open to everybody. */
export const OPEN: EndpointAccess = { open: true, write: false, acts: false }
export const READ: EndpointAccess = { open: false, write: false, acts: false }
/** Does something, and changes no file. */
export const ACT: EndpointAccess = { open: false, write: false, acts: true }
/** Begins or ends a session: asked by those who have none. */
export const LOGIN: EndpointAccess = { open: false, write: false, acts: true, beforeLogin: true }
/** Shows nothing by itself, and is where one logs in. */
export const CONSOLE_PAGE: EndpointAccess = { open: false, write: false, acts: false, beforeLogin: true }
/** Needs write permission. */
export const WRITE: EndpointAccess = { open: false, write: true, acts: true }
