/** Schemas of `schema.json` files as components of the OpenAPI document, and the ways to log in that they name. Owner: page http/openapi. */

import type { FunctionVersion } from '../core/catalog.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import type { SchemaFile, Security } from '../validation/schema-file.ts'
import { copySchema, type Schema } from '../validation/schema-tree.ts'

type Json = Record<string, unknown>

const DEFINITIONS = '#/$defs/'

/** What one function's file contributes. */
export interface FunctionSchemas {
  file: SchemaFile
  /** A schema of the file with its references leading into the document. */
  embed: (schema: Schema) => Schema
  /** Requirements of an operation. */
  security: readonly Json[]
}

/** Collects the components of a document. */
export class OpenApiSchemas {
  readonly schemas: Json = {}
  readonly securitySchemes: Json = {}
  readonly #byFunction = new Map<FunctionVersion, FunctionSchemas>()

  /** Adds the definitions of a function's file, once. */
  add(fn: FunctionVersion, file: SchemaFile | null): FunctionSchemas | null {
    const known = this.#byFunction.get(fn)
    if (known !== undefined) return known
    if (file === null) return null
    const names = new Map([...file.definitions.keys()].map(name => [name, this.#freeName(fn, name)]))
    const rename = (reference: string) =>
      `#/components/schemas/${names.get(reference.slice(DEFINITIONS.length)) ?? 'Error'}`
    const embed = (schema: Schema) => copySchema(schema, { rename, spellsOut: true })
    for (const [name, schema] of file.definitions) this.schemas[names.get(name)!] = embed(schema)
    const added = { file, embed, security: (file.security ?? []).map(way => this.#toRequirement(way)) }
    this.#byFunction.set(fn, added)
    return added
  }

  #freeName({ runtime, name, version }: FunctionVersion, definition: string): string {
    const wanted = `${runtime}_${name}_${version ?? DEFAULT_VERSION_LABEL}_${definition}`.replace(
      /[^A-Za-z0-9._-]/g,
      '_',
    )
    let free = wanted
    for (let count = 2; free in this.schemas; count++) free = `${wanted}_${count}`
    // Taken at once: another definition of the file may want it too.
    this.schemas[free] = true
    return free
  }

  #toRequirement(way: Security): Json {
    if (way.kind === 'none') return {}
    if (way.kind !== 'apiKey') {
      this.securitySchemes[way.kind] = { type: 'http', scheme: way.kind }
      return { [way.kind]: [] }
    }
    const name = `${way.place}_${way.name}`.replace(/[^A-Za-z0-9._-]/g, '_')
    this.securitySchemes[name] = { type: 'apiKey', in: way.place, name: way.name }
    return { [name]: [] }
  }
}
