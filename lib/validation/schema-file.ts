/** `schema.json` beside a handler: text to checked schemas. Owner: page validation/schema-file. */

import type { Warning } from '../core/errors.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import {
  type Finding,
  isProblem,
  itemOf,
  keyOf,
  type Place,
  report,
  reportUnknownKey,
  reportWrong,
  toPlace,
  toWarnings,
} from '../config/findings.ts'
import { readJsonFile } from '../config/json-text.ts'
import { SchemaLinker } from './schema-linker.ts'
import type { Schema } from './schema-tree.ts'

/** What is said of one method. Absent means that nothing is. */
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
 * Reads one file. What is wrong is a warning, and then nothing of the file is used.
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

/** What holds for a method. A body is one of POST, PUT and PATCH, unless the method has its own. */
export function sectionsOf(file: SchemaFile, method: Method): Sections {
  const { body, ...common } = file.common
  const shared: Sections = WITH_BODY.has(method) && body !== undefined ? { ...common, body } : common
  return { ...shared, ...file.methods.get(method) }
}
