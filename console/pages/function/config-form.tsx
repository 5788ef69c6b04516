/** fn.config.json as a form: a control for each field of its schema, with what holds now and where that comes from. Owner: page console/function. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Control } from './config-controls.tsx'
import { type Field, type FieldGroup, type Schema, toGroups } from './config-fields.ts'
import { type Config, getField, setField } from './config-text.ts'
import { type Holding, toPolicyName } from './policy-source.ts'
import schema from '../../../spec/schema/fn.config.schema.json' with { type: 'json' }

interface FormProps {
  config: Config
  isReadOnly: boolean
  /** Errors from the gateway, by field. */
  refusals: ReadonlyMap<string, string>
  holdings: readonly Holding[]
  onChange: (config: Config) => void
}

const GROUPS = toGroups(schema as unknown as Schema)

export function ConfigForm({ config, isReadOnly, refusals, holdings, onChange }: FormProps) {
  const byName = new Map(holdings.map(one => [one.name, one]))
  return (
    <div class="config-form">
      {GROUPS.map(group => (
        <Group key={group.name} group={group} isOpen={isWanted(group, config, refusals)}>
          {group.fields.map(field => (
            <Row
              key={field.name}
              field={field}
              value={getField(config, field.path)}
              isReadOnly={isReadOnly}
              refusal={refusals.get(field.name) ?? refusals.get(field.path.at(-1) as string) ?? null}
              holding={byName.get(toPolicyName(field.path)) ?? null}
              onChange={value => onChange(setField(config, field.path, value))}
            />
          ))}
        </Group>
      ))}
    </div>
  )
}

/** Open are the first ones, and those in which something is set or wrong. */
function isWanted({ name, fields }: FieldGroup, config: Config, refusals: ReadonlyMap<string, string>): boolean {
  return (
    name === 'general' ||
    name === 'invoke' ||
    fields.some(field => getField(config, field.path) !== undefined || refusals.has(field.name))
  )
}

function Group({ group, isOpen, children }: { group: FieldGroup; isOpen: boolean; children: ComponentChildren }) {
  const [wasOpen, setOpen] = useState(isOpen)
  return (
    <details open={wasOpen || isOpen} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>
        <strong class="mono">{group.name}</strong> <span class="quiet">{group.description}</span>
      </summary>
      {children}
    </details>
  )
}

interface RowProps {
  field: Field
  value: unknown
  isReadOnly: boolean
  refusal: string | null
  holding: Holding | null
  onChange: (value: unknown) => void
}

function Row({ field, value, isReadOnly, refusal, holding, onChange }: RowProps) {
  const id = `field-${field.name}`
  const about = `${id}-about`
  const isSet = value !== undefined
  return (
    <div class="config-field" data-field={field.name} data-set={isSet ? '' : undefined}>
      <label for={id} class="mono">
        {field.path.at(-1)}
      </label>
      <div>
        <Control field={field} value={value} id={id} about={about} isReadOnly={isReadOnly} onChange={onChange} />
        {refusal !== null && (
          <p class="error" role="alert">
            {field.name} {refusal}
          </p>
        )}
      </div>
      <p id={about} class="quiet">
        {field.description} {holding !== null && <HoldingText holding={holding} />}
      </p>
    </div>
  )
}

function HoldingText({ holding: { value, file, origin } }: { holding: Holding }) {
  const from = file === null ? origin : `from ${file}`
  return (
    <span class="holds">
      Now {value}
      {from !== '' && ` (${from})`}.
    </span>
  )
}
