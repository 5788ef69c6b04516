/** What the keywords of a schema may hold: the meta-schema of JSON Schema 2020-12, with messages for people. Owner: page validation/schema-file. */

import { isObject } from '../core/json.ts'
import { keyOf, nearest, type Place, report, reportUnknownKey, reportWrong } from '../config/findings.ts'
import { parsePattern } from './pattern-parser.ts'

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
const TEXT: Kind = { rule: 'a text', accepts: value => typeof value === 'string' }
const FLAG: Kind = { rule: 'true or false', accepts: value => typeof value === 'boolean' }
const LIST: Kind = { rule: 'a list', accepts: Array.isArray }
const MAP: Kind = { rule: 'an object', accepts: isObject }
const SCHEMAS: Kind = {
  rule: 'a list of at least one schema',
  accepts: value => Array.isArray(value) && value.length > 0,
}
const NAMES: Kind = {
  rule: 'a list of different texts',
  accepts: value =>
    Array.isArray(value) && value.every(item => typeof item === 'string') && new Set(value).size === value.length,
}
const NAME_LISTS: Kind = {
  rule: 'an object of lists of texts',
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

/** Keywords that would be passed over, or mean something else to everybody, with what to write instead. */
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
    if (Object.hasOwn(schema, keyword)) report(keyOf(at, keyword), 'CONFIG_VALUE', 'is not possible here', hint)
  const { pattern, properties, patternProperties } = schema
  // ajv passes over it, so it would go unchecked.
  if (isObject(properties) && Object.hasOwn(properties, '__proto__'))
    report(keyOf(keyOf(at, 'properties'), '__proto__'), 'CONFIG_VALUE', 'is no possible name', 'Choose another.')
  if (typeof pattern === 'string') checkPattern(pattern, keyOf(at, 'pattern'))
  if (isObject(patternProperties))
    for (const name of Object.keys(patternProperties)) checkPattern(name, keyOf(keyOf(at, 'patternProperties'), name))
}

function checkPattern(pattern: string, at: Place): void {
  try {
    parsePattern(pattern)
  } catch (error) {
    const hint = 'Write a simpler pattern; maxLength and enum say much without one.'
    report(at, 'CONFIG_VALUE', `${(error as Error).message}`, hint)
  }
}
