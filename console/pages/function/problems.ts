/** Current problems of a function: the catalog's warnings, and the last failure since its files changed. Owner: page console/function. */

import { useState } from 'preact/hooks'
import { type FunctionId, type FunctionRecord, toKey } from '../../data/function-records.ts'
import type { History } from '../../data/history.ts'
import { useLoad } from '../../data/load.ts'
import type { Dependencies, Preparation } from '../packs/rows.ts'

interface HotReload {
  /** Seconds since the epoch. */
  readonly hot_reload: { readonly last_catalog_scan_at: number }
}

/** @returns messages, and a function that looks again at once */
export function useProblems(
  id: FunctionId,
  record: FunctionRecord | null,
  history: History | null,
): { problems: readonly string[]; refresh: () => void } {
  const [savedAt, setSavedAt] = useState(0)
  const health = useLoad<HotReload>('/_fn/health', { on: ['reload'] })
  const isBuilt = id.runtime === 'go' || id.runtime === 'rust' || record?.metadata.dependency_resolution !== undefined
  const preparations = useLoad<Dependencies>(isBuilt ? '/_fn/dependencies' : null, {
    on: ['build', 'reload'],
  })
  const preparation = preparations.data?.functions.find(({ key }) => key === toKey(id))
  const summary = history?.functions.find(({ key }) => key === toKey(id))
  const loadedAt = Math.max(savedAt, health.data?.hot_reload.last_catalog_scan_at ?? 0)
  // A failure of the code before says nothing of the code that is there.
  const failure = (summary?.last_error_at ?? 0) >= loadedAt ? (summary?.last_error ?? null) : null
  const all = [...(record?.warnings ?? []), record?.load_error ?? null, toBuildProblem(preparation), failure]
  return {
    problems: [...new Set(all.filter(one => one !== null))],
    refresh: () => {
      setSavedAt(Date.now() / 1000)
      health.reload()
    },
  }
}

function toBuildProblem(preparation: Preparation | undefined): string | null {
  if (preparation?.error == null) return null
  const { error, file, line } = preparation
  const place = file === null ? '' : line === null ? `${file}: ` : `${file}:${line}: `
  return file !== null && error.includes(file) ? error : `${place}${error}`
}
