/**
 * Requirements of Python functions: `requirements.txt` line by line, and `#@requirements` comments. What could lead the
 * installer elsewhere (options, addresses, paths) is told apart from names. Owner: §2.16, page dependencies/python.
 */

/** Lines of a handler that are looked through for `#@requirements` (§8). */
const INLINE_LINES = 30
/** Characters of one requirement with its hashes, and of what is shown of a line that is none. */
const MAX_CHARS = 64 * 1024
const MAX_SHOWN_CHARS = 200

const NAME = '[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?'
const VERSION = '(?:===|==|~=|!=|<=|>=|<|>)\\s*[A-Za-z0-9.*+!_-]+'
const SPECIFIER = `(?:\\(\\s*)?${VERSION}(?:\\s*,\\s*${VERSION})*(?:\\s*\\))?`
const EXTRAS = `\\[\\s*${NAME}(?:\\s*,\\s*${NAME})*\\s*\\]`
const PLAIN = new RegExp(`^(${NAME})\\s*(?:${EXTRAS})?\\s*(?:${SPECIFIER})?$`)
/** A condition: names, quoted texts, comparisons and brackets. */
const MARKER = /^[A-Za-z0-9_.,<>=!~()"' +*-]+$/
const HASH = /\s+--hash=[a-z0-9]+:[0-9a-fA-F]+/g
const ADDRESS = /:\/\/|\s@\s|^[.~/\\]|^[A-Za-z]:[\\/]|\.(?:whl|zip|tar\.(?:gz|bz2|xz))\b/

export interface Requirement {
  /** As it is written, on one line. */
  text: string
  /** As indexes compare it: lower case, `-` between words. */
  name: string
  /** From 1. */
  line: number
}

/** A line that is no plain name. */
interface OddLine {
  text: string
  line: number
  /** `option`: an option of pip; `address`: a URL or path; `unreadable`: none of these. */
  kind: 'option' | 'address' | 'unreadable'
}

interface Requirements {
  named: Requirement[]
  odd: OddLine[]
}

/** `Foo_Bar.baz` and `foo-bar-baz` are one package. */
export function toPackageName(name: string): string {
  return name.toLowerCase().replace(/[-_.]+/g, '-')
}

/** A `requirements.txt`. Nothing in it is looked up: no environment variable, no other file. */
export function parseRequirements(text: string): Requirements {
  const found: Requirements = { named: [], odd: [] }
  const lines = text.replace(/^\ufeff/, '').split(/\r\n|\n|\r/)
  for (let at = 0; at < lines.length; at++) {
    const line = at + 1
    const parts = [lines[at]!]
    while (parts.at(-1)!.endsWith('\\') && at + 1 < lines.length) {
      parts.push(parts.pop()!.slice(0, -1), lines[++at]!)
    }
    const stated = toPlainBlanks(parts.join(' ')).replace(/(^| )#.*$/, '')
    if (stated !== '') addLine(found, stated, line)
  }
  return found
}

/** The `#@requirements` comments of a handler. */
export function parseInline(source: string): Requirements {
  const found: Requirements = { named: [], odd: [] }
  const lines = source.split(/\r\n|\n|\r/, INLINE_LINES)
  for (const [index, line] of lines.entries()) {
    const list = /^\s*#\s*@requirements(?:\s+|:\s*)([\s\S]*)$/.exec(line)?.[1]
    if (list === undefined) continue
    for (const text of splitList(toPlainBlanks(list))) addLine(found, text, index + 1)
  }
  return found
}

/**
 * One blank for each run of them: to pip some of these end a line, and patterns that look for several take long on thousands.
 */
function toPlainBlanks(text: string): string {
  return text.replace(/\s+/g, ' ').trim()
}

/** `a >= 1, < 2, b[x, y] c` to its three requirements. */
function splitList(list: string): string[] {
  const tight = list
    .replace(/\s*(===|==|~=|!=|<=|>=|<|>)\s*/g, '$1')
    .replace(/\[[^\]]*\]/g, extras => extras.replace(/\s+/g, ''))
    .replace(/,\s*(?=[<>=!~])/g, ',')
  return tight.split(/\s+|,(?![<>=!~])(?![^[]*\])/).filter(text => text !== '')
}

function addLine(found: Requirements, text: string, line: number): void {
  if (text.length > MAX_CHARS) {
    found.odd.push({ text: `${text.slice(0, MAX_SHOWN_CHARS)}...`, line, kind: 'unreadable' })
    return
  }
  const bare = text.replace(HASH, '')
  if (bare.startsWith('-')) {
    found.odd.push({ text: text.slice(0, MAX_SHOWN_CHARS), line, kind: 'option' })
    return
  }
  const [stated = '', marker, ...rest] = bare.split(';')
  const name = PLAIN.exec(stated.trim())?.[1]
  const isMarked = marker === undefined || (rest.length === 0 && MARKER.test(marker.trim()))
  if (name !== undefined && isMarked && !isFileName(stated)) found.named.push({ text, name: toPackageName(name), line })
  else
    found.odd.push({ text: text.slice(0, MAX_SHOWN_CHARS), line, kind: ADDRESS.test(bare) ? 'address' : 'unreadable' })
}

/** `pack.whl` could be the name of a package, and would be a file to pip. */
function isFileName(text: string): boolean {
  return /\.(?:whl|zip|tar\.(?:gz|bz2|xz))$/i.test(text.trim())
}
