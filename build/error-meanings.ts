/** What each error code says to whoever meets it, for the reference. Owner: §7, page core/errors. */

import type { ErrorCode } from '../lib/core/errors.ts'

/** Code to when it is answered and what helps. */
export const ERROR_MEANINGS: Readonly<Record<ErrorCode, string>> = {
  BAD_REQUEST: 'The request is malformed, or its values break a rule; the message names the field. Mend the request.',
  UNAUTHORIZED: 'The control plane wants a login or the admin token, or the one that came is wrong.',
  FORBIDDEN:
    'The control plane does not answer this caller: not local, writes switched off, or a page of another site.',
  NOT_FOUND: 'No route, function, version, file or job has this name. In development the nearest routes are named.',
  METHOD_NOT_ALLOWED: 'The path is there, with other methods: they are in the header Allow.',
  ROUTE_CONFLICT: 'Two functions claim the URL or the name. `fngw routes` shows both; rename one, or name the runtime.',
  CONFLICT: 'It exists already, or another request has changed it since it was read. Read it again.',
  BODY_TOO_LARGE: 'The body is larger than max_body_bytes of the function, or than the endpoint takes.',
  TARGET_TOO_LONG: 'Path and query are longer than the gateway takes.',
  UNSUPPORTED_TYPE: 'The body has another Content-Type than schema.json or the endpoint asks for.',
  HOST_NOT_ALLOWED: 'The request names a host that invoke.allow_hosts of the function does not list.',
  CONCURRENCY_LIMIT: 'max_concurrency calls run already, or as many jobs or logins wait. Try again later.',
  POOL_OVERFLOW: 'No worker is free and the queue of worker_pool is full, or the call waited too long in it.',
  HEADERS_TOO_LARGE: 'The head of the request is larger than the gateway takes.',
  HANDLER_FAILED: 'The handler threw. The log has file, line and stack; in development the answer has them too.',
  LOAD_FAILED: 'The handler file cannot be loaded, built, or have its packages installed. The log names file and line.',
  INTERNAL: 'The gateway itself failed; its log has the cause.',
  NOT_IMPLEMENTED: 'The gateway does not do this: WebSockets, for one.',
  CONTRACT_BROKEN: 'The handler returned something that is not a valid response; the message says what is wrong with it.',
  EDGE_FAILED: 'The upstream request of a proxy directive was refused by policy, or failed.',
  RUNTIME_DOWN: 'The runtime is not enabled, its program is missing, or its daemon does not answer.',
  WORKER_DIED: 'The process of the handler ended while the call ran: a crash, exit, or too much memory.',
  SHUTTING_DOWN: 'The gateway starts or stops. Try again, at another instance if there is one.',
  BUILD_PENDING:
    'The function is being built, or its packages are being installed. Try again after Retry-After seconds.',
  CONFIG_BROKEN:
    'A fn.config.json of the function or of a folder above it cannot be used. The message or the log names it. Fix the file.',
  OVERLOADED:
    'Request bodies or unread responses hold FN_BODY_MEMORY_MB already, or too many connections and files are open. Try again after Retry-After seconds.',
  STORAGE_FULL:
    'The disk of the functions root is full or read-only. Free space, or make it writable, and send the request again.',
  TIMEOUT: 'The handler, or its upstream, took longer than timeout_ms. The handler was stopped, and is not run again.',
}
