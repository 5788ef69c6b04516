/** JSON Schemas of the files people write, made from the declarations that check them. Owner: page config/fields. */

import type { JsonSchema } from '../../lib/config/fields.ts'
import { FUNCTION_CONFIG } from '../../lib/config/function-config-fields.ts'
import { MAX_ROUTE_ENTRIES } from '../../lib/config/function-config.ts'
import { METHODS } from '../../lib/core/identity.ts'
import { SETTING_OPTIONS, type SettingOption } from '../../lib/config/setting-options.ts'

const DIALECT = 'https://json-schema.org/draft/2020-12/schema'

const SCALAR_SCHEMA = { type: ['string', 'number', 'boolean'] }

/** JSON Schema of `fn.env.json`. */
const FUNCTION_ENV_SCHEMA: JsonSchema = {
  type: 'object',
  properties: { $schema: { type: 'string' } },
  propertyNames: { pattern: '^[^=\\u0000]{1,256}$' },
  additionalProperties: {
    anyOf: [
      { ...SCALAR_SCHEMA, description: 'A plain value; secret when its name says so.' },
      { type: 'null', description: 'The same as leaving the key out.' },
      {
        type: 'object',
        properties: {
          value: SCALAR_SCHEMA,
          is_secret: { type: 'boolean', description: 'Hide the value wherever it is shown.' },
        },
        required: ['value'],
        additionalProperties: false,
      },
    ],
  },
}

/** `GET` to `[Gg][Ee][Tt]`: JSON Schema patterns have no flags. */
function toAnyCase(word: string): string {
  return [...word].map(letter => `[${letter}${letter.toLowerCase()}]`).join('')
}

/** JSON Schema of `fn.routes.json`. */
const ROUTES_FILE_SCHEMA: JsonSchema = {
  type: 'object',
  properties: {
    $schema: { type: 'string' },
    routes: {
      type: 'object',
      description: 'Methods and public path to handler file; no method means GET.',
      propertyNames: { pattern: `^\\s*((${METHODS.map(toAnyCase).join('|')})[\\s,]+)*/\\S*\\s*$` },
      additionalProperties: { type: 'string', minLength: 1 },
      maxProperties: MAX_ROUTE_ENTRIES,
    },
  },
  required: ['routes'],
  additionalProperties: false,
}

/** File name below `spec/schema/` to schema. */
export function toSchemas(): Record<string, JsonSchema> {
  return {
    'fngw.schema.json': toDocument('fngw.json', 'Settings of a project.', toSettingsSchema()),
    'fn.config.schema.json': toDocument('fn.config.json', 'Policy and identity of a function.', FUNCTION_CONFIG.schema),
    'fn.env.schema.json': toDocument('fn.env.json', 'Environment values of a function.', FUNCTION_ENV_SCHEMA),
    'fn.routes.schema.json': toDocument('fn.routes.json', 'Routes of a folder.', ROUTES_FILE_SCHEMA),
  }
}

/** File name to the text of the file, as published. */
export function toSchemaFiles(): Record<string, string> {
  const files: Record<string, string> = {}
  for (const [name, schema] of Object.entries(toSchemas())) files[name] = `${JSON.stringify(schema, null, 2)}\n`
  return files
}

function toDocument(title: string, description: string, schema: JsonSchema): JsonSchema {
  return { $schema: DIALECT, title, description, ...schema }
}

function toSettingsSchema(): JsonSchema {
  const properties: Record<string, JsonSchema> = { $schema: { type: 'string' } }
  for (const option of Object.values(SETTING_OPTIONS) as SettingOption<unknown>[]) {
    if (option.key === null) continue
    const schema =
      option.fallback === null ? option.field.schema : { ...option.field.schema, default: toDefault(option) }
    properties[option.key] = schema
    for (const alias of option.keyAliases) properties[alias] = { ...schema, deprecated: true }
  }
  return { type: 'object', properties, additionalProperties: false }
}

/** The default as it would be written in the file. */
function toDefault(option: SettingOption<unknown>): unknown {
  return option.key === 'env' ? 'development' : option.fallback
}
