/** Copies a text, and says that it did. Owner: page console/console. */

import { useState } from 'preact/hooks'

/** Milliseconds that it says so. */
const TOLD_MS = 1500

export function CopyButton({ text, title }: { text: string; title: string }) {
  const [told, setTold] = useState('')
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text)
      setTold('Copied')
    } catch {
      // A page that is not on localhost or https may not: the text can be chosen by hand.
      setTold('Not allowed')
    }
    setTimeout(() => setTold(''), TOLD_MS)
  }
  return (
    <button type="button" onClick={() => void copy()} aria-live="polite">
      {told === '' ? title : told}
    </button>
  )
}
