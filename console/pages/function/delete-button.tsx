/** Deletes a function, after saying what goes with it. Owner: page console/function. */

import { useState } from 'preact/hooks'
import { type ApiError, send } from '../../data/api.ts'
import { type FunctionId, type FunctionRecord, toTarget } from '../../data/function-records.ts'
import { Confirm } from '../../parts/dialog.tsx'
import { navigate, toHref } from '../../router.ts'
import { whyReadOnly } from '../../session.ts'

export function DeleteButton({ id, record }: { id: FunctionId; record: FunctionRecord }) {
  const [isAsking, setAsking] = useState(false)
  const [error, setError] = useState<string | null>(null)
  const remove = async (): Promise<void> => {
    setError(null)
    try {
      await send('DELETE', '/_fn/function', undefined, toTarget(id))
      navigate(toHref('functions'))
    } catch (failure) {
      setError((failure as ApiError).message)
    }
  }
  const title = id.version === 'default' ? id.name : `${id.name}@${id.version}`
  const routes = record.metadata.endpoints.mapped_routes
  return (
    <>
      {error !== null && (
        <span class="error" role="alert">
          {error}
        </span>
      )}
      <button
        type="button"
        class="danger"
        disabled={whyReadOnly.value !== null}
        title={whyReadOnly.value ?? undefined}
        onClick={() => setAsking(true)}
      >
        Delete…
      </button>
      <Confirm
        title={`Delete ${title}?`}
        action="Delete"
        isOpen={isAsking}
        onConfirm={() => void remove()}
        onClose={() => setAsking(false)}
      >
        <p>{toLoss(record)}</p>
        {routes.length > 0 && (
          <p>
            <span class="mono">{routes.join(', ')}</span> will return 404, unless another function claims the same
            route.
          </p>
        )}
        <p>This cannot be undone, except from your version control.</p>
      </Confirm>
    </>
  )
}

function toLoss({ kind, file }: FunctionRecord): string {
  if (kind === 'file') return `This deletes the file ${file}.`
  return `This deletes the folder of ${file} with its code, config, environment, secrets and installed packages. If other functions are in the folder, only the files of this function are deleted.`
}
