/** `schema.json` beside a handler: text to checked schemas. Owner: page validation/schema-file. */

import {
  type Finding,
  isProblem,
  itemOf,
  keyOf,
  type Place,
  readJsonFile,
  report,
  reportUnknownKey,
  reportWrong,
  toPlace,
  toWarnings,
} from '../config/fields.ts'
import type { Warning } from '../core/errors.ts'
import { decodePercent } from '../core/http-text.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import { MAX_STEPS, StepCounter } from './schema-compiler.ts'
import {
  checkKeywords,
  childrenOf,
  copySchema,
  DEFINITIONS,
  isSchema,
  type Schema,
  SCHEMA_RULE,
} from './schema-tree.ts'

/** The schemas of one method; absent ones check nothing. */
export interface Sections {
  /** Objects whose properties are the parameters. */
  params?: Schema
  query?: Schema
  headers?: Schema
  body?: Schema
  /** By status, `4XX` or `default`. */
  responses?: ReadonlyMap<string, Schema>
}

/** How callers prove who they are: for the document, the function itself checks it. */
export type Security =
  | { kind: 'bearer' | 'basic' | 'none' }
  | { kind: 'apiKey'; place: 'header' | 'query' | 'cookie'; name: string }

export interface SchemaFile {
  common: Sections
  /** Sections that replace the common ones for a method. */
  methods: ReadonlyMap<Method, Sections>
  /** Alternatives; null when the file says nothing. */
  security: readonly Security[] | null
  /** Schemas of the sections refer to these as `#/$defs/<name>`. */
  definitions: ReadonlyMap<string, Schema>
}

const SECTIONS = ['params', 'query', 'headers', 'body'] as const
const SECTION_KEYS = [...SECTIONS, 'responses']
const FILE_KEYS = [...SECTION_KEYS, 'methods', 'security', '$defs', 'definitions', '$schema']
const SECURITY_RULE = 'a list of "bearer", "basic", "none", "header:<name>", "query:<name>", "cookie:<name>"'
/** Methods whose requests have a body that means something. */
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/**
 * Reads one file. A mistake is a warning, and then nothing of the file is used.
 * @param label - path below the functions root, for messages
 */
export function parseSchemaFile(
  source: string | Uint8Array,
  label: string,
): { file: SchemaFile | null; warnings: Warning[] } {
  const findings: Finding[] = []
  const value = readJsonFile(source, label, findings)
  const file = value === undefined ? null : readFile(value, toPlace(label, '', findings))
  return { file: findings.some(isProblem) ? null : file, warnings: toWarnings(findings) }
}

function readFile(value: unknown, at: Place): SchemaFile | null {
  if (!isObject(value)) return reportWrong(at, 'an object', value) ?? null
  if (!FILE_KEYS.some(key => key in value && key !== '$schema')) {
    const hint = 'Write { "body": <schema> } or another section; a schema alone does not say what it is of.'
    report(at, 'CONFIG_VALUE', `has none of ${FILE_KEYS.slice(0, 7).join(', ')}`, hint)
    return null
  }
  const linker = new SchemaLinker(value)
  const common = readSections(value, FILE_KEYS, linker, at)
  const methods = new Map<Method, Sections>()
  for (const [name, sections] of entriesOf(value.methods, keyOf(at, 'methods'))) {
    const place = keyOf(keyOf(at, 'methods'), name)
    const method = METHODS.find(known => known === name)
    if (method === undefined) reportUnknownKey(place, name, METHODS, 'method', true)
    else if (!isObject(sections)) reportWrong(place, 'an object', sections)
    else methods.set(method, readSections(sections, SECTION_KEYS, linker, place))
  }
  const security = readSecurity(value.security, keyOf(at, 'security'))
  if (at.findings.some(isProblem)) return null
  const link = (sections: Sections) => linkSections(sections, linker)
  const file = {
    common: link(common),
    methods: new Map([...methods].map(([method, sections]) => [method, link(sections)])),
    security,
    definitions: linker.definitions(),
  }
  linker.reportCosts()
  return file
}

/** The sections as they are in the file; something that is wrong has been reported. */
function readSections(
  value: Record<string, unknown>,
  known: readonly string[],
  linker: SchemaLinker,
  at: Place,
): Sections {
  for (const key of Object.keys(value)) if (!known.includes(key)) reportUnknownKey(keyOf(at, key), key, known)
  const sections: Sections = {}
  for (const name of SECTIONS) {
    if (value[name] === undefined) continue
    linker.check(value[name], keyOf(at, name))
    sections[name] = value[name] as Schema
  }
  if (value.responses === undefined) return sections
  const responses = new Map<string, Schema>()
  for (const [status, schema] of entriesOf(value.responses, keyOf(at, 'responses'))) {
    const place = keyOf(keyOf(at, 'responses'), status)
    if (!/^(?:[1-5]\d\d|[1-5]XX|default)$/.test(status))
      report(place, 'CONFIG_VALUE', 'is not a status', 'Write a status such as "200", "4XX", or "default".')
    linker.check(schema, place)
    responses.set(status, schema as Schema)
  }
  return { ...sections, responses }
}

function linkSections({ responses, ...sections }: Sections, linker: SchemaLinker): Sections {
  const linked: Sections = {}
  for (const name of SECTIONS) if (sections[name] !== undefined) linked[name] = linker.link(sections[name])
  if (responses !== undefined)
    linked.responses = new Map([...responses].map(([status, schema]) => [status, linker.link(schema)]))
  return linked
}

function entriesOf(value: unknown, at: Place): [string, unknown][] {
  if (value === undefined) return []
  if (isObject(value)) return Object.entries(value)
  reportWrong(at, 'an object', value)
  return []
}

function readSecurity(value: unknown, at: Place): Security[] | null {
  if (value === undefined) return null
  if (!Array.isArray(value)) return reportWrong(at, SECURITY_RULE, value) ?? null
  return value.flatMap((item, index) => toSecurity(item) ?? reportWrong(itemOf(at, index), SECURITY_RULE, item) ?? [])
}

function toSecurity(item: unknown): Security | undefined {
  if (item === 'bearer' || item === 'basic' || item === 'none') return { kind: item }
  const found =
    typeof item === 'string' ? /^(header|query|cookie):([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})$/.exec(item) : null
  return found === null ? undefined : { kind: 'apiKey', place: found[1] as 'header', name: found[2]! }
}

/** The schemas that hold for a method. A body is one of POST, PUT and PATCH, unless the method has its own. */
export function sectionsOf(file: SchemaFile, method: Method): Sections {
  const { body, ...common } = file.common
  const shared: Sections = WITH_BODY.has(method) && body !== undefined ? { ...common, body } : common
  return { ...shared, ...file.methods.get(method) }
}

/** Schemas in schemas of one file, all sections together. */
const MAX_SCHEMAS = 5000

/**
 * The references of one file. `#` is the section a reference is in, as in the output of zod and pydantic, which is pasted there; what
 * the section does not have is looked for in the file. Nothing is ever fetched. Checks everything first, then makes copies in which
 * each `$ref` names a definition.
 */
class SchemaLinker {
  readonly #file: Readonly<Record<string, unknown>>
  readonly #seen = new Set<Schema>()
  readonly #sections: { schema: unknown; at: Place }[] = []
  /** Schemas that are referred to, with the names of their definitions and the places of their first references. */
  readonly #targets = new Map<Schema, string>()
  readonly #places = new Map<string, Place>()
  /** Schemas with a `$ref`, with what it refers to. */
  readonly #references = new Map<Schema, Schema>()
  #count = 0

  constructor(file: Readonly<Record<string, unknown>>) {
    this.#file = file
  }

  /** Reports what is wrong with a section and all in it. */
  check(section: unknown, at: Place): void {
    this.#sections.push({ schema: section, at })
    this.#check(section, section, at)
  }

  /** @param schema - of a file in which nothing is wrong */
  link(schema: Schema): Schema {
    const rename = (_: string, from: Schema) => DEFINITIONS + this.#targets.get(this.#references.get(from)!)
    return copySchema(schema, { rename })
  }

  definitions(): Map<string, Schema> {
    return new Map([...this.#targets].map(([schema, name]) => [name, this.link(schema)]))
  }

  /** Reports references that lead back to themselves, and sections of which no value can be checked in the time that a check may take. */
  reportCosts(): void {
    const counter = new StepCounter(this.definitions())
    for (const name of this.#places.keys()) counter.leastOfName(name)
    for (const name of counter.loops) {
      const text = `has a $ref to "${name}" that leads back to itself without an end`
      report(this.#places.get(name)!, 'CONFIG_VALUE', text, 'Put the reference into properties or items.')
    }
    if (counter.loops.size > 0) return
    for (const { schema, at } of this.#sections) {
      const least = counter.leastOf(counter.count(this.link(schema as Schema)))
      if (least <= MAX_STEPS) continue
      const text = `takes ${least.toLocaleString('en')} steps for the smallest value, more than the ${MAX_STEPS.toLocaleString('en')} of a check (50 ms)`
      const hint = 'Write fewer branches in anyOf, oneOf and allOf, or refer to each definition once.'
      report(at, 'CONFIG_VALUE', text, hint)
    }
  }

  /** @param base - section or file, in which its references are looked for first */
  #check(schema: unknown, base: unknown, at: Place): void {
    if (!isSchema(schema)) {
      reportWrong(at, SCHEMA_RULE, schema)
      return
    }
    if (typeof schema === 'object' && this.#seen.has(schema)) return
    this.#seen.add(schema)
    const before = this.#count
    // Each entry is a separate comparison in the generated check.
    this.#count += 1 + (typeof schema === 'object' ? countEntries(schema.dependentRequired) : 0)
    if (before < MAX_SCHEMAS && this.#count >= MAX_SCHEMAS) {
      const text = `is too large: the file has more than ${MAX_SCHEMAS} schemas in schemas and names in dependentRequired`
      report(at, 'CONFIG_VALUE', text, 'Make it smaller.')
    }
    if (typeof schema === 'boolean' || this.#count >= MAX_SCHEMAS) return
    checkKeywords(schema, at)
    if (typeof schema.$ref === 'string') this.#resolve(schema, schema.$ref, base, at)
    for (const { path, value } of childrenOf(schema)) this.#check(value, base, path.reduce(keyOf, at))
  }

  #resolve(from: Schema, reference: string, base: unknown, at: Place): void {
    const place = keyOf(at, '$ref')
    if (!reference.startsWith('#')) {
      const hint = 'Copy the schema into "$defs" and write "#/$defs/Name": nothing is fetched.'
      report(place, 'CONFIG_VALUE', `is "${reference}", which is not in this file`, hint)
      return
    }
    const home = find(base, reference) === undefined ? this.#file : base
    const target = find(home, reference)
    if (!isSchema(target)) {
      const text = `is "${reference}", which is not the path of a schema in this file`
      report(place, 'CONFIG_VALUE', text, 'Write a path such as "#/$defs/Name".')
      return
    }
    this.#references.set(from, target)
    if (this.#targets.has(target)) return
    const name = this.#freeName(reference)
    this.#targets.set(target, name)
    this.#places.set(name, at)
    this.#check(target, home, keyOf({ ...at, name: '' }, reference))
  }

  #freeName(reference: string): string {
    const wanted = (reference.split('/').at(-1) ?? '').replace(/[^A-Za-z0-9_-]/g, '_') || 'Self'
    let name = wanted === '_' ? 'Self' : wanted
    for (let count = 2; this.#places.has(name); count++) name = `${wanted}_${count}`
    return name
  }
}

function countEntries(lists: unknown): number {
  return isObject(lists) ? Object.values(lists).flat().length : 0
}

/** The value at a JSON pointer; undefined without one. */
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
