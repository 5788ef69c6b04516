import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import type { JsonSchema } from '../../lib/config/fields.ts'
import { parseFunctionConfigValue, parseRoutesFile } from '../../lib/config/function-config.ts'
import { parseFunctionEnvValue } from '../../lib/config/function-env.ts'
import { toSchemaFiles, toSchemas } from './schemas.ts'
import { resolveSettings } from '../../lib/config/settings.ts'

const FOLDER = new URL('../../spec/schema/', import.meta.url)

t.test('[config/fields.16] the published schemas are the generated ones; mend with npm run schemas', async t => {
  const files = toSchemaFiles()
  t.same(readdirSync(FOLDER).sort(), Object.keys(files).sort())
  for (const [name, text] of Object.entries(files)) t.equal(readFileSync(new URL(name, FOLDER), 'utf8'), text, name)
  const { exports } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  t.equal(exports['./schema/*'], './spec/schema/*')
})

t.test('[config/fields.16] the schemas use known keywords and patterns that compile', async t => {
  for (const schema of Object.values(toSchemas())) {
    for (const [keyword, value] of keywordsOf(schema)) {
      t.ok(keyword in KEYWORDS || ANNOTATIONS.has(keyword), keyword)
      if (keyword === 'pattern') t.doesNotThrow(() => new RegExp(value as string, 'u'), String(value))
    }
  }
})

type Sample = [text: string, isFine: boolean]
const SAMPLES: Record<string, { count: (text: string) => number; samples: Sample[] }> = {
  'fn.config.schema.json': {
    count: text => {
      const { warnings: problems } = parseFunctionConfigValue(JSON.parse(text), 'f')
      // What has no effect yet is right as it stands: a schema refuses what is wrong.
      return problems.filter(({ code }) => code !== 'CONFIG_NO_EFFECT').length
    },
    samples: [
      ['{}', true],
      ['{"$schema":"x","timeout_ms":5,"max_concurrency":0,"group":"a"}', true],
      ['{"timeout_ms":0}', false],
      ['{"timeout_ms":"5"}', false],
      ['{"timeout_ms":1.5}', false],
      ['{"timeout":5}', false],
      ['{"__proto__":1}', false],
      ['{"runtime":"node","name":"a/b","entrypoint":"x.js"}', true],
      ['{"runtime":"ruby"}', false],
      ['{"name":"a b"}', false],
      ['{"invoke":{"methods":["GET"],"routes":["/a"],"handler":"run","adapter":"lambda"}}', true],
      ['{"invoke":{"methods":["FETCH"]}}', false],
      ['{"invoke":{"methods":[]}}', false],
      ['{"invoke":{"routes":["a"]}}', false],
      ['{"invoke":{"handler":"a-b"}}', false],
      ['{"invoke":{"adapter":"azure"}}', false],
      ['{"invoke":{"force-url":1}}', false],
      ['{"invoke":[]}', false],
      ['{"force_url":true,"invoke":{"forceUrl":true}}', true],
      ['{"worker_pool":{"max_workers":1,"overflow_status":503}}', true],
      ['{"worker_pool":{"max_workers":0}}', false],
      ['{"worker_pool":{"overflow_status":500}}', false],
      ['{"worker_pool":{"maxWorkers":1}}', false],
      ['{"home":"/a"}', true],
      ['{"home":{"function":"a","redirect":"/b"}}', true],
      ['{"home":{"routes":"/a"}}', false],
      ['{"home":5}', false],
      ['{"assets":{"directory":"public","not_found_handling":"spa"}}', true],
      ['{"assets":{}}', false],
      ['{"schedule":{"every_seconds":60,"retry":true}}', true],
      ['{"schedule":{"every_seconds":60,"retry":{"max_attempts":5,"jitter":0.5}}}', true],
      ['{"schedule":{"every_seconds":60,"retry":{"max_attempts":11}}}', false],
      ['{"schedule":{"every_seconds":0}}', false],
      ['{"schedule":{"every_seconds":60,"headers":{"x-a":["b"]}}}', false],
      ['{"schedule":{"every_seconds":60,"headers":{"x a":"b"}}}', false],
      ['{"edge":{"base_url":"https://x.example","allow_hosts":["x.example"]}}', true],
      ['{"edge":{"base_url":"x.example"}}', false],
      ['{"cors":false}', true],
      ['{"cors":{"origins":["*"],"max_age":5}}', true],
      ['{"cors":{"origins":["*"],"max_age":-5}}', false],
      ['{"shared_deps":["a"]}', true],
      ['{"shared_deps":["../a"]}', false],
      ['[]', false],
      ['"x"', false],
    ],
  },
  'fngw.schema.json': {
    count: text => {
      const { problems, warnings } = resolveSettings({ cwd: '/', file: JSON.parse(text) })
      return problems.length + warnings.length
    },
    samples: [
      ['{}', true],
      ['{"$schema":"x","functions-dir":"functions","port":8080,"env":"production"}', true],
      ['{"port":"8080"}', false],
      ['{"port":65536}', false],
      ['{"functionsDir":"x"}', false],
      ['{"admin-token":"x"}', false],
      ['{"runtimes":["node"],"runtime-daemons":{"node":2}}', true],
      ['{"runtimes":"node,php","runtime-daemons":"node=2"}', true],
      ['{"runtimes":["ruby"]}', false],
      ['{"runtimes":[]}', false],
      ['{"runtime-daemons":{"node":0}}', false],
      ['{"runtime-daemons":{"ruby":1}}', false],
      ['{"runtime-binaries":{"python":"python3"}}', true],
      ['{"runtime-binaries":{"ruby":"x"}}', false],
      ['{"runtime-sockets":{"node":["unix:/a"]}}', true],
      ['{"runtime-sockets":{"node":["/a"]}}', false],
      ['{"force-url":1}', false],
      ['{"scheduler-persist-interval":1}', false],
      ['{"namespace-depth":6}', false],
      ['{"swagger-include-admin":true}', true],
      ['[]', false],
    ],
  },
  'fn.env.schema.json': {
    count: text => parseFunctionEnvValue(JSON.parse(text), 'f').warnings.length,
    samples: [
      ['{"A":"x","B":1,"C":true,"D":null,"E":{"value":"x","is_secret":true}}', true],
      ['{"A":[]}', false],
      ['{"A":{}}', false],
      ['{"A":{"value":"x","secret":true}}', false],
      ['{"A":{"value":"x","is_secret":"yes"}}', false],
      ['{"A=B":"x"}', false],
      ['{"":"x"}', false],
      ['[]', false],
    ],
  },
  'fn.routes.schema.json': {
    count: text => parseRoutesFile(text, 'f').warnings.length,
    samples: [
      ['{"routes":{"GET,post /a":"a.js","/b":"b.js"}}', true],
      ['{"$schema":"x","routes":{}}', true],
      ['{"routes":{"FETCH /a":"a.js"}}', false],
      ['{"routes":{"GET a":"a.js"}}', false],
      ['{"routes":{"/a":5}}', false],
      ['{"routes":{"/a":""}}', false],
      ['{"routes":[]}', false],
      ['{"route":{}}', false],
      ['{}', false],
      ['[]', false],
    ],
  },
}

t.test('[config/fields.17] schema and gateway agree', async t => {
  for (const [name, { count, samples }] of Object.entries(SAMPLES)) {
    const schema = toSchemas()[name]!
    for (const [text, isFine] of samples) {
      t.equal(fits(schema, JSON.parse(text)), isFine, `${name}: schema on ${text}`)
      t.equal(count(text) === 0, isFine, `${name}: gateway on ${text}`)
    }
  }
})

const ANNOTATIONS = new Set(['$schema', 'title', 'description', 'default', 'deprecated'])
type Check = (wanted: never, value: unknown, schema: JsonSchema) => boolean
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const typeOf = (value: unknown) => (Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value)

/** The part of JSON Schema that ours use, for this test. */
const KEYWORDS: Record<string, Check> = {
  type: (wanted: string | string[], value) =>
    [wanted].flat().some(type => (type === 'integer' ? Number.isInteger(value) : typeOf(value) === type)),
  enum: (wanted: unknown[], value) => wanted.includes(value),
  minimum: (wanted: number, value) => typeof value !== 'number' || value >= wanted,
  maximum: (wanted: number, value) => typeof value !== 'number' || value <= wanted,
  minLength: (wanted: number, value) => typeof value !== 'string' || value.length >= wanted,
  maxLength: (wanted: number, value) => typeof value !== 'string' || value.length <= wanted,
  pattern: (wanted: string, value) => typeof value !== 'string' || new RegExp(wanted, 'u').test(value),
  minItems: (wanted: number, value) => !Array.isArray(value) || value.length >= wanted,
  maxItems: (wanted: number, value) => !Array.isArray(value) || value.length <= wanted,
  items: (wanted: JsonSchema, value) => !Array.isArray(value) || value.every(item => fits(wanted, item)),
  anyOf: (wanted: JsonSchema[], value) => wanted.some(schema => fits(schema, value)),
  required: (wanted: string[], value) => !isObject(value) || wanted.every(key => Object.hasOwn(value, key)),
  maxProperties: (wanted: number, value) => !isObject(value) || Object.keys(value).length <= wanted,
  propertyNames: (wanted: JsonSchema, value) => !isObject(value) || Object.keys(value).every(key => fits(wanted, key)),
  properties: (wanted: Record<string, JsonSchema>, value) =>
    !isObject(value) || Object.keys(wanted).every(key => !Object.hasOwn(value, key) || fits(wanted[key]!, value[key])),
  additionalProperties: (wanted: JsonSchema | false, value, { properties = {} }) =>
    !isObject(value) ||
    Object.keys(value).every(
      key => Object.hasOwn(properties as object, key) || (wanted !== false && fits(wanted, value[key])),
    ),
} as Record<string, Check>

function fits(schema: JsonSchema, value: unknown): boolean {
  return Object.entries(schema).every(
    ([keyword, wanted]) => KEYWORDS[keyword]?.(wanted as never, value, schema) ?? true,
  )
}

/** Every keyword of a schema and of the schemas inside it. */
function keywordsOf(schema: JsonSchema): [string, unknown][] {
  return Object.entries(schema).flatMap(([keyword, value]) => {
    const inner =
      keyword === 'properties'
        ? Object.values(value as Record<string, JsonSchema>)
        : ['items', 'additionalProperties', 'propertyNames', 'anyOf'].includes(keyword)
          ? [value].flat().filter(isObject)
          : []
    return [[keyword, value] as [string, unknown], ...inner.flatMap(keywordsOf)]
  })
}
