/** The environment of a function. What is secret is never shown, and never sent back unless it is typed anew. Owner: page console/function. */

import { useState } from 'preact/hooks'
import { type ApiError, send } from '../../data/api.ts'
import { type EnvEntry, type FunctionId, toTarget } from '../../data/function-records.ts'
import { useLoad } from '../../data/load.ts'
import { Confirm, Dialog } from '../../parts/dialog.tsx'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { Table } from '../../parts/table.tsx'
import { whyReadOnly } from '../../session.ts'

/** `GET /_fn/function-env` */
interface EnvRecord {
  readonly file: string
  readonly fn_env: Readonly<Record<string, EnvEntry>>
  readonly other_keys: readonly string[]
  readonly etag: string
}

interface Row {
  readonly key: string
  /** Null for a key of another file. */
  readonly entry: EnvEntry | null
}

export function EnvTab({ id, onSaved }: { id: FunctionId; onSaved: () => void }) {
  const loaded = useLoad<EnvRecord>('/_fn/function-env', { query: toTarget(id), on: ['reload'] })
  const [edited, setEdited] = useState<Row | null>(null)
  const [doomed, setDoomed] = useState<string | null>(null)
  const [error, setError] = useState<string | null>(null)
  const record = loaded.data
  /** @throws ApiError */
  const put = async (change: object): Promise<void> => {
    await send('PUT', '/_fn/function-env', change, toTarget(id), { headers: { 'If-Match': record?.etag ?? '"none"' } })
    loaded.reload()
    onSaved()
  }
  const remove = (key: string): void => {
    setError(null)
    put({ [key]: null }).catch((failure: ApiError) => setError(failure.message))
  }
  if (record === null) return <LoadState loaded={loaded} />
  const rows: Row[] = [
    ...Object.entries(record.fn_env).map(([key, entry]) => ({ key, entry })),
    ...record.other_keys.map(key => ({ key, entry: null })),
  ]
  return (
    <>
      <LoadState loaded={loaded} />
      <div class="bar-of-tab">
        <p class="quiet">{whyReadOnly.value ?? `Kept in ${record.file}; the next request has what is changed here.`}</p>
        <Button onClick={() => setEdited({ key: '', entry: null })}>New key</Button>
      </div>
      <p class="error" role="alert">
        {error}
      </p>
      <Table
        label="Environment"
        rows={rows}
        keyOf={row => row.key}
        sort="key"
        empty={<NoKeys file={record.file} />}
        columns={[
          { name: 'key', title: 'Key', value: row => row.key, cell: row => <span class="mono">{row.key}</span> },
          { name: 'value', title: 'Value', cell: row => <Value row={row} /> },
          {
            name: 'from',
            title: 'From',
            value: row => (row.entry === null ? 'z' : 'a'),
            cell: row => (row.entry === null ? <span class="quiet">elsewhere (.env, the project)</span> : record.file),
          },
          {
            name: 'do',
            title: '',
            cell: row => (
              <>
                <Button onClick={() => setEdited(row)}>{row.entry === null ? 'Override' : 'Replace'}</Button>{' '}
                {row.entry !== null && <Button onClick={() => setDoomed(row.key)}>Delete</Button>}
              </>
            ),
          },
        ]}
      />
      <Dialog
        title={edited?.key === '' ? 'New key' : `Value of ${edited?.key ?? ''}`}
        isOpen={edited !== null}
        onClose={() => setEdited(null)}
      >
        {edited !== null && <KeyForm row={edited} put={put} onClose={() => setEdited(null)} />}
      </Dialog>
      <Confirm
        title={`Delete ${doomed ?? ''}?`}
        action="Delete"
        isOpen={doomed !== null}
        onConfirm={() => doomed !== null && remove(doomed)}
        onClose={() => setDoomed(null)}
      >
        <p>The key and its value go from {record.file}. The value is kept nowhere; the next request runs without it.</p>
      </Confirm>
    </>
  )
}

function Button({ onClick, children }: { onClick: () => void; children: string }) {
  return (
    <button
      type="button"
      disabled={whyReadOnly.value !== null}
      title={whyReadOnly.value ?? undefined}
      onClick={onClick}
    >
      {children}
    </button>
  )
}

function Value({ row: { entry } }: { row: Row }) {
  if (entry === null) return <span class="quiet">not shown</span>
  if (entry.is_secret) return <span class="quiet">secret, hidden</span>
  return <span class="mono">{String(entry.value)}</span>
}

function NoKeys({ file }: { file: string }) {
  return (
    <Empty title="No environment">
      <p>
        Keys that are set here are in <code>event.env</code> of this function only, and are kept in <code>{file}</code>:
      </p>
      <pre>{'{ "GREETING": "hello", "API_KEY": { "value": "…", "is_secret": true } }'}</pre>
    </Empty>
  )
}

interface KeyFormProps {
  row: Row
  put: (change: object) => Promise<void>
  onClose: () => void
}

function KeyForm({ row: { key, entry }, put, onClose }: KeyFormProps) {
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
