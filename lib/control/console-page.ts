/**
 * `/console`: one page for every address below it, and the files that `build/console.mjs` made of `console`.
 * This file knows nothing of the gateway: the page gets its data from `/_fn/*`. Owner: page console/console.
 */

import { readFile } from 'node:fs/promises'
import { GatewayError } from '../core/errors.ts'
import { type ConstantAnswer, type PackedFile, sendPackedFile, toConstantBytes, toPackedFile } from '../http/respond.ts'
import type { Exchange } from '../http/exchange.ts'
import { packageFile } from '../runtime/package-files.ts'
import type { ControlReply } from './endpoint.ts'

export const CONSOLE_PATH = '/console'
/** No page is called so. */
const FILES_PATH = `${CONSOLE_PATH}/_files/`
/** Folders below `/console` that an address may have; no page has as many. */
const MAX_DEPTH = 32

const TYPES: ReadonlyMap<string, string> = new Map([
  ['js', 'text/javascript; charset=utf-8'],
  ['css', 'text/css; charset=utf-8'],
  ['svg', 'image/svg+xml'],
])

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-src 'self' blob:; frame-ancestors 'none'"

const PAGE_HEADERS = [
  ...['Content-Security-Policy', POLICY, 'X-Content-Type-Options', 'nosniff'],
  ...['Referrer-Policy', 'no-referrer', 'Cross-Origin-Opener-Policy', 'same-origin'],
]
/** A name has a digest of what is in the file. */
const FOREVER = 'public, max-age=31536000, immutable'

/** `files.json` of the build. */
interface Built {
  main: string
  boot: string
  style: string
  names: string[]
}

export class ConsolePage {
  readonly #folder: string
  readonly #files = new Map<string, PackedFile>()
  /** By folders between the address and the root. */
  readonly #pages = new Map<number, ConstantAnswer>()
  #built: Built | null = null

  /** @param folder - the result of the build */
  constructor(folder: string = packageFile('dist/console')) {
    this.#folder = folder
  }

  /** @param path - at or below `/console`, unescaped */
  async answer(exchange: Exchange, path: string): Promise<ControlReply> {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD')
      throw new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers: { Allow: 'GET, HEAD' } })
    // Read with the first request: an unused console costs nothing.
    const why = 'the console is not built: run "npm run build" in the sources, or install the package again'
    this.#built ??= JSON.parse((await this.#read('files.json', why)).toString('utf8')) as Built
    if (path.startsWith(FILES_PATH)) return this.#toFileReply(path.slice(FILES_PATH.length), this.#built)
    const rawPath = exchange.rawPath.split('?', 1)[0] as string
    const depth = rawPath.split('/').length - 2
    if (depth > MAX_DEPTH) throw new GatewayError('NOT_FOUND', 'not found')
    const page = this.#pages.get(depth) ?? toPage(this.#built, depth)
    this.#pages.set(depth, page)
    return page
  }

  async #toFileReply(name: string, { names }: Built): Promise<ControlReply> {
    const type = TYPES.get(name.slice(name.lastIndexOf('.') + 1))
    // Names of the list only: nothing of an address becomes part of a path.
    if (!names.includes(name) || type === undefined) throw new GatewayError('NOT_FOUND', 'not found')
    let file = this.#files.get(name)
    if (file === undefined) {
      const bytes = await this.#read(name, `${name} of the console is gone: run "npm run build", or install again`)
      file = await toPackedFile(bytes, type, FOREVER)
      this.#files.set(name, file)
    }
    const packed = file
    return { send: exchange => sendPackedFile(exchange, packed) }
  }

  /** @param why - the message when it cannot be read */
  async #read(name: string, why: string): Promise<Buffer> {
    try {
      return await readFile(`${this.#folder}/${name}`)
    } catch (cause) {
      throw new GatewayError('INTERNAL', why, { cause })
    }
  }
}

/** @param depth - folders between the address and the root */
function toPage({ main, boot, style }: Built, depth: number): ConstantAnswer {
  const root = depth === 0 ? './' : '../'.repeat(depth)
  const files = `${root}console/_files/`
  const text = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="gateway" content="${root}">
<title>fngw</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${files}${style}">
<script src="${files}${boot}"></script>
<script type="module" src="${files}${main}"></script>
<body>
<div id="app"></div>
<noscript>The console needs JavaScript. What it shows can be had from /_fn/health and its like, too.</noscript>
</html>
`
  return toConstantBytes(200, Buffer.from(text), 'text/html; charset=utf-8', PAGE_HEADERS)
}
