/** Saving a file of a function: the diff is shown first, and concurrent changes are not lost. Owner: page console/function. */

import { useState } from 'preact/hooks'
import type { ApiError } from '../../data/api.ts'
import type { Draft } from '../../data/drafts.ts'
import { parseFunctionKey, type SharedFile, toFunctionPage, toKey, toShownName } from '../../data/function-records.ts'
import { formatClock, formatCount, formatNumberOf } from '../../format.ts'
import { Dialog } from '../../parts/dialog.tsx'
import { Difference } from '../../parts/editor.tsx'
import { toHref } from '../../router.ts'
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
  /** The other functions that a change affects. */
  shared?: SharedFile
  /** Why it cannot be saved as it is; null when it can. */
  fault?: string | null
  /** Writes the text where the file has this tag. @throws ApiError */
  put: (text: string, etag: string | null) => Promise<FileNow>
  /** Reads the file again. @throws ApiError */
  read: () => Promise<FileNow>
  /** A refusal that is shown elsewhere; true when it was taken. */
  onRefusal?: (error: ApiError) => boolean
  onSaved: () => void
  /** Opened by Ctrl+S too. */
  isOpen: boolean
  setOpen: (isOpen: boolean) => void
}

export function Saving(props: SavingProps) {
  const { draft, fileName, shared, fault = null, put, read, onRefusal, onSaved, isOpen, setOpen } = props
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
            Compare
          </button>
        )}
      </p>
      <button type="button" disabled={!draft.isDirty} onClick={draft.reset}>
        Discard
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
        {shared !== undefined && <SharedNote fileName={fileName} shared={shared} />}
        <Difference label="Changes" fileName={fileName} before={draft.base} after={draft.text} />
        <p class="error" role="alert">
          {error}
        </p>
        <div class="actions">
          <button type="button" onClick={close}>
            Keep editing
          </button>
          <button type="button" class="primary" disabled={isBusy} onClick={() => void save(draft.etag)}>
            Save
          </button>
        </div>
      </Dialog>
      <Dialog title="The file has changed" isOpen={theirs !== null} onClose={() => setTheirs(null)} class="wide">
        <h2>{fileName} was changed by someone else</h2>
        <p>Red: their version. Green: yours.</p>
        {theirs !== null && (
          <Difference label="Their version and yours" fileName={fileName} before={theirs.text} after={draft.text} />
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
            Keep editing
          </button>
          <button
            type="button"
            onClick={() => {
              if (theirs !== null) draft.adopt(theirs.text, theirs.etag)
              setTheirs(null)
            }}
          >
            Use their version
          </button>
          <button
            type="button"
            class="danger"
            disabled={isBusy || why !== null}
            onClick={() => theirs !== null && void save(theirs.etag)}
          >
            Overwrite with mine
          </button>
        </div>
      </Dialog>
    </div>
  )
}

/** Names the other functions that change with a file. */
export function SharedNote({ fileName, shared }: { fileName: string; shared: SharedFile }) {
  const { shared_with: keys, shared_with_count: count } = shared
  if (count === 0) return null
  return (
    <p class="warning shared">
      Changes to {fileName} also apply to {formatNumberOf(count, 'other function')}:{' '}
      {keys
        .flatMap(key => parseFunctionKey(key) ?? [])
        .map((id, index) => (
          <span key={toKey(id)}>
            {index > 0 && ', '}
            <a href={toHref(toFunctionPage(id))}>{toShownName(id)}</a>
          </span>
        ))}
      {count > keys.length && ` and ${formatCount(count - keys.length)} more`}.
    </p>
  )
}

function toStatus(draft: Draft, savedAt: number | null): string {
  if (whyReadOnly.value !== null) return whyReadOnly.value
  if (draft.isStale) return 'Unsaved changes. The file was changed by someone else.'
  if (draft.isDirty) return 'Unsaved changes.'
  return savedAt === null ? '' : `Saved at ${formatClock(savedAt)}. The next request uses it.`
}
