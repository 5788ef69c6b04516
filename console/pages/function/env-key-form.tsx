/** Sets a key of an environment. A secret is sent once and not stored in the browser. Owner: page console/function. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { EnvEntry } from '../../data/function-records.ts'
import { SendingForm } from '../../parts/sending-form.tsx'

export interface EnvRow {
  readonly key: string
  /** Null for a key of another file. */
  readonly entry: EnvEntry | null
}

interface KeyFormProps {
  row: EnvRow
  put: (change: object) => Promise<void>
  onClose: () => void
  /** Shown above the button. */
  children: ComponentChildren
}

export function KeyForm({ row: { key, entry }, put, onClose, children }: KeyFormProps) {
  const [isSecret, setSecret] = useState(entry?.is_secret ?? false)
  const wasSecret = entry?.is_secret ?? false
  const set = async (fields: FormData): Promise<void> => {
    const name = key === '' ? String(fields.get('key')).trim() : key
    await put({ [name]: { value: String(fields.get('value')), is_secret: isSecret } })
    onClose()
  }
  return (
    <SendingForm class="form" action="Set" onSend={set} onCancel={onClose}>
      <h2>{key === '' ? 'New key' : key}</h2>
      {key === '' && (
        <label>
          Key
          <input name="key" required autofocus autocomplete="off" spellcheck={false} placeholder="API_KEY" />
        </label>
      )}
      <label for="env-value">
        Value
        {isSecret ? (
          <input
            id="env-value"
            name="value"
            key="secret"
            type="password"
            autocomplete="off"
            autofocus={key !== ''}
            required
          />
        ) : (
          <textarea
            id="env-value"
            name="value"
            key="open"
            rows={3}
            spellcheck={false}
            autofocus={key !== ''}
            defaultValue={wasSecret || entry === null ? '' : String(entry.value)}
          />
        )}
        {wasSecret && <small>The current value is secret. The new value replaces it.</small>}
      </label>
      <label class="check">
        <input type="checkbox" checked={isSecret} onChange={event => setSecret(event.currentTarget.checked)} /> Secret:
        hidden in the console and in logs
      </label>
      {children}
    </SendingForm>
  )
}
