/** The environment of a function. Secrets are never shown, and sent only when they are typed again. Owner: page console/function. */

import { useState } from 'preact/hooks'
import { type ApiError, send } from '../../data/api.ts'
import { type EnvEntry, type FunctionId, type SharedFile, toTarget } from '../../data/function-records.ts'
import { useLoad } from '../../data/load.ts'
import { Confirm, Dialog } from '../../parts/dialog.tsx'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { Table } from '../../parts/table.tsx'
import { whyReadOnly } from '../../session.ts'
import { type EnvRow, KeyForm } from './env-key-form.tsx'
import { SharedNote } from './saving.tsx'

/** `GET /_fn/function-env` */
interface EnvRecord extends SharedFile {
  readonly file: string
  readonly fn_env: Readonly<Record<string, EnvEntry>>
  readonly other_keys: readonly string[]
  readonly etag: string
}

export function EnvTab({ id, onSaved }: { id: FunctionId; onSaved: () => void }) {
  const loaded = useLoad<EnvRecord>('/_fn/function-env', { query: toTarget(id), on: ['reload'] })
  const [edited, setEdited] = useState<EnvRow | null>(null)
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
  const rows: EnvRow[] = [
    ...Object.entries(record.fn_env).map(([key, entry]) => ({ key, entry })),
    ...record.other_keys.map(key => ({ key, entry: null })),
  ]
  return (
    <>
      <LoadState loaded={loaded} />
      <div class="bar-of-tab">
        <p class="quiet">{whyReadOnly.value ?? `Stored in ${record.file}. Changes apply to the next request.`}</p>
        <Button onClick={() => setEdited({ key: '', entry: null })}>New key</Button>
      </div>
      <SharedNote fileName={record.file} shared={record} />
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
          {
            name: 'value',
            title: 'Value',
            long: row => (row.entry === null || row.entry.is_secret ? '' : String(row.entry.value)),
            cell: row => <Value row={row} />,
          },
          {
            name: 'from',
            title: 'From',
            drop: 2,
            value: row => (row.entry === null ? 'z' : 'a'),
            cell: row => (row.entry === null ? <span class="quiet">another file (.env, project)</span> : record.file),
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
        {edited !== null && (
          <KeyForm row={edited} put={put} onClose={() => setEdited(null)}>
            <SharedNote fileName={record.file} shared={record} />
          </KeyForm>
        )}
      </Dialog>
      <Confirm
        title={`Delete ${doomed ?? ''}?`}
        action="Delete"
        isOpen={doomed !== null}
        onConfirm={() => doomed !== null && remove(doomed)}
        onClose={() => setDoomed(null)}
      >
        <p>
          The key and its value are removed from {record.file}. The value cannot be restored. The next request runs
          without it.
        </p>
        <SharedNote fileName={record.file} shared={record} />
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

function Value({ row: { entry } }: { row: EnvRow }) {
  if (entry === null) return <span class="quiet">not shown</span>
  if (entry.is_secret) return <span class="quiet">secret, hidden</span>
  return <span class="mono">{String(entry.value)}</span>
}

function NoKeys({ file }: { file: string }) {
  return (
    <Empty title="No environment variables">
      <p>
        Keys are available in <code>event.env</code> and stored in <code>{file}</code>:
      </p>
      <pre>{'{ "GREETING": "hello", "API_KEY": { "value": "…", "is_secret": true } }'}</pre>
    </Empty>
  )
}
