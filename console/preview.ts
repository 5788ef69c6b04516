/** How the bytes of an answer are shown: as JSON, text, a picture, or in hex; and bytes as base64. Owner: page console/try. */

export type PreviewKind = 'empty' | 'json' | 'text' | 'image' | 'binary'

/** Pictures that a browser draws without running anything, by how their files begin; SVG in an <img> runs no script. */
const IMAGES: readonly (readonly [type: string, start: RegExp])[] = [
  ['image/png', /^\x89PNG/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/gif', /^GIF8/],
  ['image/webp', /^RIFF.{4}WEBP/s],
  ['image/avif', /^.{4}ftypavi/s],
  ['image/bmp', /^BM/],
  ['image/x-icon', /^\0\0\x01\0/],
  ['image/svg+xml', /^\s*(?:<\?xml|<!--|<!DOCTYPE svg|<svg)/i],
]

/** Characters of JSON that are indented; more would hold up the page. */
const MOST_JSON_CHARS = 2 * 1024 * 1024

/** @param contentType - '' when there was none */
export function toPreviewKind(contentType: string, bytes: Uint8Array): PreviewKind {
  if (bytes.length === 0) return 'empty'
  const type = contentType.split(';', 1)[0]!.trim().toLowerCase()
  if (toImageType(type, bytes) !== null) return 'image'
  const text = toText(bytes)
  if (text === null) return 'binary'
  const mayBeJson = /[/+]json$/.test(type) || type === '' || type === 'text/plain'
  return mayBeJson && text.length <= MOST_JSON_CHARS && toPrettyJson(text) !== null ? 'json' : 'text'
}

/** The type as a picture; null when the bytes are none, whatever the function calls them. */
export function toImageType(contentType: string, bytes: Uint8Array): string | null {
  const type = contentType.split(';', 1)[0]!.trim().toLowerCase()
  const start = String.fromCharCode(...bytes.subarray(0, 64))
  return IMAGES.find(([name, pattern]) => name === type && pattern.test(start))?.[0] ?? null
}

/** null for bytes that are no UTF-8 text. */
export function toText(bytes: Uint8Array): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    return text.includes('\0') ? null : text
  } catch {
    return null
  }
}

/** The parts of JSON: a string, a mark, another value; space between them is left out. */
const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g

/** Indented, with every number and every key as it was written: parsing would round and merge them. null if it is not JSON. */
export function toPrettyJson(text: string): string | null {
  try {
    JSON.parse(text)
  } catch {
    return null
  }
  const lines: string[] = []
  let depth = 0
  let line = ''
  const end = (): void => {
    lines.push(line)
    line = '  '.repeat(depth)
  }
  let before = ''
  for (const [token] of text.matchAll(TOKEN)) {
    const isEmptied = (token === ']' && before === '[') || (token === '}' && before === '{')
    if (token === ']' || token === '}') depth -= 1
    if ((before === '[' || before === '{') && !isEmptied) end()
    if ((token === ']' || token === '}') && !isEmptied) end()
    line += token
    if (token === ':') line += ' '
    if (token === '[' || token === '{') depth += 1
    if (token === ',') end()
    before = token
  }
  lines.push(line)
  return lines.join('\n')
}

const BYTES_A_LINE = 16

/** Address, bytes and letters, as `xxd` shows them. */
export function toHexDump(bytes: Uint8Array, most: number): string {
  const lines: string[] = []
  const end = Math.min(bytes.length, most)
  for (let at = 0; at < end; at += BYTES_A_LINE) {
    const row = [...bytes.subarray(at, Math.min(end, at + BYTES_A_LINE))]
    const hex = row.map(byte => byte.toString(16).padStart(2, '0')).join(' ')
    const letters = row.map(byte => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '.')).join('')
    lines.push(`${at.toString(16).padStart(8, '0')}  ${hex.padEnd(BYTES_A_LINE * 3)} ${letters}`)
  }
  return lines.join('\n')
}

/** Bytes as base64, without a string that is longer than a call takes arguments. */
export function toBase64(bytes: Uint8Array): string {
  let text = ''
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192))
  return btoa(text)
}

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), character => character.charCodeAt(0))
}
