/** `GET /openapi.json`: made when first asked for and kept while the catalog is in force. Owner: §4.1, page http/openapi. */

import { open } from 'node:fs/promises'
import type { FunctionVersion } from '../core/catalog.ts'
import { toGatewayError } from '../core/errors.ts'
import type { SchemaFile } from '../validation/schema-file.ts'
import { type ConstantAnswer, sendConstant, toConstantAnswer } from './respond.ts'
import type { Step } from './exchange.ts'
import { type ApiInfo, type DocumentedRoute, type HandlerHints, toOpenApi } from './openapi.ts'

export const OPENAPI_PATH = '/openapi.json'
/** Where the documentation page and the command line find it whatever the functions claim. */
const OWN_OPENAPI_PATH = '/docs/_ui/openapi.json'

/** Hints stand at the top of a file; the rest is not read. */
const HINT_BYTES = 16 * 1024
/** Files read at a time. */
const READERS = 16

interface OpenApiStepOptions {
  info: ApiInfo
  routes: () => readonly DocumentedRoute[]
  functions: readonly FunctionVersion[]
  schemaOf: (fn: FunctionVersion) => SchemaFile | null
  publicBaseUrl: string | null
  internal: readonly { path: string; methods: readonly string[] }[]
  /** A function or an asset is served at `/openapi.json`. */
  isClaimed: boolean
}

async function readStart(path: string): Promise<string> {
  const file = await open(path, 'r')
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HINT_BYTES), 0, HINT_BYTES, 0)
    return buffer.toString('utf8', 0, bytesRead)
  } finally {
    await file.close()
  }
}

/** An unreadable handler has no hints: its calls say why. */
async function readHints(functions: readonly FunctionVersion[]): Promise<Map<string, HandlerHints>> {
  const hints = new Map<string, HandlerHints>()
  const left = [...functions]
  const read = async (): Promise<void> => {
    for (let fn = left.pop(); fn !== undefined; fn = left.pop()) {
      const text = await readStart(fn.entryPath).catch(() => null)
      if (text !== null) hints.set(fn.key, parseHints(text))
    }
  }
  await Promise.all(Array.from({ length: READERS }, read))
  return hints
}

/** A step of the public path that answers with the document. */
export function createOpenApiStep(options: OpenApiStepOptions): Step {
  const make = async (): Promise<ConstantAnswer> => {
    const document = toOpenApi({
      info: options.info,
      routes: options.routes(),
      versions: options.functions.filter(fn => fn.version !== null),
      hints: await readHints(options.functions),
      schemaOf: options.schemaOf,
      baseUrl: options.publicBaseUrl ?? '/',
      internal: options.internal,
    })
    return toConstantAnswer(200, document)
  }
  // Strangers may ask for it as often as they like, so it is made once and is the same for all.
  let made: Promise<ConstantAnswer> | null = null
  return exchange => {
    const { path, method } = exchange
    const isOwn = path === OWN_OPENAPI_PATH || (path === OPENAPI_PATH && !options.isClaimed)
    if (!isOwn || (method !== 'GET' && method !== 'HEAD')) return false
    made ??= make()
    made.then(
      answer => sendConstant(exchange, answer),
      error => exchange.responder.sendError(exchange, toGatewayError(error)),
    )
    return true
  }
}

/** Lines of a handler searched for `@summary`, `@query`, `@body` and `@content_type`. */
const HINT_LINES = 80

const HINT = /^\s*(?:#|\/\/|--|\*|\/\*+)\s*@(summary|query|body|content_type)\s+(.+?)\s*(?:\*\/)?$/

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Reads the hints in a handler's comments; other lines are passed over, the first hint of a kind counts. */
export function parseHints(fileText: string): HandlerHints {
  const hints: HandlerHints = { summary: null, query: null, body: undefined, contentType: null }
  for (const line of fileText.split('\n', HINT_LINES)) {
    const match = HINT.exec(line)
    if (match === null) continue
    const [, kind, text] = match as unknown as [string, string, string]
    if (kind === 'summary') hints.summary ??= text
    else if (kind === 'content_type') hints.contentType ??= text
    else if (kind === 'body') hints.body ??= parseJson(text)
    else {
      const query = parseJson(text)
      if (typeof query === 'object' && query !== null && !Array.isArray(query)) hints.query ??= { ...query }
    }
  }
  return hints
}
