/**
 * Adapters: how a handler written for another platform is called. Page: invocation/adapters.
 */

import { findCallable, symbolsOf } from './callable.mjs'
import { ContractError } from './envelope.mjs'
import { LoadError, toFailure } from './failure.mjs'

/** @typedef {import('./event.mjs').FunctionStart} FunctionStart */
/** @typedef {import('./event.mjs').FnEvent} FnEvent */
/** @typedef {import('./call.mjs').Call} Call */
/** @typedef {(event: FnEvent, call: Call) => unknown} Invoke */

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
/** Headers of the client's connection to the gateway: they say nothing of the request. */
const CONNECTION_HEADERS = new Set([
  'connection',
  'content-length',
  'transfer-encoding',
  'expect',
  'keep-alive',
  'upgrade',
  'te',
  'trailer',
])

const MEMORY_MB = /--max-old-space-size=(\d+)/.exec(process.execArgv.join(' '))?.[1] ?? '512'

/**
 * How this function's calls are made.
 * @param {FunctionStart} fn
 * @param {any} exports - of the handler's module
 * @returns {Invoke}
 * @throws {LoadError}
 */
export function toInvoke(fn, exports) {
  const { names } = fn.callable
  const name = symbolsOf(names).at(-1)
  switch (fn.adapter ?? 'native') {
    case 'native': {
      const { holder, call } = findCallable(fn, exports, names, `export function ${name}(event) { ... }`)
      if (holder === undefined) return event => call(event, event.params)
      return event => call.call(holder, event, event.params)
    }
    case 'cloud-lambda': {
      const callable = findCallable(fn, exports, names, `export async function ${name}(event, context) { ... }`)
      return (event, call) => invokeLambda(fn, callable, event, call)
    }
    case 'edge-worker': {
      const usage = 'export default { async fetch(request, env, ctx) { ... } }'
      const callable = findCallable(fn, exports, names, usage)
      return (event, call) => invokeEdge(fn, callable, event, call)
    }
    default:
      return () => {
        throw new LoadError(`invoke.adapter unsupported: ${fn.adapter}`, {
          hint: 'use native, cloud-lambda or edge-worker',
        })
      }
  }
}

/**
 * @param {FunctionStart} fn
 * @param {import('./callable.mjs').Callable} callable
 * @param {FnEvent} event
 * @param {Call} call
 */
function invokeLambda(fn, { holder, call: handler }, event, call) {
  return new Promise((resolve, reject) => {
    // The first completion wins, whichever way it comes.
    const done = (/** @type {unknown} */ error, /** @type {unknown} */ value) =>
      error === undefined || error === null ? resolve(fromLambda(value)) : reject(error)
    const context = toLambdaContext(fn, event, call, done)
    const returned = handler.call(holder, toLambdaEvent(event), context, done)
    if (isThenable(returned)) returned.then((/** @type {unknown} */ value) => done(null, value), reject)
    // Without a promise, a handler that takes a callback or uses `context.done` answers later.
    else if (returned !== undefined || !answersLater(handler)) done(null, returned)
  })
}

/** @param {any} value @returns {value is PromiseLike<unknown>} */
function isThenable(value) {
  return typeof value?.then === 'function'
}

/** @param {Function} handler */
function answersLater(handler) {
  return handler.length > 2 || /\.\s*(?:done|fail|succeed)\b/.test(Function.prototype.toString.call(handler))
}

/** @param {FnEvent} event */
function toLambdaEvent(event) {
  const [rawPath, search = ''] = splitOnce(event.raw_path, '?')
  const headers = { ...event.headers }
  const cookie = headers.cookie
  const time = new Date(event.ts)
  /** @type {Record<string, any>} */
  const made = {
    version: '2.0',
    routeKey: `${event.method} ${rawPath}`,
    rawPath,
    rawQueryString: search,
    headers,
    requestContext: {
      accountId: '000000000000',
      apiId: 'local',
      domainName: splitOnce(headers.host ?? 'localhost', ':')[0],
      domainPrefix: 'local',
      http: {
        method: event.method,
        path: rawPath,
        protocol: 'HTTP/1.1',
        sourceIp: event.client?.ip ?? '',
        userAgent: event.client?.ua ?? '',
      },
      requestId: event.id,
      routeKey: `${event.method} ${rawPath}`,
      stage: '$default',
      time: toLogTime(time),
      timeEpoch: event.ts,
    },
    isBase64Encoded: event.is_base64,
  }
  // As on that platform, what a request does not have is left out.
  if (cookie) made.cookies = cookie.split(/;\s*/).filter(Boolean)
  const query = Object.entries(event.query)
  if (query.length > 0) {
    made.queryStringParameters = Object.fromEntries(
      query.map(([name, value]) => [name, Array.isArray(value) ? value.join(',') : value]),
    )
  }
  if (Object.keys(event.params).length > 0) made.pathParameters = { ...event.params }
  const body = event.is_base64 ? event.body_base64 : event.body
  if (body !== null) made.body = body
  return made
}

/**
 * @param {FunctionStart} fn
 * @param {FnEvent} event
 * @param {Call} call
 * @param {(error: unknown, value?: unknown) => void} done
 */
function toLambdaContext(fn, event, call, done) {
  const timeoutMs = fn.context?.timeout_ms ?? 0
  return {
    awsRequestId: event.id,
    functionName: fn.name,
    functionVersion: fn.version ?? '$LATEST',
    invokedFunctionArn: `arn:aws:lambda:local:000000000000:function:${fn.name}`,
    memoryLimitInMB: MEMORY_MB,
    logGroupName: `/fngw/${fn.name}`,
    logStreamName: String(process.pid),
    callbackWaitsForEmptyEventLoop: true,
    getRemainingTimeInMillis: () => Math.max(0, Math.round(timeoutMs - (performance.now() - call.startedAt))),
    done,
    fail: (/** @type {unknown} */ error) => done(error ?? new Error('context.fail was called')),
    succeed: (/** @type {unknown} */ value) => done(null, value),
  }
}

/** The answer's own form of cookies. @param {any} value */
function fromLambda(value) {
  if (typeof value !== 'object' || value === null || !Array.isArray(value.cookies)) return value
  if (value.statusCode === undefined && value.headers === undefined && value.body === undefined) return value
  const { cookies, ...rest } = value
  if (!cookies.every((/** @type {unknown} */ cookie) => typeof cookie === 'string')) {
    throw new ContractError('cookies must be an array of strings')
  }
  const headers = { ...rest.headers }
  const name = Object.keys(headers).find(key => key.toLowerCase() === 'set-cookie') ?? 'set-cookie'
  headers[name] = [...(headers[name] === undefined ? [] : [headers[name]].flat()), ...cookies]
  return { ...rest, statusCode: rest.statusCode ?? 200, headers }
}

/** `12/Mar/2020:19:03:58 +0000` @param {Date} time */
function toLogTime(time) {
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0')
  const day = `${two(time.getUTCDate())}/${MONTHS[time.getUTCMonth()]}/${time.getUTCFullYear()}`
  return `${day}:${two(time.getUTCHours())}:${two(time.getUTCMinutes())}:${two(time.getUTCSeconds())} +0000`
}

/** @param {string} text @param {string} mark @returns {[string, string | undefined]} */
function splitOnce(text, mark) {
  const at = text.indexOf(mark)
  return at === -1 ? [text, undefined] : [text.slice(0, at), text.slice(at + mark.length)]
}

/**
 * @param {FunctionStart} fn
 * @param {import('./callable.mjs').Callable} callable
 * @param {FnEvent} event
 * @param {Call} call
 */
async function invokeEdge(fn, { holder, call: handler }, event, call) {
  const request = toRequest(event, call.given)
  let passThrough = false
  const ctx = {
    requestId: event.id,
    params: event.params,
    waitUntil: (/** @type {unknown} */ work) => {
      const settled = Promise.resolve(work).catch(error => {
        const { message, stack } = toFailure('exception', error)
        process.stderr.write(`wait_until_rejection: ${stack || message}\n`)
      })
      call.background(settled)
    },
    passThroughOnException: () => {
      passThrough = true
    },
  }
  try {
    return await handler.call(holder, request, event.env, ctx)
  } catch (error) {
    // Only a function with an upstream has something to pass the request on to.
    if (!passThrough || fn.context?.edge !== true) throw error
    const { message, stack } = toFailure('exception', error)
    process.stderr.write(`passed through on exception: ${stack || message}\n`)
    return { proxy: { path: event.raw_path, method: event.method, headers: event.headers, ...toBody(event) } }
  }
}

/** @param {FnEvent} event */
function toBody(event) {
  return event.is_base64 ? { is_base64: true, body_base64: event.body_base64 } : { body: event.body }
}

/** @param {FnEvent} event @param {import('./event.mjs').GivenBody | null} given */
function toRequest(event, given) {
  const headers = new Headers()
  for (const [name, value] of Object.entries(event.headers))
    if (!CONNECTION_HEADERS.has(name)) headers.set(name, String(value))
  const scheme = event.headers['x-forwarded-proto'] === 'https' ? 'https' : 'http'
  const path = event.raw_path.startsWith('/') ? event.raw_path : `/${event.raw_path}`
  const url = `${scheme}://${event.headers.host ?? 'localhost'}${path}`
  const hasBody = event.method !== 'GET' && event.method !== 'HEAD'
  // A text without a type is given one by `Request`, bytes are not.
  const isBytes = given !== null && (headers.has('content-type') || given.isBase64)
  const body = isBytes ? given.lend() : event.is_base64 ? Buffer.from(event.body_base64 ?? '', 'base64') : event.body
  return new Request(URL.canParse(url) ? url : `${scheme}://localhost${path}`, {
    method: event.method,
    headers,
    body: hasBody ? /** @type {any} */ (body) : null,
    signal: event.signal,
  })
}
