/** Text from outside in messages, logs and terminals, and the one order of texts. Owner: pages config/fields, observe/log-store. */

/**
 * The inside of a character class: what could forge or hide output. Control characters start lines or command a terminal;
 * separators start lines; marks of direction and characters without width show another text than the one that is there.
 */
export const UNSAFE_CHARACTERS =
  '\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb'

const UNSAFE = new RegExp(`[${UNSAFE_CHARACTERS}]`)
const UNSAFE_ALL = new RegExp(UNSAFE.source, 'g')

/** Text without unsafe characters; each is replaced by what `write` makes of it, by default `\u001b` and the like. */
export function escapeUnsafe(text: string, write: (character: string) => string = toUnicodeEscape): string {
  return UNSAFE.test(text) ? text.replace(UNSAFE_ALL, write) : text
}

/** A UTF-16 unit as JSON writes it: `\u202e`. */
export function toUnicodeEscape(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** What the value of a secret looks like wherever it is shown. */
export const HIDDEN = '<hidden>'

/** Order by UTF-16 unit: the same on every machine, unlike that of a locale. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/** Cuts a text to a number of characters and marks the cut. */
export function cutText(text: string, chars: number): string {
  return text.length <= chars ? text : `${text.slice(0, chars)}...`
}

/** Names of one message that are written out; of more only the number is. */
const MAX_NAMED = 5

export function nameSome(names: readonly string[]): string {
  const rest = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : ''
  return names.slice(0, MAX_NAMED).join(', ') + rest
}

/** `1 route`, `2 routes`. @param noun - in the singular */
export function toCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

/** A path as it has to be typed: in quotes where a shell would take signs of it for its own, and never an option. */
export function toShellWord(path: string): string {
  const name = path.startsWith('-') ? `./${path}` : path
  return /^[\w./@%+=:,-]+$/.test(name) ? name : `'${name.replaceAll("'", String.raw`'\''`)}'`
}

/** A name as JSON has it: `maxQueue` becomes `max_queue`. */
export function toSnakeName(name: string): string {
  return name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
}
