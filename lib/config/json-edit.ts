/**
 * Changes keys of an object in a JSON text and leaves everything else as it is written: order, indentation, unknown keys.
 * Owner: page control/function-config.
 *
 *   {\n  "a": 1,\n  "b": [1, 2]\n}
 *    lead key mid value         tail          each entry keeps its own; a new one is written like the last
 */

interface Entry {
  key: string
  /** Blanks before the key. */
  lead: string
  keyText: string
  /** From the key to the value. */
  middle: string
  value: string
}

interface ObjectText {
  entries: Entry[]
  /** Blanks before the closing brace. */
  tail: string
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
    kept.push({ key, lead, keyText: JSON.stringify(key), middle: ': ', value })
  }
  if (kept.length === 0) return '{}'
  const end = entries.length > 0 ? tail : `\n${indent.repeat(depth)}`
  return `{${kept.map(entry => entry.lead + entry.keyText + entry.middle + entry.value).join(',')}${end}}`
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

/** @param text - begins with `{` and is JSON: nothing is checked */
function readEntries(text: string): ObjectText {
  const entries: Entry[] = []
  let index = 1
  for (;;) {
    const keyStart = skipBlank(text, index)
    const lead = text.slice(index, keyStart)
    if (text[keyStart] === '}') return { entries, tail: lead }
    const keyEnd = skipString(text, keyStart)
    const valueStart = skipBlank(text, text.indexOf(':', keyEnd) + 1)
    const valueEnd = skipValue(text, valueStart)
    const keyText = text.slice(keyStart, keyEnd)
    entries.push({
      key: JSON.parse(keyText) as string,
      lead,
      keyText,
      middle: text.slice(keyEnd, valueStart),
      value: text.slice(valueStart, valueEnd),
    })
    const next = skipBlank(text, valueEnd)
    if (text[next] === '}') return { entries, tail: text.slice(valueEnd, next) }
    index = next + 1
  }
}

function skipBlank(text: string, from: number): number {
  let index = from
  while (index < text.length && ' \t\r\n'.includes(text[index]!)) index++
  return index
}

/** @param from - of the opening quote */
function skipString(text: string, from: number): number {
  let index = from + 1
  while (index < text.length && text[index] !== '"') index += text[index] === '\\' ? 2 : 1
  return index + 1
}

function skipValue(text: string, from: number): number {
  let depth = 0
  let index = from
  while (index < text.length) {
    const char = text[index]!
    if (char === '"') {
      index = skipString(text, index)
      continue
    }
    if (depth === 0 && (char === ',' || char === '}' || ' \t\r\n'.includes(char))) return index
    if (char === '{' || char === '[') depth++
    else if (char === '}' || char === ']') depth--
    index++
  }
  return index
}
