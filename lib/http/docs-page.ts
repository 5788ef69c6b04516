/**
 * The documents that the gateway makes of itself: `GET /openapi.json`, and `GET /docs`, which shows it in Swagger UI from files of the
 * package. Owner: §4.1, pages http/docs-page, http/openapi.
 *
 * The page contains neither script nor style, so the policy it is sent with forbids both: text of a handler
 * that found its way into the document cannot run.
 */

import { existsSync } from 'node:fs'
import { open, readFile } from 'node:fs/promises'
import type { FunctionVersion } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError, toGatewayError, type Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { mapSome } from '../core/semaphore.ts'
import { packageFile } from '../runtime/package-files.ts'
import type { Exchange, Step } from './exchange.ts'
import { type HandlerHints, type OpenApiFacts, toOpenApi } from './openapi.ts'
import {
  type ConstantAnswer,
  type PackedFile,
  sendConstant,
  sendPackedFile,
  toConstantAnswer,
  toConstantBytes,
  toPackedFile,
} from './respond.ts'

export const OPENAPI_PATH = '/openapi.json'
export const DOCS_PATH = '/docs'
/** Names that begin with `_` are never routes. */
const FILES_PATH = '/docs/_ui/'
/** Where the documentation page and the command line find the document whatever the functions claim. */
const OWN_OPENAPI_PATH = `${FILES_PATH}openapi.json`
/** The rest of a route that answers at its folder too, such as `[[...slug]].js`. */
const OPTIONAL_CATCH_ALL = /^\/:[^/]*\*\?$/

export const DOCUMENTS: ReadonlyMap<string, string> = new Map([
  [OPENAPI_PATH, 'the OpenAPI document'],
  [DOCS_PATH, 'the documentation page'],
])

const JAVASCRIPT = 'text/javascript; charset=utf-8'
const CSS = 'text/css; charset=utf-8'

const START = `'use strict'
const config = document.querySelector('meta[name="openapi"]')
window.ui = SwaggerUIBundle({
  url: config.content,
  dom_id: '#docs',
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
  layout: 'BaseLayout',
  validatorUrl: null,
  tryItOutEnabled: true,
  displayRequestDuration: true,
})
`

const STYLE = `body { margin: 0; background: #fff }
noscript, .failed { display: block; margin: 2rem; font: 16px/1.5 system-ui, sans-serif }
`

/** The files of the page: their types, and the text of those that are not Swagger UI's. */
const FILES: ReadonlyMap<string, { type: string; text?: string }> = new Map([
  ['swagger-ui-bundle.js', { type: JAVASCRIPT }],
  ['swagger-ui.css', { type: CSS }],
  ['favicon-32x32.png', { type: 'image/png' }],
  ['start.js', { type: JAVASCRIPT, text: START }],
  ['page.css', { type: CSS, text: STYLE }],
])

/** @param base - path from the page's address to the folder it seems to lie in */
function toPage(base: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="openapi" content="${base}docs/_ui/openapi.json">
<title>API documentation</title>
<link rel="icon" href="${base}docs/_ui/favicon-32x32.png">
<link rel="stylesheet" href="${base}docs/_ui/swagger-ui.css">
<link rel="stylesheet" href="${base}docs/_ui/page.css">
<body>
<div id="docs"></div>
<noscript>This page needs JavaScript. The document itself is <a href="${base}docs/_ui/openapi.json">openapi.json</a>.</noscript>
<script src="${base}docs/_ui/swagger-ui-bundle.js" defer></script>
<script src="${base}docs/_ui/start.js" defer></script>
</html>
`
}

/** @param apiOrigin - where requests of the page go when that is elsewhere */
function toPolicy(apiOrigin: string | null): string {
  const connect = apiOrigin === null ? `'self'` : `'self' ${apiOrigin}`
  return (
    `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src ${connect}; ` +
    `base-uri 'none'; form-action 'none'; frame-ancestors 'none'`
  )
}

/** The page and its files; each is read when it is first asked for, and kept. One per gateway. */
export class DocsPage {
  readonly #files = new Map<string, Promise<PackedFile>>()
  readonly #pages: readonly ConstantAnswer[]

  /** @param publicBaseUrl - where the document says that requests go; null for the page's own origin */
  constructor(publicBaseUrl: string | null) {
    const origin = publicBaseUrl === null ? null : new URL(publicBaseUrl).origin
    const headers = [
      ...['Content-Security-Policy', toPolicy(origin)],
      ...['X-Content-Type-Options', 'nosniff', 'Referrer-Policy', 'no-referrer'],
    ]
    // The address `/docs/` is one folder deeper for the browser.
    this.#pages = ['', '../'].map(base =>
      toConstantBytes(200, Buffer.from(toPage(base)), 'text/html; charset=utf-8', headers),
    )
  }

  readonly step: Step = exchange => {
    const { path, method } = exchange
    if (!path.startsWith(DOCS_PATH) || (method !== 'GET' && method !== 'HEAD')) return false
    if (path === DOCS_PATH) {
      const isFolder = exchange.rawPath.split('?', 1)[0]!.endsWith('/')
      sendConstant(exchange, this.#pages[isFolder ? 1 : 0]!)
      return true
    }
    if (!path.startsWith(FILES_PATH)) return false
    void this.#sendFile(exchange, path.slice(FILES_PATH.length))
    return true
  }

  async #sendFile(exchange: Exchange, name: string): Promise<void> {
    const file = FILES.get(name)
    if (file === undefined) {
      exchange.responder.sendError(exchange, new GatewayError('NOT_FOUND', 'not found'))
      return
    }
    try {
      sendPackedFile(exchange, await getOrMake(this.#files, name, () => readPacked(name, file)))
    } catch (cause) {
      this.#files.delete(name)
      const text = `${name} is not installed: run "npm install" in the sources, or install the package again`
      exchange.responder.sendError(exchange, new GatewayError('INTERNAL', text, { cause }))
    }
  }
}

/** The build copies the files; a checkout that has not been built has them where npm put them. */
async function readPacked(name: string, { type, text }: { type: string; text?: string }): Promise<PackedFile> {
  if (text !== undefined) return toPackedFile(Buffer.from(text), type)
  const built = packageFile(`dist/docs/${name}`)
  return toPackedFile(
    await readFile(existsSync(built) ? built : packageFile(`node_modules/swagger-ui-dist/${name}`)),
    type,
  )
}

/**
 * The thing that is served at the path of a document instead of it, in words; null when nothing claims it. A catch-all does not.
 * @param patterns - of routes that answer GET
 */
export function findClaim(path: string, patterns: Iterable<string>, isAsset: boolean): string | null {
  for (const pattern of patterns) {
    if (pattern === path || (pattern.startsWith(`${path}/:`) && OPTIONAL_CATCH_ALL.test(pattern.slice(path.length))))
      return `the route ${pattern}`
  }
  return isAsset ? 'a file of the assets' : null
}

export function toClaimWarning([path, claim]: readonly [path: string, claim: string]): Warning {
  return {
    code: 'DOCS_HIDDEN',
    path: '.',
    message: `${path} is ${claim}: ${DOCUMENTS.get(path)} is not served there`,
    hint: 'Rename it, or set FN_DOCS_ENABLED=0 when it is meant so.',
  }
}

interface OpenApiStepOptions extends Pick<OpenApiFacts, 'info' | 'schemaOf' | 'internal'> {
  routes: () => OpenApiFacts['routes']
  functions: readonly FunctionVersion[]
  publicBaseUrl: string | null
  /** A function or an asset is served at `/openapi.json`. */
  isClaimed: boolean
}

/** A step of the public path that answers with the document: made when first asked for and kept while the catalog is in force. */
export function createOpenApiStep({ routes, functions, publicBaseUrl, isClaimed, ...facts }: OpenApiStepOptions): Step {
  const make = async (): Promise<ConstantAnswer> => {
    const versions = functions.filter(fn => fn.version !== null)
    const hints = await readHints(functions)
    return toConstantAnswer(
      200,
      toOpenApi({ ...facts, routes: routes(), versions, hints, baseUrl: publicBaseUrl ?? '/' }),
    )
  }
  // Strangers may ask for it as often as they like, so it is made once and is the same for all.
  let made: Promise<ConstantAnswer> | null = null
  return exchange => {
    const { path, method } = exchange
    const isOwn = path === OWN_OPENAPI_PATH || (path === OPENAPI_PATH && !isClaimed)
    if (!isOwn || (method !== 'GET' && method !== 'HEAD')) return false
    made ??= make()
    made.then(
      answer => sendConstant(exchange, answer),
      error => exchange.responder.sendError(exchange, toGatewayError(error)),
    )
    return true
  }
}

/** Hints stand at the top of a file; the rest is not read. */
const HINT_BYTES = 16 * 1024
const HINT_LINES = 80

const HINT = /^\s*(?:#|\/\/|--|\*|\/\*+)\s*@(summary|query|body|content_type)\s+(.+?)\s*(?:\*\/)?$/

/** An unreadable handler has no hints: its calls say why. */
async function readHints(functions: readonly FunctionVersion[]): Promise<Map<string, HandlerHints>> {
  const hints = new Map<string, HandlerHints>()
  await mapSome(functions, async ({ key, entryPath }) => {
    const text = await readStart(entryPath).catch(() => null)
    if (text !== null) hints.set(key, parseHints(text))
  })
  return hints
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

/** Reads the hints in a handler's comments; other lines are passed over, the first hint of a kind counts. */
export function parseHints(fileText: string): HandlerHints {
  const hints: HandlerHints = { summary: null, query: null, body: undefined, contentType: null }
  for (const line of fileText.split('\n', HINT_LINES)) {
    const [, kind, text] = HINT.exec(line) ?? []
    if (text === undefined) continue
    if (kind === 'summary') hints.summary ??= text
    else if (kind === 'content_type') hints.contentType ??= text
    else if (kind === 'body') hints.body ??= parseJson(text)
    else {
      const query = parseJson(text)
      if (isObject(query)) hints.query ??= query
    }
  }
  return hints
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
