/** The handler's code in an editor, with what the gateway says of its lines. Owner: page console/function. */

import { useState } from 'preact/hooks'
import { get, send } from '../../data/api.ts'
import { useDraft } from '../../data/drafts.ts'
import { type FunctionId, type FunctionRecord, toMatch, toTarget } from '../../data/function-records.ts'
import { Editor } from '../../parts/editor.tsx'
import { Empty } from '../../parts/empty.tsx'
import { query } from '../../router.ts'
import { canWrite } from '../../session.ts'
import { toLineMessages } from './places.ts'
import { type FileNow, Saving } from './saving.tsx'

interface CodeTabProps {
  id: FunctionId
  record: FunctionRecord
  /** Known problems of the saved code. */
  problems: readonly string[]
  onSaved: () => void
}

const toFileNow = ({ code = '', etag = null }: FunctionRecord): FileNow => ({ text: code, etag })

export function CodeTab({ id, record, problems, onSaved }: CodeTabProps) {
  const [isSaving, setSaving] = useState(false)
  const draft = useDraft(`${record.key} code`, record.code ?? '', record.etag ?? null)
  if (record.code === undefined) {
    return (
      <Empty title="Code not available">
        <p>Only local users and users who log in with the admin token can read the code.</p>
      </Empty>
    )
  }
  const isWhole = record.code_truncated !== true
  return (
    <>
      <Saving
        draft={draft}
        fileName={record.file}
        put={async (code, etag) => {
          return toFileNow(await send('PUT', '/_fn/function-code', { code }, toTarget(id), { headers: toMatch(etag) }))
        }}
        read={async () => toFileNow(await get('/_fn/function', toTarget(id)))}
        onSaved={onSaved}
        isOpen={isSaving}
        setOpen={setSaving}
      />
      {!isWhole && (
        <p class="warning">The file is larger than 2 MiB. Only its beginning is shown, and it cannot be saved here.</p>
      )}
      <Editor
        label={`Code of ${record.file}`}
        fileName={record.file}
        text={draft.text}
        isReadOnly={!canWrite.value || !isWhole}
        onChange={draft.set}
        onSave={() => setSaving(true)}
        messages={draft.isDirty ? [] : toLineMessages(problems, record.file)}
        line={toLine(query.value.get('line'))}
      />
    </>
  )
}

function toLine(text: string | null): number | null {
  const line = Number(text ?? '')
  return Number.isInteger(line) && line > 0 ? line : null
}
