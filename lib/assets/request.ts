/** What a request for a static file says in its headers, and which name it asks for. Owner: §2.11. */

import { unescapeCanonical } from '../router/path.ts'
import type { Asset, AssetForm, Coding } from './file.ts'

/** `Accept-Encoding` texts remembered as read. */
const KNOWN_ACCEPT_ENCODINGS = 64

/** Headers that decide about the answer; null when absent, repeated ones joined. */
export interface AssetHead {
  accept: string | null
  acceptEncoding: string | null
  fetchMode: string | null
  fetchDest: string | null
  range: string | null
  ifRange: string | null
  ifMatch: string | null
  ifNoneMatch: string | null
  ifModifiedSince: string | null
  ifUnmodifiedSince: string | null
}

const FIELDS: Readonly<Record<string, keyof AssetHead>> = {
  accept: 'accept',
  'accept-encoding': 'acceptEncoding',
  'sec-fetch-mode': 'fetchMode',
  'sec-fetch-dest': 'fetchDest',
  range: 'range',
  'if-range': 'ifRange',
  'if-match': 'ifMatch',
  'if-none-match': 'ifNoneMatch',
  'if-modified-since': 'ifModifiedSince',
  'if-unmodified-since': 'ifUnmodifiedSince',
}

export function readAssetHead(rawHeaders: readonly string[]): AssetHead {
  const head: AssetHead = {
    accept: null,
    acceptEncoding: null,
    fetchMode: null,
    fetchDest: null,
    range: null,
    ifRange: null,
    ifMatch: null,
    ifNoneMatch: null,
    ifModifiedSince: null,
    ifUnmodifiedSince: null,
  }
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const first = rawHeaders[i]!.charCodeAt(0) | 32
    // a, i, r, s: most headers begin with another letter.
    if (first !== 97 && first !== 105 && first !== 114 && first !== 115) continue
    const name = rawHeaders[i]!.toLowerCase()
    if (!Object.hasOwn(FIELDS, name)) continue
    const field = FIELDS[name]!
    const earlier = head[field]
    head[field] = earlier === null ? rawHeaders[i + 1]! : `${earlier}, ${rawHeaders[i + 1]}`
  }
  return head
}

/** Hidden or ambiguous names: a segment that begins with a dot, an escaped slash, a backslash, control characters. */
const UNSAFE = /\/\.|%2F|[\\\u0000-\u001f\u007f]/
/** The gateway's own files, should somebody name a folder that holds them; copies too, whatever is appended to the name. */
const OWN_FILE = /(?:^|\/)(?:fngw|fn\.(?:config|env|routes))\.json[^/]*$/i
/** What editors and tools leave beside a file: its earlier content, perhaps with a secret that was taken out. */
const BACKUP = /(?:~|\.(?:bak|backup|old|orig|rej|sw[nop]))$|(?:^|\/)#[^/]*#$/i

/**
 * @param path - canonical path of the request
 * @returns the name below the assets directory, or null for a path that never is an asset
 */
export function toAssetName(path: string): string | null {
  if (path === '/') return 'index.html'
  if (UNSAFE.test(path)) return null
  const name = unescapeCanonical(path.slice(1))
  return OWN_FILE.test(name) || BACKUP.test(name) ? null : name
}

const API = /^\/api(?:[/-]|$)/

/** True for a path that a page of a single-page application may have: no file name, no API. */
export function isPagePath(path: string): boolean {
  return !UNSAFE.test(path) && !path.slice(path.lastIndexOf('/') + 1).includes('.') && !API.test(path)
}

/** True when a browser goes to a page, or a client takes anything. */
export function isNavigation(head: AssetHead): boolean {
  if (head.fetchMode === 'navigate' || head.fetchDest === 'document') return true
  if (head.accept === null || head.accept.trim() === '') return true
  const accepted = readQualities(head.accept)
  return (accepted.get('text/html') ?? accepted.get('text/*') ?? accepted.get('*/*') ?? 0) > 0
}

/** Names of a list with their weights, lower-case; a weight that is no number counts as 0. */
function readQualities(text: string): Map<string, number> {
  const weights = new Map<string, number>()
  for (const item of text.toLowerCase().split(',')) {
    const [name = '', ...params] = item.split(';').map(part => part.trim())
    const q = params.find(param => param.startsWith('q='))
    if (name !== '') weights.set(name, q === undefined ? 1 : Number(q.slice(2)) || 0)
  }
  return weights
}

/** How much a client wants each form. */
interface CodingQualities {
  br: number
  gzip: number
  plain: number
}

/** Reads `Accept-Encoding`; remembers texts, because browsers send few different ones. */
export class CodingChoice {
  readonly #known = new Map<string, CodingQualities>()

  /** The form of an asset that a client likes best; of equals the smaller one. The plain one when it likes none. */
  choose(asset: Asset, acceptEncoding: string | null): AssetForm {
    if (acceptEncoding === null || (asset.br === null && asset.gzip === null)) return asset.plain
    const wish = this.#read(acceptEncoding)
    const br = asset.br === null ? 0 : wish.br
    const gzip = asset.gzip === null ? 0 : wish.gzip
    if (br > 0 && br >= gzip && br >= wish.plain) return asset.br!
    if (gzip > 0 && gzip >= wish.plain) return asset.gzip!
    return asset.plain
  }

  #read(text: string): CodingQualities {
    const known = this.#known.get(text)
    if (known !== undefined) return known
    const weights = readQualities(text)
    const of = (coding: Coding): number => weights.get(coding) ?? weights.get('*') ?? 0
    const wish = {
      br: of('br'),
      gzip: Math.max(of('gzip'), weights.get('x-gzip') ?? 0),
      plain: weights.get('identity') ?? 0,
    }
    if (this.#known.size >= KNOWN_ACCEPT_ENCODINGS) this.#known.clear()
    this.#known.set(text, wish)
    return wish
  }
}
