/** Unsaved edits, kept while other pages are open. Owner: page console/function. */

import { type Signal, signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'

interface Kept {
  readonly text: string
  /** The text of the file that the edit started from, and its tag. */
  readonly base: string
  readonly etag: string | null
  /** Tag that the page knew when this was kept. */
  readonly known: string | null
}

export interface Draft extends Omit<Kept, 'known'> {
  readonly isDirty: boolean
  /** True when the file has become another one meanwhile. */
  readonly isStale: boolean
  readonly set: (text: string) => void
  /** Takes back every edit. */
  readonly reset: () => void
  /** The text is what the file holds now. */
  readonly adopt: (text: string, etag: string | null) => void
  /** Edits go on, on top of another content of the file. */
  readonly rebase: (base: string, etag: string | null) => void
}

const drafts = new Map<string, Signal<Kept | null>>()

function draftOf(name: string): Signal<Kept | null> {
  const known = drafts.get(name) ?? signal<Kept | null>(null)
  drafts.set(name, known)
  return known
}

/** Asks before a page with unsaved edits is left for good. */
function warnBeforeUnload(event: BeforeUnloadEvent): void {
  if ([...drafts.values()].some(({ value }) => value !== null && value.text !== value.base)) event.preventDefault()
}

/**
 * @param name - of what is edited
 * @param base - what the file holds, as far as it is known
 */
export function useDraft(name: string, base: string, etag: string | null): Draft {
  const kept = draftOf(name)
  const { value } = kept
  useEffect(() => {
    window.addEventListener('beforeunload', warnBeforeUnload)
    return () => window.removeEventListener('beforeunload', warnBeforeUnload)
  }, [])
  useEffect(() => {
    // What was adopted has come back from the gateway, or what came after it.
    if (value !== null && value.text === value.base && (value.etag === etag || value.known !== etag)) kept.value = null
  }, [value, etag])
  const now = value ?? { text: base, base, etag, known: etag }
  return {
    ...now,
    isDirty: now.text !== now.base,
    isStale: now.text !== now.base && now.etag !== etag,
    set: text => {
      kept.value = text === now.base ? null : { ...now, text }
    },
    reset: () => {
      kept.value = null
    },
    adopt: (text, tag) => {
      kept.value = { text, base: text, etag: tag, known: etag }
    },
    rebase: (other, tag) => {
      kept.value = { text: now.text, base: other, etag: tag, known: etag }
    },
  }
}
