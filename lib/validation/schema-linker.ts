/**
 * The schemas of one file with their references settled: each `$ref` names a definition of the file. Owner: page validation/schema-file.
 *
 * `#` is the section a reference stands in, as in the output of zod and pydantic, which is pasted there; what the section does not have is
 * looked for in the file. Nothing is ever fetched.
 */

import { decodePercent } from '../core/http-text.ts'
import { isObject } from '../core/json.ts'
import { keyOf, type Place, report, reportWrong } from '../config/findings.ts'
import { checkKeywords } from './keywords.ts'
import { MAX_STEPS, StepCounter } from './schema-steps.ts'
import { childrenOf, copySchema, isSchema, sameValueChildren, type Schema } from './schema-tree.ts'

/** Schemas in schemas of one file, all sections together. */
const MAX_SCHEMAS = 5000
const DEFINITIONS = '#/$defs/'

export class SchemaLinker {
  /** Name to schema; the schemas refer to each other as `#/$defs/<name>`. */
  readonly definitions = new Map<string, Schema>()
  readonly #file: Readonly<Record<string, unknown>>
  readonly #names = new Map<Schema, string>()
  readonly #places = new Map<string, Place>()
  readonly #sections: { schema: Schema; at: Place }[] = []
  #count = 0

  constructor(file: Readonly<Record<string, unknown>>) {
    this.#file = file
  }

  /** @returns undefined when something in it is wrong; what it is has then been reported */
  link(section: unknown, at: Place): Schema | undefined {
    const before = at.findings.length
    const linked = this.#link(section, section, at)
    if (linked === undefined || at.findings.length > before) return undefined
    this.#sections.push({ schema: linked, at })
    return linked
  }

  #link(schema: unknown, section: unknown, at: Place): Schema | undefined {
    if (!isSchema(schema)) return reportWrong(at, 'a JSON Schema: an object, true or false', schema)
    // One reference has one meaning in one section.
    const references = new Map<string, string>()
    this.#check(schema, section, at, references)
    return copySchema(schema, { rename: reference => references.get(reference) ?? DEFINITIONS })
  }

  /** Looks at the shape of a schema and of all in it, and settles their references. */
  #check(schema: Schema, section: unknown, at: Place, references: Map<string, string>): void {
    const before = this.#count
    // Each entry is a separate comparison in the generated check.
    this.#count += 1 + (typeof schema === 'object' ? countEntries(schema.dependentRequired) : 0)
    if (before < MAX_SCHEMAS && this.#count >= MAX_SCHEMAS) {
      const text = `is too large: the file has more than ${MAX_SCHEMAS} schemas in schemas and names in dependentRequired`
      report(at, 'CONFIG_VALUE', text, 'Make it smaller.')
    }
    if (typeof schema === 'boolean' || this.#count >= MAX_SCHEMAS) return
    checkKeywords(schema, at)
    const { $ref } = schema
    if (typeof $ref === 'string' && !references.has($ref)) references.set($ref, this.#resolve($ref, section, at))
    for (const { path, value } of childrenOf(schema)) {
      const place = path.reduce(keyOf, at)
      if (isSchema(value)) this.#check(value, section, place, references)
      else reportWrong(place, 'a JSON Schema: an object, true or false', value)
    }
  }

  /** The definition's reference for one of the file. */
  #resolve(reference: string, section: unknown, at: Place): string {
    const place = keyOf(at, '$ref')
    if (!reference.startsWith('#')) {
      const hint = 'Copy the schema into "$defs" and write "#/$defs/Name": nothing is fetched.'
      report(place, 'CONFIG_VALUE', `is "${reference}", which is not in this file`, hint)
      return DEFINITIONS
    }
    const base = find(section, reference) === undefined ? this.#file : section
    const target = find(base, reference)
    if (!isSchema(target)) {
      report(
        place,
        'CONFIG_VALUE',
        `is "${reference}", and there is no schema at that place`,
        'Write a place of this file.',
      )
      return DEFINITIONS
    }
    return this.#define(reference, target, base, at)
  }

  #define(reference: string, target: Schema, base: unknown, at: Place): string {
    const known = this.#names.get(target)
    if (known !== undefined) return DEFINITIONS + known
    const name = this.#freeName(reference)
    this.#names.set(target, name)
    this.#places.set(name, at)
    // Its place is taken before it is looked into: it may refer to itself.
    this.definitions.set(name, true)
    this.definitions.set(name, this.#link(target, base, keyOf({ ...at, name: '' }, reference)) ?? true)
    return DEFINITIONS + name
  }

  #freeName(reference: string): string {
    const wanted = (reference.split('/').at(-1) ?? '').replace(/[^A-Za-z0-9_-]/g, '_') || 'Self'
    let name = wanted === '_' ? 'Self' : wanted
    for (let count = 2; this.definitions.has(name); count++) name = `${wanted}_${count}`
    return name
  }

  /** Reports references that lead back to themselves without a step into the value: no check of them would end. */
  reportLoops(): void {
    const done = new Set<string>()
    const visit = (name: string, path: readonly string[]): void => {
      if (done.has(name)) return
      done.add(name)
      for (const next of this.#sameValueNames(this.definitions.get(name) ?? true)) {
        if (next !== name && !path.includes(next)) {
          visit(next, [...path, name])
          continue
        }
        const at = this.#places.get(name)!
        const text = `has a $ref to "${next}" that leads back to itself without an end`
        report(at, 'CONFIG_VALUE', text, 'Put the reference into properties or items.')
      }
    }
    for (const name of this.definitions.keys()) visit(name, [])
  }

  /** Reports sections of which no value can be checked in the time that a check may take. Only when nothing else is wrong. */
  reportCosts(): void {
    const counter = new StepCounter(this.definitions)
    for (const { schema, at } of this.#sections) {
      const least = counter.leastOf(counter.count(schema))
      if (least <= MAX_STEPS) continue
      const text = `takes ${least.toLocaleString('en')} steps for the smallest value, more than the ${MAX_STEPS.toLocaleString('en')} of a check (50 ms)`
      report(
        at,
        'CONFIG_VALUE',
        text,
        'Write fewer branches in anyOf, oneOf and allOf, or refer to each definition once.',
      )
    }
  }

  #sameValueNames(schema: Schema): string[] {
    if (typeof schema === 'boolean') return []
    const own = typeof schema.$ref === 'string' ? [schema.$ref.slice(DEFINITIONS.length)] : []
    return [...own, ...sameValueChildren(schema).flatMap(child => this.#sameValueNames(child))]
  }
}

function countEntries(lists: unknown): number {
  return isObject(lists) ? Object.values(lists).flat().length : 0
}

/** What stands at a JSON pointer; undefined when nothing does. */
function find(from: unknown, reference: string): unknown {
  const pointer = decodePercent(reference.slice(1))
  if (pointer === null || (pointer !== '' && !pointer.startsWith('/'))) return undefined
  let value = from
  for (const token of pointer.split('/').slice(1)) {
    const key = token.replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
    value = (value as Record<string, unknown>)[key]
  }
  return value
}
