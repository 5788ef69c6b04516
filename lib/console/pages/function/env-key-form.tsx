/** Sets a key of an environment. What is typed for a secret is sent once and kept nowhere. Owner: page console/function. */

import { useState } from 'preact/hooks'
import type { ApiError } from '../../data/api.ts'
import type { EnvEntry } from '../../data/function-records.ts'

export interface EnvRow {
  readonly key: string
  /** Null for a key of another file. */
  readonly entry: EnvEntry | null
}

interface KeyFormProps {
  row: EnvRow
  put: (change: object) => Promise<void>
  onClose: () => void
}

export function KeyForm({ row: { key, entry }, put, onClose }: KeyFormProps) {
  const [isSecret, setSecret] = useState(entry?.is_secret ?? false)
  const [error, setError] = useState<string | null>(null)
  const [isBusy, setBusy] = useState(false)
  const wasSecret = entry?.is_secret ?? false
  const submit = async (form: HTMLFormElement): Promise<void> => {
    const fields = new FormData(form)
    const name = key === '' ? String(fields.get('key')).trim() : key
    setBusy(true)
    setError(null)
    try {
      await put({ [name]: { value: String(fields.get('value')), is_secret: isSecret } })
      onClose()
    } catch (failure) {
      setError((failure as ApiError).message)
      setBusy(false)
    }
  }
  return (
    <form
      class="form"
      onSubmit={event => {
        event.preventDefault()
        void submit(event.currentTarget)
      }}
    >
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
        {wasSecret && <small>The value that is there is secret. What you type replaces it.</small>}
      </label>
      <label class="check">
        <input type="checkbox" checked={isSecret} onChange={event => setSecret(event.currentTarget.checked)} /> Secret:
        shown nowhere, in no log
      </label>
      <p class="error" role="alert">
        {error}
      </p>
      <div class="actions">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={isBusy}>
          Set
        </button>
      </div>
    </form>
  )
}
