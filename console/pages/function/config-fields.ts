/** The fields of a form, made from the JSON Schema of fn.config.json. Owner: page console/function. */

/** As much of JSON Schema as the gateway's own schemas use. */
export interface Schema {
  readonly type?: string | readonly string[]
  readonly description?: string
  readonly enum?: readonly unknown[]
  readonly deprecated?: boolean
  readonly minimum?: number
  readonly maximum?: number
  readonly items?: Schema
  readonly anyOf?: readonly Schema[]
  readonly properties?: Readonly<Record<string, Schema>>
}

/** `json` is what no simple control can show: its JSON is typed. */
type FieldKind = 'text' | 'number' | 'switch' | 'choice' | 'list' | 'checks' | 'json'

export interface Field {
  /** `worker_pool`, `max_workers` */
  readonly path: readonly string[]
  /** `worker_pool.max_workers` */
  readonly name: string
  readonly description: string
  readonly kind: FieldKind
  readonly choices: readonly string[]
  readonly minimum: number | null
  readonly maximum: number | null
}

export interface FieldGroup {
  readonly name: string
  readonly description: string
  readonly fields: readonly Field[]
}

/** Fields of the top level stand in one group, every block in its own. */
export function toGroups(schema: Schema): FieldGroup[] {
  const general: Field[] = []
  const groups: FieldGroup[] = []
  for (const [name, part] of wantedParts(schema)) {
    if (part.properties === undefined) general.push(toField([name], part))
    else {
      const fields = wantedParts(part).map(([inner, innerPart]) => toField([name, inner], innerPart))
      groups.push({ name, description: part.description ?? '', fields })
    }
  }
  return [{ name: 'general', description: 'Identity and limits.', fields: general }, ...groups]
}

/** Other spellings of a field, and fields that do nothing, are not offered. */
function wantedParts({ properties = {} }: Schema): [string, Schema][] {
  return Object.entries(properties).filter(([name, { deprecated, description = '' }]) => {
    if (deprecated === true || name.startsWith('$') || /^(?:Same as|Accepted, unused)/.test(description)) return false
    if (name === 'force-url' && properties.invoke !== undefined) return false
    if (name === 'include_debug_headers' && properties.response !== undefined) return false
    if ((name === 'home' || name === 'home-route') && properties.invoke === undefined) return false
    return true
  })
}

function toField(path: readonly string[], schema: Schema): Field {
  const { kind, choices } = toControl(schema)
  return {
    path,
    name: path.join('.'),
    description: schema.description ?? '',
    kind,
    choices,
    minimum: schema.minimum ?? null,
    maximum: schema.maximum ?? null,
  }
}

function toControl(schema: Schema): { kind: FieldKind; choices: readonly string[] } {
  const isText = (one: unknown): one is string => typeof one === 'string' && one !== ''
  if (schema.enum !== undefined)
    return schema.enum.every(one => typeof one === 'string')
      ? { kind: 'choice', choices: schema.enum.filter(isText) }
      : { kind: 'json', choices: [] }
  const list = schema.anyOf?.find(one => one.type === 'array') ?? (schema.type === 'array' ? schema : undefined)
  const isListOrText =
    list !== undefined && (schema.anyOf ?? []).every(({ type }) => type === 'array' || type === 'string')
  if (isListOrText) {
    const choices = (list.items?.enum ?? []).filter(isText)
    if (choices.length > 0) return { kind: 'checks', choices }
    if (list.items?.type === 'string') return { kind: 'list', choices: [] }
  }
  if (schema.type === 'boolean') return { kind: 'switch', choices: [] }
  if (schema.type === 'integer' || schema.type === 'number') return { kind: 'number', choices: [] }
  if (schema.type === 'string') return { kind: 'text', choices: [] }
  return { kind: 'json', choices: [] }
}
