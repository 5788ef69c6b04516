/** A request as a command of curl, as fetch, as Python requests. Whatever is in it, the snippet sends it and does nothing else. Owner: page console/try. */

import type { HeaderPair } from './try-request.ts'

interface SnippetField {
  readonly name: string
  readonly value: string
  /** Of a file that is sent instead of the value. */
  readonly file: { readonly name: string; readonly type: string } | null
}

type SnippetBody =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'file'; readonly name: string }
  | { readonly kind: 'form'; readonly fields: readonly SnippetField[] }

export interface SnippetRequest {
  readonly method: string
  /** Whole, escaped as URLs are. */
  readonly url: string
  readonly headers: readonly HeaderPair[]
  readonly body: SnippetBody | null
}

/**
 * Characters that must be escaped in a snippet: control characters, which a terminal obeys when they are pasted (a tab completes, an
 * escape types), characters without width, and those that turn the direction of what is read.
 */
const UNSAFE = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu
const HALF_CHARACTER = /\p{Surrogate}/gu

/** Half a character cannot be sent: it goes as browsers write it. */
const wellFormed = (text: string): string => text.replace(HALF_CHARACTER, '\ufffd')

const hasUnsafe = (text: string): boolean => text.search(UNSAFE) !== -1

function toBytes(text: string): number[] {
  return [...new TextEncoder().encode(text)]
}

/** One word of bash, zsh or ksh. */
function toShell(text: string): string {
  const right = wellFormed(text)
  if (!hasUnsafe(right)) return `'${right.replaceAll("'", "'\\''")}'`
  const escaped = right
    .replace(/[\\'!]/g, character => `\\x${character.charCodeAt(0).toString(16)}`)
    .replaceAll('\n', '\\n')
    .replace(UNSAFE, character => toBytes(character).map(toHex).join(''))
  return `$'${escaped}'`
}

const toHex = (byte: number): string => `\\x${byte.toString(16).padStart(2, '0')}`

/** A word cannot hold the byte 0: printf writes it. */
function toPrintf(text: string): string {
  const octal = toBytes(wellFormed(text)).map(byte =>
    byte < 32 || byte > 126 || '\\%\'!"$`'.includes(String.fromCharCode(byte))
      ? `\\${byte.toString(8).padStart(3, '0')}`
      : String.fromCharCode(byte),
  )
  return `printf -- '${octal.join('')}'`
}

export function toCurl({ method, url, headers, body }: SnippetRequest): string {
  const isPiped = body?.kind === 'text' && body.text.includes('\0')
  const words = ['curl', '--globoff']
  if (method === 'HEAD') words.push('--head')
  else if (method !== 'GET' || body !== null) words.push(`-X ${toShell(method)}`)
  words.push(toShell(url))
  // Without a value a colon would take the header out.
  for (const [name, value] of headers) words.push(`-H ${toShell(value === '' ? `${name};` : `${name}: ${value}`)}`)
  if (isPiped) words.push('--data-binary @-')
  else if (body?.kind === 'text') words.push(`--data-raw ${toShell(body.text)}`)
  else if (body?.kind === 'file') words.push(`--data-binary ${toShell(`@${body.name}`)}`)
  else if (body !== null) words.push(...toCurlForm(body.fields))
  const [first, second, ...rest] = words
  const command = [`${first} ${second}`, ...rest].join(' \\\n  ')
  return isPiped ? `${toPrintf(body.text)} |\n  ${command}` : command
}

function toCurlForm(fields: readonly SnippetField[]): string[] {
  if (fields.every(({ file }) => file === null)) return [`--data-raw ${toShell(toFormText(fields))}`]
  return fields.map(({ name, value, file }) => {
    if (file === null) return `--form-string ${toShell(`${name}=${value}`)}`
    const path = file.name.replace(/["\\]/g, character => `\\${character}`)
    const type = /^[\w.+-]+\/[\w.+-]+$/.test(file.type) ? `;type=${file.type}` : ''
    return `-F ${toShell(`${name}=@"${path}"${type}`)}`
  })
}

function toFormText(fields: readonly SnippetField[]): string {
  return new URLSearchParams(fields.map(({ name, value }): [string, string] => [name, value])).toString()
}

/** A string of JavaScript. */
function toScript(text: string): string {
  return JSON.stringify(wellFormed(text)).replace(
    UNSAFE,
    character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

export function toFetch({ method, url, headers, body }: SnippetRequest): string {
  const before: string[] = []
  const options: string[] = [`  method: ${toScript(method)},`]
  if (headers.length > 0) {
    const pairs = headers.map(([name, value]) => `    [${toScript(name)}, ${toScript(value)}],`)
    options.push('  headers: [', ...pairs, '  ],')
  }
  if (body?.kind === 'text') options.push(`  body: ${toScript(body.text)},`)
  else if (body?.kind === 'file') {
    before.push("import { openAsBlob } from 'node:fs'", '')
    options.push(`  body: await openAsBlob(${toScript(body.name)}),`)
  } else if (body !== null) {
    before.push(...toFetchForm(body.fields))
    options.push('  body: form,')
  }
  return [
    ...before,
    `const answer = await fetch(${toScript(url)}, {`,
    ...options,
    '})',
    'console.log(answer.status, await answer.text())',
  ].join('\n')
}

function toFetchForm(fields: readonly SnippetField[]): string[] {
  const hasFile = fields.some(({ file }) => file !== null)
  const lines = fields.map(({ name, value, file }) => {
    if (file === null) return `form.append(${toScript(name)}, ${toScript(value)})`
    const blob = `await openAsBlob(${toScript(file.name)}, { type: ${toScript(file.type)} })`
    return `form.append(${toScript(name)}, ${blob}, ${toScript(file.name)})`
  })
  const head = hasFile ? ["import { openAsBlob } from 'node:fs'", ''] : []
  return [...head, `const form = new ${hasFile ? 'FormData' : 'URLSearchParams'}()`, ...lines]
}

/** A string of Python: JSON writes characters beyond the first 65,536 as two, which Python would keep apart. */
function toPythonText(text: string): string {
  const escaped = wellFormed(text)
    .replace(/[\\"]/g, character => `\\${character}`)
    .replaceAll('\n', '\\n')
    .replace(UNSAFE, character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return `"${escaped}"`
}

export function toPython({ method, url, headers, body }: SnippetRequest): string {
  const lines = ['import requests', '', 'answer = requests.request(', `    ${toPythonText(method)},`]
  lines.push(`    ${toPythonText(url)},`)
  if (headers.length > 0) {
    const fields = joinSame(headers).map(([name, value]) => `        ${toPythonText(name)}: ${toPythonText(value)},`)
    lines.push('    headers={', ...fields, '    },')
  }
  if (body?.kind === 'text') lines.push(`    data=${toPythonText(body.text)}.encode(),`)
  else if (body?.kind === 'file') lines.push(`    data=open(${toPythonText(body.name)}, "rb"),`)
  else if (body !== null) lines.push(...toPythonForm(body.fields))
  return [...lines, ')', 'print(answer.status_code, answer.text)'].join('\n')
}

function toPythonForm(fields: readonly SnippetField[]): string[] {
  const texts = fields.filter(({ file }) => file === null)
  const pairs = texts.map(({ name, value }) => `        (${toPythonText(name)}, ${toPythonText(value)}),`)
  const files = fields.flatMap(({ name, file }) => {
    if (file === null) return []
    const part = [toPythonText(file.name), `open(${toPythonText(file.name)}, "rb")`]
    if (file.type !== '') part.push(toPythonText(file.type))
    return [`        (${toPythonText(name)}, (${part.join(', ')})),`]
  })
  return [
    ...(pairs.length === 0 ? [] : ['    data=[', ...pairs, '    ],']),
    ...(files.length === 0 ? [] : ['    files=[', ...files, '    ],']),
  ]
}

/** A dict has each name once; the header means the same. */
function joinSame(headers: readonly HeaderPair[]): HeaderPair[] {
  const joined = new Map<string, [string, string]>()
  for (const [name, value] of headers) {
    const known = joined.get(name.toLowerCase())
    if (known === undefined) joined.set(name.toLowerCase(), [name, value])
    else known[1] += `, ${value}`
  }
  return [...joined.values()]
}
