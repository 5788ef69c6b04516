/**
 * `GET /docs`: Swagger UI over this gateway's own OpenAPI document, from files of the package. Owner: page http/docs-page.
 *
 * The page contains neither script nor style, so the policy it is sent with forbids both: text of a handler
 * that found its way into the document cannot run.
 */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { Warning } from '../core/errors.ts'
import { GatewayError } from '../core/errors.ts'
import { packageFile } from '../runtime/package-files.ts'
import {
  type ConstantAnswer,
  type PackedFile,
  sendConstant,
  sendPackedFile,
  toConstantBytes,
  toPackedFile,
} from './respond.ts'
import type { Exchange, Step } from './exchange.ts'
import { OPENAPI_PATH } from './openapi-step.ts'

export const DOCS_PATH = '/docs'
/** Names that begin with `_` are never routes. */
const FILES_PATH = '/docs/_ui/'
/** The rest of a route that answers at its folder too, such as `[[...slug]].js`. */
const OPTIONAL_CATCH_ALL = /^\/:[^/]*\*\?$/

const FILES: ReadonlyMap<string, string> = new Map([
  ['swagger-ui-bundle.js', 'text/javascript; charset=utf-8'],
  ['swagger-ui.css', 'text/css; charset=utf-8'],
  ['favicon-32x32.png', 'image/png'],
])

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

/** The files of the page; each is read when it is first asked for, and kept. One per gateway. */
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

  /** Answers the page and its files. */
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
    const known = this.#files.get(name) ?? this.#load(name)
    if (known === null) {
      exchange.responder.sendError(exchange, new GatewayError('NOT_FOUND', 'not found'))
      return
    }
    this.#files.set(name, known)
    try {
      sendPackedFile(exchange, await known)
    } catch (cause) {
      this.#files.delete(name)
      const text = `${name} is not installed: run "npm install" in the sources, or install the package again`
      exchange.responder.sendError(exchange, new GatewayError('INTERNAL', text, { cause }))
    }
  }

  /** Null for a name that is not a file of the page. */
  #load(name: string): Promise<PackedFile> | null {
    if (name === 'start.js') return toPackedFile(Buffer.from(START), FILES.get('swagger-ui-bundle.js')!)
    if (name === 'page.css') return toPackedFile(Buffer.from(STYLE), FILES.get('swagger-ui.css')!)
    const type = FILES.get(name)
    return type === undefined ? null : readFile(toFilePath(name)).then(bytes => toPackedFile(bytes, type))
  }
}

/** The build copies the files; a checkout that has not been built has them where npm put them. */
function toFilePath(name: string): string {
  const built = packageFile(`dist/docs/${name}`)
  return existsSync(built) ? built : packageFile(`node_modules/swagger-ui-dist/${name}`)
}

/** The documents that the gateway makes of itself, by their path. */
export const DOCUMENTS: ReadonlyMap<string, string> = new Map([
  [OPENAPI_PATH, 'the OpenAPI document'],
  [DOCS_PATH, 'the documentation page'],
])

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
