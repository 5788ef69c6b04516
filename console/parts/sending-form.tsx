/** A form that is sent once: its button is off meanwhile, and a refusal stands above it. Owner: page console/console. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { ApiError } from '../data/api.ts'

interface SendingFormProps {
  class: string
  /** Text of the button that sends. */
  action: string
  /** @throws ApiError */
  onSend: (fields: FormData) => Promise<void>
  /** Absent: the form has no cancel button. */
  onCancel?: () => void
  /** The text for an error; its own message by default. */
  toWords?: (error: ApiError) => string
  children: ComponentChildren
}

export function SendingForm({ class: name, action, onSend, onCancel, toWords, children }: SendingFormProps) {
  const [error, setError] = useState<string | null>(null)
  const [isBusy, setBusy] = useState(false)
  const submit = async (form: HTMLFormElement): Promise<void> => {
    setBusy(true)
    setError(null)
    try {
      await onSend(new FormData(form))
    } catch (failure) {
      const refusal = failure as ApiError
      setError(toWords?.(refusal) ?? refusal.message)
    } finally {
      setBusy(false)
    }
  }
  return (
    <form
      class={name}
      onSubmit={event => {
        event.preventDefault()
        void submit(event.currentTarget)
      }}
    >
      {children}
      <p class="error" role="alert">
        {error}
      </p>
      <div class="actions">
        {onCancel !== undefined && (
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
        )}
        <button type="submit" class="primary" disabled={isBusy}>
          {action}
        </button>
      </div>
    </form>
  )
}
