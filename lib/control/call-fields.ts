/** A call of a function as JSON: which fields it has, and what each may be. Owner: page control/invoke. */

import {
  boolean,
  hidden,
  json,
  jsonObject,
  mapOf,
  mapped,
  object,
  oneOf,
  readRequest,
  string,
} from '../config/fields.ts'
import { reportWrong } from '../config/findings.ts'
import { toScalarText } from '../config/texts.ts'
import { findUnsendable, isHeaderName } from '../core/http-text.ts'
import { isVersion, MAX_NAME_CHARS, METHODS, RUNTIMES, type RuntimeName } from '../core/identity.ts'
import { toCallBody, withBodyType } from '../invocation/internal-call.ts'

/** A call as it was asked for, checked; what was left out is null. */
export interface CallFields {
  name: string
  runtime: RuntimeName | null
  version: string | null
  /** Any method of HTTP that a function could be asked with; whether it allows it is checked with the call. */
  method: string
  query: Readonly<Record<string, unknown>> | null
  /** Names as written; lists are joined. */
  headers: Readonly<Record<string, string>>
  body: Buffer | null
  context: Readonly<Record<string, unknown>> | null
  /** A path at which the function answers, or one of its routes to put `params` into. */
  route: string | null
  params: Readonly<Record<string, string>> | null
}

const MAX_HEADER_CHARS = 16 * 1024

/** A list is one header with its texts joined, as when a client repeats it. */
const headerValue = mapped(json(), (value, at) => {
  const texts = (Array.isArray(value) ? value : [value]).map(toScalarText)
  const text = texts.includes(undefined) ? null : texts.join(', ')
  const isRight = text !== null && text.length <= MAX_HEADER_CHARS && findUnsendable(text) === null
  return isRight ? text : reportWrong(at, 'text that a header can carry, or a list of texts', value)
})

const param = mapped(json(), (value, at) => {
  const text = toScalarText(value)
  // Half a character has no percent escape.
  if (text === undefined || text === '' || /\p{Surrogate}/u.test(text))
    return reportWrong(at, 'text that is not empty, or a number', value)
  return text
})

const base64 = mapped(string({ multiline: true, rule: 'base64 text' }), (text, at) => {
  const isBase64 = text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text)
  return isBase64 ? Buffer.from(text, 'base64') : reportWrong(at, 'base64 text, with its padding', text)
})

// The content of a call may be secret, and a refusal is logged: messages do not show hidden values.
const CALL = object(
  {
    name: string({ rule: 'the name of a function', maxLength: MAX_NAME_CHARS }),
    runtime: oneOf(RUNTIMES),
    version: string({ rule: 'the label of a version', parse: text => (isVersion(text) ? text : null) }),
    method: oneOf([...METHODS, 'HEAD', 'OPTIONS']),
    query: hidden(jsonObject()),
    headers: hidden(mapOf(headerValue, { keyRule: 'a header name' })),
    body: json(),
    is_base64: boolean(),
    body_base64: hidden(base64),
    context: hidden(jsonObject()),
    route: string({ rule: 'a path that starts with /', pattern: /^\// }),
    params: hidden(mapOf(param)),
  },
  { required: ['name', 'method'], strict: true },
)

/**
 * Reads a call.
 * @throws GatewayError BAD_REQUEST that names every wrong field with its rule and its value
 */
export function readCallFields(value: Readonly<Record<string, unknown>>): CallFields {
  const call = readRequest(CALL, value, ({ headers, body, bodyBase64, isBase64 }, at) => {
    for (const name of Object.keys(headers ?? {})) {
      if (!isHeaderName(name)) reportWrong({ ...at, name: 'headers' }, 'an object of header names', name)
    }
    if (body !== undefined && bodyBase64 !== undefined)
      reportWrong({ ...at, name: 'body_base64' }, 'absent where body is given', 'both')
    if (isBase64 === true && bodyBase64 === undefined)
      reportWrong({ ...at, name: 'is_base64' }, 'false where body_base64 is not given', true)
  })
  const { body, bodyBase64 } = call
  return {
    name: call.name!,
    runtime: call.runtime ?? null,
    version: call.version ?? null,
    method: call.method!,
    query: call.query ?? null,
    headers: withBodyType(call.headers ?? {}, body),
    body: bodyBase64 ?? toCallBody(body),
    context: call.context ?? null,
    route: call.route ?? null,
    params: call.params ?? null,
  }
}
