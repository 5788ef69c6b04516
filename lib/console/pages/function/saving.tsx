/** Saving a file of a function: the difference is shown first, and what somebody else saved meanwhile is not lost. Owner: page console/function. */

import { useState } from 'preact/hooks'
import type { ApiError } from '../../data/api.ts'
import type { Draft } from '../../data/drafts.ts'
import { formatClock } from '../../format.ts'
import { Dialog } from '../../parts/dialog.tsx'
import { Difference } from '../../parts/editor.tsx'
import { whyReadOnly } from '../../session.ts'

/** A file as the gateway has it. */
export interface FileNow {
  readonly text: string
  readonly etag: string | null
}

interface SavingProps {
  draft: Draft
  /** Below the functions root. */
  fileName: string
  /** Why it cannot be saved as it is; null when it can. */
  fault?: string | null
  /** Writes the text where the file has this tag. @throws ApiError */
  put: (text: string, etag: string | null) => Promise<FileNow>
  /** Reads the file anew. @throws ApiError */
  read: () => Promise<FileNow>
  /** A refusal that is shown elsewhere; true when it was taken. */
  onRefusal?: (error: ApiError) => boolean
  onSaved: () => void
  /** Opened by Ctrl+S too. */
  isOpen: boolean
  setOpen: (isOpen: boolean) => void
}

export function Saving(props: SavingProps) {
  const { draft, fileName, fault = null, put, read, onRefusal, onSaved, isOpen, setOpen } = props
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<string | null>(null)
  const [savedAt, setSavedAt] = useState<number | null>(null)
  const [theirs, setTheirs] = useState<FileNow | null>(null)
  const why = whyReadOnly.value ?? fault
  const close = (): void => {
    setOpen(false)
    setError(null)
  }
  const save = async (etag: string | null): Promise<void> => {
    setBusy(true)
    setError(null)
    try {
      const now = await put(draft.text, etag)
      draft.adopt(now.text, now.etag)
      setSavedAt(Date.now())
      setTheirs(null)
      setOpen(false)
      onSaved()
    } catch (failure) {
      const refusal = failure as ApiError
      if (refusal.status === 409 && etag !== null) await compare()
      else if (onRefusal?.(refusal) === true) setOpen(false)
      else setError(refusal.message)
    } finally {
      setBusy(false)
    }
  }
  const compare = async (): Promise<void> => {
    try {
      setTheirs(await read())
      setOpen(false)
    } catch (failure) {
      setError((failure as ApiError).message)
    }
  }
  return (
    <div class="saving">
      <p role="status" class="quiet">
        {toStatus(draft, savedAt)}{' '}
        {draft.isStale && (
          <button type="button" onClick={() => void compare()}>
            See both
          </button>
        )}
      </p>
      <button type="button" disabled={!draft.isDirty} onClick={draft.reset}>
        Take back
      </button>
      <button
        type="button"
        class="primary"
        disabled={!draft.isDirty || why !== null}
        title={why ?? 'Ctrl+S'}
        onClick={() => setOpen(true)}
      >
        Save…
      </button>
      <Dialog title={`Save ${fileName}`} isOpen={isOpen && draft.isDirty && why === null} onClose={close} class="wide">
        <h2>Save {fileName}</h2>
        <Difference label="What changes" fileName={fileName} before={draft.base} after={draft.text} />
        <p class="error" role="alert">
          {error}
        </p>
        <div class="actions">
          <button type="button" onClick={close}>
            Go on editing
          </button>
          <button type="button" class="primary" disabled={isBusy} onClick={() => void save(draft.etag)}>
            Save
          </button>
        </div>
      </Dialog>
      <Dialog title="Somebody else saved" isOpen={theirs !== null} onClose={() => setTheirs(null)} class="wide">
        <h2>Somebody else saved {fileName} meanwhile</h2>
        <p>What would go is theirs, what would come is yours.</p>
        {theirs !== null && (
          <Difference label="Theirs and yours" fileName={fileName} before={theirs.text} after={draft.text} />
        )}
        <p class="error" role="alert">
          {error}
        </p>
        <div class="actions">
          <button
            type="button"
            onClick={() => {
              if (theirs !== null) draft.rebase(theirs.text, theirs.etag)
              setTheirs(null)
            }}
          >
            Go on editing
          </button>
          <button
            type="button"
            onClick={() => {
              if (theirs !== null) draft.adopt(theirs.text, theirs.etag)
              setTheirs(null)
            }}
          >
            Take theirs, lose mine
          </button>
          <button
            type="button"
            class="danger"
            disabled={isBusy || why !== null}
            onClick={() => theirs !== null && void save(theirs.etag)}
          >
            Write mine over theirs
          </button>
        </div>
      </Dialog>
    </div>
  )
}

function toStatus(draft: Draft, savedAt: number | null): string {
  if (whyReadOnly.value !== null) return whyReadOnly.value
  if (draft.isStale) return 'Not saved, and somebody else has changed the file.'
  if (draft.isDirty) return 'Not saved.'
  return savedAt === null ? '' : `Saved at ${formatClock(savedAt)}. The next request has it.`
}
