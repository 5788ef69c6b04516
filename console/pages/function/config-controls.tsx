/** A control for each kind of field. Owner: page console/function. */

import { useEffect, useState } from 'preact/hooks'
import type { Field } from './config-fields.ts'

interface ControlProps {
  field: Field
  value: unknown
  id: string
  about: string
  isReadOnly: boolean
  onChange: (value: unknown) => void
}

export function Control({ field, value, id, about, isReadOnly, onChange }: ControlProps) {
  const common = { id, 'aria-describedby': about, disabled: isReadOnly }
  const { kind, choices, minimum, maximum } = field
  // What the simple control cannot show is typed as JSON.
  if (!fits(kind, value)) return <JsonControl value={value} common={common} onChange={onChange} />
  switch (kind) {
    case 'number':
      return (
        <input
          {...common}
          type="number"
          step="any"
          min={minimum ?? undefined}
          max={maximum ?? undefined}
          value={value === undefined ? '' : String(value)}
          onInput={({ currentTarget: { value: text } }) => onChange(text === '' ? undefined : Number(text))}
        />
      )
    case 'switch':
    case 'choice': {
      const texts = kind === 'switch' ? ['true', 'false'] : choices
      return (
        <select
          {...common}
          value={value === undefined ? '' : String(value)}
          onChange={({ currentTarget: { value: text } }) =>
            onChange(text === '' ? undefined : kind === 'switch' ? text === 'true' : text)
          }
        >
          <option value="">not set</option>
          {texts.map(text => (
            <option key={text}>{text}</option>
          ))}
        </select>
      )
    }
    case 'checks':
      return <Checks choices={choices} value={toList(value)} common={common} onChange={onChange} />
    case 'list':
      return (
        <input
          {...common}
          placeholder="one, two"
          value={toList(value).join(', ')}
          onChange={({ currentTarget: { value: text } }) => onChange(toListValue(text))}
        />
      )
    case 'text':
      return (
        <input
          {...common}
          spellcheck={false}
          value={value === undefined ? '' : String(value)}
          onInput={({ currentTarget: { value: text } }) => onChange(text === '' ? undefined : text)}
        />
      )
    case 'json':
      return <JsonControl value={value} common={common} onChange={onChange} />
  }
}

function fits(kind: Field['kind'], value: unknown): boolean {
  if (value === undefined) return true
  if (kind === 'number') return typeof value === 'number'
  if (kind === 'switch') return typeof value === 'boolean'
  if (kind === 'text' || kind === 'choice') return typeof value === 'string'
  if (kind === 'list' || kind === 'checks')
    return typeof value === 'string' || (Array.isArray(value) && value.every(one => typeof one === 'string'))
  return true
}

/** A single text is a list of one. */
function toList(value: unknown): string[] {
  return value === undefined ? [] : Array.isArray(value) ? value.map(String) : String(value).split(/[\s,]+/)
}

function toListValue(text: string): string[] | undefined {
  const list = text.split(/[\s,]+/).filter(Boolean)
  return list.length === 0 ? undefined : list
}

interface Common {
  id: string
  'aria-describedby': string
  disabled: boolean
}

interface ChecksProps {
  choices: readonly string[]
  value: readonly string[]
  common: Common
  onChange: (value: unknown) => void
}

function Checks({ choices, value, common, onChange }: ChecksProps) {
  return (
    <div class="checks">
      {choices.map((choice, index) => (
        <label key={choice}>
          <input
            {...common}
            id={index === 0 ? common.id : `${common.id}-${choice}`}
            type="checkbox"
            aria-label={choice}
            checked={value.includes(choice)}
            onChange={({ currentTarget: { checked } }) => {
              const next = choices.filter(one => (one === choice ? checked : value.includes(one)))
              onChange(next.length === 0 ? undefined : next)
            }}
          />{' '}
          {choice}
        </label>
      ))}
    </div>
  )
}

interface JsonProps {
  value: unknown
  common: Common
  onChange: (value: unknown) => void
}

/** Takes what is typed as soon as it is JSON. */
function JsonControl({ value, common, onChange }: JsonProps) {
  const shown = value === undefined ? '' : JSON.stringify(value)
  const [text, setText] = useState(shown)
  const [fault, setFault] = useState<string | null>(null)
  useEffect(() => {
    setText(shown)
    setFault(null)
  }, [shown])
  return (
    <>
      <textarea
        {...common}
        rows={shown.length > 60 ? 4 : 1}
        spellcheck={false}
        placeholder="JSON"
        value={text}
        onInput={event => setText(event.currentTarget.value)}
        onChange={event => {
          const typed = event.currentTarget.value.trim()
          try {
            onChange(typed === '' ? undefined : JSON.parse(typed))
            setFault(null)
          } catch {
            setFault('Not valid JSON: strings need quotes. The value is not changed.')
          }
        }}
      />
      {fault !== null && <p class="error">{fault}</p>}
    </>
  )
}
