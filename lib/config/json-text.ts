/** JSON text: read with a place and a reason when it is invalid, and edited key by key. Owner: page config/fields. */

import { orNull } from '../core/errors.ts'
import { MAX_CONFIG_FILE_BYTES, MAX_JSON_DEPTH } from '../core/limits.ts'
import { escapeUnsafe } from '../core/text.ts'

const UTF8 = new TextDecoder('utf-8', { fatal: true })

type JsonText =
  | { ok: true; value: unknown }
  | {
      ok: false
      /** From 1; 0 when the fault has no place, such as a text that is too large. */
      line: number
      column: number
      /** Continues "is not JSON: ". */
      reason: string
      /** How to mend it. */
      hint: string
    }

/**
 * Reads JSON text or the bytes of a JSON file. A byte-order mark is accepted; of a repeated key the last one counts.
 * Never throws: size and depth are checked before anything is built.
 * @param maxBytes - more is not read
 */
export function parseJsonText(source: string | Uint8Array, maxBytes: number = MAX_CONFIG_FILE_BYTES): JsonText {
  const size = typeof source === 'string' ? Buffer.byteLength(source) : source.byteLength
  if (size > maxBytes) {
    return nowhere(`${size} bytes, at most ${maxBytes} are read`, 'Make the file smaller.')
  }
  const text = typeof source === 'string' ? source.replace(/^\uFEFF/, '') : orNull(() => UTF8.decode(source))
  if (text === null) return nowhere('the file is not UTF-8 text', 'Save the file as UTF-8.')
  if (text.trim() === '') return nowhere('the file is empty', 'Write at least {} into it, or delete it.')
  const deep = findTooDeep(text)
  if (deep >= 0) {
    return somewhere(text, new Fault(deep, `nested deeper than ${MAX_JSON_DEPTH} levels`, 'Flatten the value.'))
  }
  try {
    return { ok: true, value: JSON.parse(text) }
  } catch {
    return somewhere(text, findFault(text))
  }
}

function nowhere(reason: string, hint: string): JsonText {
  return { ok: false, line: 0, column: 0, reason, hint }
}

function somewhere(text: string, fault: Fault): JsonText {
  const before = text.slice(0, fault.index).split(/\r\n|\r|\n/)
  const column = before[before.length - 1]!.length + 1
  return { ok: false, line: before.length, column, reason: fault.reason, hint: fault.hint }
}

/** Index of the bracket that goes too deep, or -1. */
function findTooDeep(text: string): number {
  let depth = 0
  let inString = false
  for (let index = 0; index < text.length; index++) {
    const char = text.charCodeAt(index)
    if (inString) {
      if (char === 0x5c) index++
      else if (char === 0x22) inString = false
    } else if (char === 0x22) inString = true
    else if (char === 0x7b || char === 0x5b) {
      if (++depth > MAX_JSON_DEPTH) return index
    } else if (char === 0x7d || char === 0x5d) depth--
  }
  return -1
}

/** Where and why a text stops being JSON; thrown and caught inside this file only. */
class Fault {
  readonly index: number
  readonly reason: string
  readonly hint: string

  constructor(index: number, reason: string, hint: string) {
    this.index = index
    this.reason = reason
    this.hint = hint
  }
}

// Node 20's own message gives no position for most faults, so the text is walked once more, only after JSON.parse refused it.
function findFault(text: string): Fault {
  try {
    const end = skipValue(text, skipBlank(text, 0))
    const rest = skipBlank(text, end)
    if (rest < text.length) return new Fault(rest, 'text after the end of the value', 'Remove it; a file is one value.')
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
  return new Fault(0, 'it cannot be read', 'Check the file with an editor that knows JSON.')
}

function skipBlank(text: string, from: number): number {
  let index = from
  while (index < text.length && ' \t\r\n'.includes(text[index]!)) index++
  if (text.startsWith('//', index) || text.startsWith('/*', index) || text[index] === '#') {
    throw new Fault(index, 'a comment', 'Remove it: JSON has no comments.')
  }
  return index
}

/** Index after the value that begins at `from`. Recursion is bounded by the depth check. */
function skipValue(text: string, from: number): number {
  const char = text[from]
  if (char === '{') return skipItems(text, from, '}')
  if (char === '[') return skipItems(text, from, ']')
  if (char === '"') return skipString(text, from)
  const literal = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])/y
  literal.lastIndex = from
  if (literal.test(text)) return literal.lastIndex
  throw unexpected(text, from, 'a value')
}

function skipItems(text: string, from: number, close: '}' | ']'): number {
  let index = skipBlank(text, from + 1)
  if (text[index] === close) return index + 1
  for (;;) {
    if (close === '}') {
      if (text[index] !== '"') throw unexpected(text, index, 'a key in double quotes')
      index = skipBlank(text, skipString(text, index))
      if (text[index] !== ':') throw unexpected(text, index, 'a colon after the key')
      index = skipBlank(text, index + 1)
    }
    index = skipBlank(text, skipValue(text, index))
    if (text[index] === close) return index + 1
    if (text[index] !== ',') throw unexpected(text, index, `a comma or ${close}`)
    const comma = index
    index = skipBlank(text, index + 1)
    if (text[index] === close) throw new Fault(comma, `a comma before ${close}`, 'Remove the comma.')
  }
}

function skipString(text: string, from: number): number {
  for (let index = from + 1; index < text.length; index++) {
    const char = text[index]!
    if (char === '"') return index + 1
    if (char < ' ') {
      throw new Fault(index, 'a line break or control character inside quotes', 'Close the quotes, or write \\n.')
    }
    if (char === '\\') {
      const escapes = /["\\/bfnrt]|u[0-9a-fA-F]{4}/y
      escapes.lastIndex = index + 1
      if (!escapes.test(text)) throw new Fault(index, 'an unknown escape', 'Write \\\\ for a backslash.')
      index = escapes.lastIndex - 1
    }
  }
  throw new Fault(from, 'quotes that are never closed', 'Add the closing quote.')
}

function unexpected(text: string, index: number, wanted: string): Fault {
  const char = text[index]
  if (char === undefined) return new Fault(index, `the text ends where ${wanted} should be`, 'Finish the file.')
  const hint = char === "'" ? 'Use double quotes.' : `Put ${wanted} there.`
  return new Fault(index, `"${escapeUnsafe(char)}" where ${wanted} should be`, hint)
}

// Edits: change keys of an object and leave everything else as it is written: order, indentation, unknown keys.
//
//   {\n  "a": 1,\n  "b": [1, 2]\n}
//    lead label value           tail          each entry keeps its own; a new one is written like the last

interface Entry {
  key: string
  /** Blanks before the key. */
  lead: string
  /** The key as written, and what is between it and the value. */
  label: string
  value: string
}

/** The JSON text a key is to have; null takes the key out. */
type JsonEdits = ReadonlyMap<string, string | null>

/**
 * @param text - of a JSON object, checked; null makes a new one
 * @param depth - how deep the object stands in its file, for the indentation of what is new
 */
export function editJsonObject(text: string | null, edits: JsonEdits, indent: string, depth = 0): string {
  const source = text === null ? '{}' : text.trim()
  const { entries, tail } = readEntries(source)
  const kept = withoutRepeated(entries).filter(({ key }) => edits.get(key) !== null)
  for (const entry of kept) entry.value = edits.get(entry.key) ?? entry.value
  const known = new Set(kept.map(({ key }) => key))
  const lead = kept.at(-1)?.lead ?? `\n${indent.repeat(depth + 1)}`
  for (const [key, value] of edits) {
    if (value === null || known.has(key)) continue
    kept.push({ key, lead, label: `${JSON.stringify(key)}: `, value })
  }
  if (kept.length === 0) return '{}'
  const end = entries.length > 0 ? tail : `\n${indent.repeat(depth)}`
  return `{${kept.map(entry => entry.lead + entry.label + entry.value).join(',')}${end}}`
}

/** The text of a key's value; null when there is none. Of a repeated key the last one counts. */
export function findJsonValue(text: string, key: string): string | null {
  return readEntries(text.trim()).entries.findLast(entry => entry.key === key)?.value ?? null
}

/** The blanks one level is indented by; two where the text has a single line. */
export function findIndent(text: string | null): string {
  return /^\s*\{[^\S\n]*\n([ \t]+)"/.exec(text ?? '')?.[1] ?? '  '
}

/** A value as it is written at a depth of a file. */
export function toJsonAt(value: unknown, indent: string, depth: number): string {
  return JSON.stringify(value, null, indent).replaceAll('\n', `\n${indent.repeat(depth)}`)
}

function withoutRepeated(entries: readonly Entry[]): Entry[] {
  return entries.filter(({ key }, index) => !entries.some((other, later) => later > index && other.key === key))
}

/** @param text - begins with `{` and is valid JSON @returns `tail` - blanks before the closing brace */
function readEntries(text: string): { entries: Entry[]; tail: string } {
  const entries: Entry[] = []
  let index = 1
  for (;;) {
    const keyStart = skipBlank(text, index)
    const lead = text.slice(index, keyStart)
    if (text[keyStart] === '}') return { entries, tail: lead }
    const keyEnd = skipString(text, keyStart)
    const valueStart = skipBlank(text, text.indexOf(':', keyEnd) + 1)
    const valueEnd = skipValue(text, valueStart)
    const key = JSON.parse(text.slice(keyStart, keyEnd)) as string
    const label = text.slice(keyStart, valueStart)
    entries.push({ key, lead, label, value: text.slice(valueStart, valueEnd) })
    const next = skipBlank(text, valueEnd)
    if (text[next] === '}') return { entries, tail: text.slice(valueEnd, next) }
    index = next + 1
  }
}
