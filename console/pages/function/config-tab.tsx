/** What fn.config.json says: as a form, as JSON, and what of it holds with the file that each value comes from. Owner: page console/function. */

import { useState } from 'preact/hooks'
import { type ApiError, get, send } from '../../data/api.ts'
import { useDraft } from '../../data/drafts.ts'
import {
  type FunctionId,
  type FunctionRecord,
  type SharedFile,
  toFunctionPage,
  toMatch,
  toTarget,
} from '../../data/function-records.ts'
import { useLoad } from '../../data/load.ts'
import { Editor } from '../../parts/editor.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { Table } from '../../parts/table.tsx'
import { query, toHref } from '../../router.ts'
import { canWrite } from '../../session.ts'
import { ConfigForm } from './config-form.tsx'
import { type Config, lineOfField, parseConfigText, parseRefusal, toChange, toConfigText } from './config-text.ts'
import { type Holding, toHoldings } from './policy-source.ts'
import { type FileNow, Saving, SharedNote } from './saving.tsx'

interface ConfigRecord extends FunctionRecord, SharedFile {
  readonly config: Config | null
  readonly etag: string
}

const VIEWS = [
  ['form', 'Form'],
  ['json', 'JSON'],
  ['holds', 'Effective values'],
] as const

const NO_REFUSALS: ReadonlyMap<string, string> = new Map()

interface ConfigTabProps {
  id: FunctionId
  /** Its policy, with where each value comes from. */
  holding: FunctionRecord
  onSaved: () => void
}

const toFileNow = ({ config, etag }: ConfigRecord): FileNow => ({ text: toConfigText(config), etag })

export function ConfigTab({ id, holding, onSaved }: ConfigTabProps) {
  const loaded = useLoad<ConfigRecord>('/_fn/function-config', { query: toTarget(id), on: ['reload'] })
  return (
    <>
      <LoadState loaded={loaded} />
      {loaded.data !== null && (
        <ConfigEditor
          id={id}
          holding={holding}
          record={loaded.data}
          onSaved={() => {
            loaded.reload()
            onSaved()
          }}
        />
      )}
    </>
  )
}

function ConfigEditor({ id, holding, record, onSaved }: ConfigTabProps & { record: ConfigRecord }) {
  const [isSaving, setSaving] = useState(false)
  const [refused, setRefused] = useState({ text: '', fields: NO_REFUSALS })
  const [notes, setNotes] = useState<readonly string[]>([])
  const now = toFileNow(record)
  const draft = useDraft(`${record.key} config`, now.text, now.etag)
  const parsed = parseConfigText(draft.text)
  const view = query.value.get('view') ?? 'form'
  const fileName = toConfigPath(record)
  const refusals = refused.text === draft.text ? refused.fields : NO_REFUSALS
  const holdings = toHoldings(holding)
  const put = async (text: string, etag: string | null): Promise<FileNow> => {
    const [before, after] = [parseConfigText(draft.base), parseConfigText(text)]
    if (!('config' in before) || !('config' in after)) throw new Error('the text was checked before')
    const change = toChange(before.config, after.config)
    const answer = await send<ConfigRecord>('PUT', '/_fn/function-config', change, toTarget(id), {
      headers: toMatch(etag),
    })
    setNotes(answer.warnings)
    setRefused({ text: '', fields: NO_REFUSALS })
    return toFileNow(answer)
  }
  return (
    <>
      <div class="bar-of-tab">
        <nav class="choice" aria-label="Shown as">
          {VIEWS.map(([name, title]) => (
            <a
              key={name}
              href={toHref(toFunctionPage(id), { tab: 'config', view: name })}
              aria-current={name === view ? 'true' : undefined}
            >
              {title}
            </a>
          ))}
        </nav>
        <Saving
          draft={draft}
          fileName={fileName}
          shared={record}
          fault={'line' in parsed ? `Line ${parsed.line}: ${parsed.message}` : null}
          put={put}
          read={async () => toFileNow(await get('/_fn/function-config', toTarget(id)))}
          onRefusal={error => takeRefusal(error, draft.text, setRefused)}
          onSaved={onSaved}
          isOpen={isSaving}
          setOpen={setSaving}
        />
      </div>
      <SharedNote fileName={fileName} shared={record} />
      <p class="error" role="alert">
        {refusals.get('')}
      </p>
      {notes.map(note => (
        <p class="warning" key={note}>
          {note}
        </p>
      ))}
      {view === 'holds' ? (
        <Holdings holdings={holdings} />
      ) : view === 'json' || 'line' in parsed ? (
        <Editor
          label={`Text of ${fileName}`}
          fileName={fileName}
          text={draft.text}
          isReadOnly={!canWrite.value}
          onChange={draft.set}
          onSave={() => setSaving(true)}
          messages={'line' in parsed ? [parsed] : toLineMessages(refusals, draft.text)}
          line={null}
        />
      ) : (
        <ConfigForm
          config={parsed.config}
          isReadOnly={!canWrite.value}
          refusals={refusals}
          holdings={holdings}
          onChange={config => draft.set(toConfigText(config))}
        />
      )}
    </>
  )
}

/** Below the functions root; the handler may be in a folder below that of its config. */
function toConfigPath({ file, file_path: filePath, config_path: configPath }: ConfigRecord): string {
  if (filePath !== undefined && configPath !== undefined) return configPath.slice(filePath.length - file.length)
  return `${file.slice(0, file.lastIndexOf('/') + 1)}fn.config.json`
}

function takeRefusal(
  error: ApiError,
  text: string,
  set: (refused: { text: string; fields: ReadonlyMap<string, string> }) => void,
): boolean {
  if (error.status !== 400) return false
  set({ text, fields: parseRefusal(error.message) })
  return true
}

function toLineMessages(refusals: ReadonlyMap<string, string>, text: string): { line: number; message: string }[] {
  return [...refusals]
    .filter(([field]) => field !== '')
    .map(([field, message]) => ({ line: lineOfField(text, field), message: `${field} ${message}` }))
}

function Holdings({ holdings }: { holdings: readonly Holding[] }) {
  return (
    <Table
      label="Effective values"
      rows={holdings}
      keyOf={one => one.name}
      columns={[
        { name: 'name', title: 'Field', value: one => one.name, cell: one => <span class="mono">{one.name}</span> },
        { name: 'value', title: 'Value', cell: one => one.value },
        {
          name: 'from',
          title: 'From',
          value: one => one.file ?? one.origin,
          cell: one => <From holding={one} />,
        },
      ]}
    />
  )
}

function From({ holding: { file, origin, setting } }: { holding: Holding }) {
  if (file !== null) return <>{file}</>
  if (setting !== null) return <a href={toHref('settings', { q: setting })}>{origin}</a>
  return <span class="quiet">{origin}</span>
}
