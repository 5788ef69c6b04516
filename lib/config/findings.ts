/** Findings about outside data: one grammar of messages for files, variables, flags and options. Owner: page config/fields. */

import type { Warning } from '../core/errors.ts'
import { escapeUnsafe } from '../core/text.ts'

/** `CONFIG_VALUE` and `CONFIG_NOT_JSON` mean that something was not used as written; the others are notes. */
type FindingCode =
  | 'CONFIG_NOT_JSON'
  | 'CONFIG_VALUE'
  | 'CONFIG_UNKNOWN_KEY'
  | 'CONFIG_CLAMPED'
  | 'CONFIG_REPEATED'
  | 'CONFIG_NO_EFFECT'
  | 'CONFIG_FOREIGN_FILE'
  | 'CONFIG_IGNORED_LINE'
  | 'CONFIG_UNSAFE'

export interface Finding {
  code: FindingCode
  /** Label of the file, null for a variable, flag or option. */
  file: string | null
  /** Field, variable, flag or option, such as `worker_pool.max_workers` or `FN_PORT`. */
  name: string
  /** The rule for the value, such as `an integer of at least 1`. */
  rule: string
  /** The value and its type as shown to people, such as `"four" (string)`. */
  value: string
  message: string
  /** How to mend it. */
  hint: string
}

/** Where a value stands, and the list that takes what is found there. */
export interface Place {
  readonly file: string | null
  readonly name: string
  /** True when a value found here may be a secret and must not appear in a message. */
  readonly hidden: boolean
  readonly findings: Finding[]
}

export function toPlace(file: string | null, name: string, findings: Finding[], hidden = false): Place {
  return { file, name, hidden, findings }
}

/** The place of a key inside the object at `at`. */
export function keyOf(at: Place, key: string): Place {
  return { ...at, name: at.name === '' ? showKey(key) : `${at.name}.${showKey(key)}` }
}

/** The place of an item inside the list at `at`. */
export function itemOf(at: Place, index: number): Place {
  return { ...at, name: `${at.name}[${index}]` }
}

/** Notes a value that breaks its rule. Always returns undefined: the field counts as absent. */
export function reportWrong(at: Place, rule: string, value: unknown, hint = ''): undefined {
  const shown = showValue(value, at.hidden)
  report(at, 'CONFIG_VALUE', `must be ${rule}, got ${shown}`, hint || `Make it ${rule}, or leave it out.`, rule, shown)
}

/** Notes a key that no declaration has. `at` is the place of the key itself. */
export function reportUnknownKey(at: Place, key: string, known: Iterable<string>, what = 'key', isWrong = false): void {
  // The search costs time: a file full of foreign keys gets no more suggestions than it gets messages.
  const near = at.findings.length > MAX_WARNINGS ? null : nearest(key, known)
  const hint = near === null ? `Remove it, or see the table of ${what}s.` : `Write ${near}.`
  const text = near === null ? `is not a known ${what}` : `is not a known ${what}, did you mean ${near}?`
  report(at, isWrong ? 'CONFIG_VALUE' : 'CONFIG_UNKNOWN_KEY', text, hint, `a known ${what}`, showText(key))
}

/** Notes a value that is accepted and changes nothing. */
export function reportNoEffect(at: Place, why: string): void {
  report(at, 'CONFIG_NO_EFFECT', `has no effect: ${why}`, 'Remove it.')
}

/** Notes anything else; `text` continues the sentence that begins with the name. */
export function report(at: Place, code: FindingCode, text: string, hint: string, rule = '', value = ''): void {
  const subject = [at.file === null ? '' : at.file, at.name].filter(part => part !== '').join(': ')
  at.findings.push({ code, file: at.file, name: at.name, rule, value, message: `${subject} ${text}`, hint })
}

/** True for a finding that says a given value is not used. */
export function isProblem({ code }: { readonly code: string }): boolean {
  return code === 'CONFIG_VALUE' || code === 'CONFIG_NOT_JSON'
}

/** A finding in the shape of discovery's warnings. */
export function toWarning(finding: Finding): Warning {
  return { code: finding.code, path: finding.file ?? '.', message: finding.message, hint: finding.hint }
}

/** Problems, and notes, of one file that are shown. */
const MAX_WARNINGS = 100

/** The findings of one file as warnings; past 100 problems or 100 notes only their number is shown. */
export function toWarnings(findings: readonly Finding[]): Warning[] {
  const notes = findings.filter(finding => !isProblem(finding))
  if (findings.length - notes.length <= MAX_WARNINGS && notes.length <= MAX_WARNINGS) return findings.map(toWarning)
  return [findings.filter(isProblem), notes].flatMap(kind => {
    const shown = kind.slice(0, MAX_WARNINGS).map(toWarning)
    const more = kind[MAX_WARNINGS]
    if (more === undefined) return shown
    const message = `${more.file ?? ''}: ${kind.length - MAX_WARNINGS} more like these are not shown`
    return [...shown, { ...toWarning(more), message, hint: 'Fix the first ones.' }]
  })
}

const MAX_SHOWN = 60

/** Text on one line, without characters that could forge or hide output, at most 60 characters. */
export function showText(text: string): string {
  const cut = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text
  return escapeUnsafe(cut)
}

function showKey(key: string): string {
  return /^[\w$@/.-]{1,60}$/.test(key) ? key : `"${showText(key)}"`
}

/** A value with its type: `"four" (string)`, `3.5 (number)`, `an array of 2 items`. */
export function showValue(value: unknown, hidden = false): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return `an array of ${value.length} item${value.length === 1 ? '' : 's'}`
  if (typeof value === 'object') return 'an object'
  if (hidden) return `a hidden value (${typeof value})`
  if (typeof value === 'string') return `"${showText(value)}" (string)`
  return `${showText(String(value))} (${typeof value})`
}

const MAX_COMPARED = 64

/** The known word that `word` most likely stands for, or null when none is near. */
export function nearest(word: string, known: Iterable<string>): string | null {
  if (word.length > MAX_COMPARED) return null
  const plain = toPlain(word)
  let best: string | null = null
  let bestDistance = Math.min(3, Math.floor(plain.length / 3)) + 1
  for (const candidate of known) {
    const distance = editDistance(plain, toPlain(candidate))
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best
}

/** `maxWorkers`, `max-workers` and `max_workers` are one word. */
function toPlain(word: string): string {
  return word.toLowerCase().replace(/[-_]/g, '')
}

/** Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const same = a[row - 1] === b[column - 1]
      let distance = Math.min(last[column]! + 1, current[column - 1]! + 1, last[column - 1]! + (same ? 0 : 1))
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]
      if (swapped) distance = Math.min(distance, beforeLast[column - 2]! + 1)
      current.push(distance)
    }
    beforeLast = last
    last = current
  }
  return last[b.length]!
}
