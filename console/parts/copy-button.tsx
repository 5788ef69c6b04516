/** Copies a text and shows that it did. Owner: page console/console. */

import { useState } from 'preact/hooks'

/** Milliseconds for which the outcome is shown. */
const SHOWN_MS = 1500

export function CopyButton({ text, title }: { text: string; title: string }) {
  const [label, setLabel] = useState('')
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text)
      setLabel('Copied')
    } catch {
      // A page that is not on localhost or https may not: the text can be chosen by hand.
      setLabel('Not allowed')
    }
    setTimeout(() => setLabel(''), SHOWN_MS)
  }
  return (
    <button type="button" onClick={() => void copy()} aria-live="polite">
      {label === '' ? title : label}
    </button>
  )
}
