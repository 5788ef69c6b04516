/** `schema.json` beside a handler: text to checked schemas. Owner: page validation/schema-file. */

import {
  type Finding,
  isProblem,
  itemOf,
  keyOf,
  nearest,
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
import { parsePattern } from './linear-pattern.ts'
import { MAX_STEPS, StepCounter } from './schema-compiler.ts'
import { childrenOf, copySchema, DEFINITIONS, isSchema, sameValueChildren, type Schema } from './schema-tree.ts'

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
  const at = toPlace(label, '', findings)
  const file = value === undefined ? null : readFile(value, at)
  const isUsable = !findings.some(isProblem)
  return { file: isUsable ? file : null, warnings: toWarnings(findings) }
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
  linker.reportLoops()
  if (!at.findings.some(isProblem)) linker.reportCosts()
  return { common, methods, security, definitions: linker.definitions }
}

function readSections(
  value: Record<string, unknown>,
  known: readonly string[],
  linker: SchemaLinker,
  at: Place,
): Sections {
  for (const key of Object.keys(value)) if (!known.includes(key)) reportUnknownKey(keyOf(at, key), key, known)
  const sections: Sections = {}
  for (const name of SECTIONS) {
    const schema = value[name] === undefined ? undefined : linker.link(value[name], keyOf(at, name))
    if (schema !== undefined) sections[name] = schema
  }
  if (value.responses === undefined) return sections
  const responses = new Map<string, Schema>()
  for (const [status, given] of entriesOf(value.responses, keyOf(at, 'responses'))) {
    const place = keyOf(keyOf(at, 'responses'), status)
    if (!/^(?:[1-5]\d\d|[1-5]XX|default)$/.test(status)) {
      report(place, 'CONFIG_VALUE', 'is not a status', 'Write a status such as "200", "4XX", or "default".')
      continue
    }
    const schema = linker.link(given, place)
    if (schema !== undefined) responses.set(status, schema)
  }
  return { ...sections, responses }
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
  if (found === null) return undefined
  return { kind: 'apiKey', place: found[1] as 'header', name: found[2] as string }
}

/** The schemas that hold for a method. A body is one of POST, PUT and PATCH, unless the method has its own. */
export function sectionsOf(file: SchemaFile, method: Method): Sections {
  const { body, ...common } = file.common
  const shared: Sections = WITH_BODY.has(method) && body !== undefined ? { ...common, body } : common
  return { ...shared, ...file.methods.get(method) }
}

// The schemas of one file with resolved references: each `$ref` names a definition of the file.
// `#` is the section a reference stands in, as in the output of zod and pydantic, which is pasted there; what the section does not have is
// looked for in the file. Nothing is ever fetched.

/** Schemas in schemas of one file, all sections together. */
const MAX_SCHEMAS = 5000

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
        `is "${reference}", which is not the path of a schema in this file`,
        'Write a path such as "#/$defs/Name".',
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

// The values that each keyword may have: the meta-schema of JSON Schema 2020-12, with readable messages.

const TYPES = ['string', 'number', 'integer', 'boolean', 'object', 'array', 'null']

interface Kind {
  rule: string
  accepts: (value: unknown) => boolean
}

const NUMBER: Kind = { rule: 'a number', accepts: value => typeof value === 'number' }
const STEP: Kind = { rule: 'a number above 0', accepts: value => typeof value === 'number' && value > 0 }
const COUNT: Kind = {
  rule: 'an integer of at least 0',
  accepts: value => Number.isInteger(value) && (value as number) >= 0,
}
const TEXT: Kind = { rule: 'a string', accepts: value => typeof value === 'string' }
const FLAG: Kind = { rule: 'true or false', accepts: value => typeof value === 'boolean' }
const LIST: Kind = { rule: 'a list', accepts: Array.isArray }
const MAP: Kind = { rule: 'an object', accepts: isObject }
const SCHEMAS: Kind = {
  rule: 'a list of at least one schema',
  accepts: value => Array.isArray(value) && value.length > 0,
}
const NAMES: Kind = {
  rule: 'a list of distinct strings',
  accepts: value =>
    Array.isArray(value) && value.every(item => typeof item === 'string') && new Set(value).size === value.length,
}
const NAME_LISTS: Kind = {
  rule: 'an object of lists of distinct strings',
  accepts: value => isObject(value) && Object.values(value).every(NAMES.accepts),
}
const TYPE: Kind = {
  rule: `one of ${TYPES.join(', ')}, or a list of some of them`,
  accepts: value => {
    const types = Array.isArray(value) ? value : [value]
    return types.length > 0 && new Set(types).size === types.length && types.every(type => TYPES.includes(type))
  },
}

const KINDS = new Map<string, Kind>([
  ['type', TYPE],
  ['multipleOf', STEP],
  ...toRows(NUMBER, 'minimum maximum exclusiveMinimum exclusiveMaximum'),
  ...toRows(COUNT, 'minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains'),
  ...toRows(
    TEXT,
    '$ref $id $schema $anchor $comment title description format pattern contentMediaType contentEncoding',
  ),
  ...toRows(FLAG, 'uniqueItems deprecated readOnly writeOnly'),
  ...toRows(LIST, 'enum examples'),
  ...toRows(SCHEMAS, 'allOf anyOf oneOf prefixItems'),
  ...toRows(MAP, 'properties patternProperties dependentSchemas $defs definitions'),
  ['required', NAMES],
  ['dependentRequired', NAME_LISTS],
])

function toRows(kind: Kind, keywords: string): [string, Kind][] {
  return keywords.split(' ').map(keyword => [keyword, kind])
}

/** Keywords that would be ignored, or that other tools read differently, with the replacement. */
const IMPOSSIBLE: readonly [keyword: string, hint: string][] = [
  ['$dynamicRef', 'Write a plain $ref.'],
  ['$recursiveRef', 'Write a plain $ref.'],
  ['dependencies', 'Write dependentRequired or dependentSchemas.'],
  ['additionalItems', 'Write prefixItems and items.'],
]

/** Keywords that may hold anything that a schema, or a value, may be. */
const OTHERS =
  'additionalProperties items contains not if then else propertyNames unevaluatedItems unevaluatedProperties contentSchema const default'
/** Words that OpenAPI knows beside JSON Schema. */
const OPENAPI = new Set(['example', 'nullable', 'discriminator', 'externalDocs', 'xml'])
const KNOWN = new Set([...KINDS.keys(), ...OTHERS.split(' ')])

/** Reports keywords of one schema that hold something else than they may, and patterns that are not taken. */
export function checkKeywords(schema: Readonly<Record<string, unknown>>, at: Place): void {
  for (const [keyword, value] of Object.entries(schema)) {
    const kind = KINDS.get(keyword)
    if (kind !== undefined && !kind.accepts(value)) reportWrong(keyOf(at, keyword), kind.rule, value)
    // Words of other tools are none of ours; one that is nearly a keyword is a slip that would check nothing.
    if (!KNOWN.has(keyword) && !OPENAPI.has(keyword) && nearest(keyword, KNOWN) !== null)
      reportUnknownKey(keyOf(at, keyword), keyword, KNOWN, 'keyword')
  }
  for (const [keyword, hint] of IMPOSSIBLE)
    if (Object.hasOwn(schema, keyword)) report(keyOf(at, keyword), 'CONFIG_VALUE', 'is not supported here', hint)
  const { pattern, properties, patternProperties } = schema
  // ajv passes over it, so it would go unchecked.
  if (isObject(properties) && Object.hasOwn(properties, '__proto__'))
    report(
      keyOf(keyOf(at, 'properties'), '__proto__'),
      'CONFIG_VALUE',
      'cannot be used as a name',
      'Choose another name.',
    )
  if (typeof pattern === 'string') checkPattern(pattern, keyOf(at, 'pattern'))
  if (isObject(patternProperties))
    for (const name of Object.keys(patternProperties)) checkPattern(name, keyOf(keyOf(at, 'patternProperties'), name))
}

function checkPattern(pattern: string, at: Place): void {
  try {
    parsePattern(pattern)
  } catch (error) {
    const hint = 'Write a simpler pattern; maxLength and enum often do without one.'
    report(at, 'CONFIG_VALUE', `${(error as Error).message}`, hint)
  }
}
