/** The packages of a function: what it asked for, how they were found, and what came of it. Owner: page console/function. */

import type { ComponentChildren } from 'preact'
import { type FunctionId, type FunctionRecord, toKey } from '../../data/function-records.ts'
import { useLoad } from '../../data/load.ts'
import { formatAgo, formatDate, formatMs } from '../../format.ts'
import { Empty } from '../../parts/empty.tsx'
import type { Dependencies } from '../packs/rows.ts'
import { Facts } from '../../parts/facts.tsx'
import { Message } from './message.tsx'

const TITLES: Readonly<Record<string, string>> = {
  last_install_status: 'Last install',
  mode: 'Source',
  manifest_path: 'Manifest',
  manifest_generated: 'Manifest written by the gateway',
  lockfile_path: 'Lock file',
  inferred_imports: 'Imports found in the code',
  resolved_packages: 'Packages',
  unresolved_imports: 'Imports without a package',
  infer_backend: 'Import scanner',
  inference_duration_ms: 'Import scan took',
  set: 'Installed in',
  updated_at: 'Updated',
}

export function DependenciesTab({ id, record }: { id: FunctionId; record: FunctionRecord }) {
  const { data } = useLoad<Dependencies>('/_fn/dependencies', { on: ['build', 'reload'] })
  const now = data?.functions.find(({ key }) => key === toKey(id))
  const resolution = record.metadata.dependency_resolution
  const packs = (record.policy.shared_deps ?? []) as readonly string[]
  const isPreparing = now?.state === 'preparing'
  return (
    <>
      {isPreparing && (
        <p role="status">
          Installing: {now.step ?? 'waiting in the queue'}
          {now.since !== null && `, since ${formatAgo(now.since * 1000)}`}.
        </p>
      )}
      {now?.error != null && (
        <p class="error">
          <Message text={now.error} id={id} file={record.file} />
          {now.hint !== null && ` How to fix it: ${now.hint}.`}
        </p>
      )}
      {packs.length > 0 && <p>Shared packs: {packs.join(', ')}</p>}
      {resolution === undefined ? (
        (now === undefined || now.state === 'none' || now.state === 'ready') && <NoPackages runtime={id.runtime} />
      ) : (
        <>
          {now?.error == null && typeof resolution.last_error === 'string' && resolution.last_error !== '' && (
            <p class="error">
              <Message text={resolution.last_error} id={id} file={record.file} />
            </p>
          )}
          <Facts
            facts={Object.entries(TITLES).flatMap(([name, title]) => {
              const value = resolution[name]
              return value == null || value === '' ? [] : [[title, toShown(name, value)] as const]
            })}
          />
        </>
      )}
    </>
  )
}

function toShown(name: string, value: unknown): ComponentChildren {
  if (name === 'inference_duration_ms') return formatMs(Number(value))
  if (name === 'updated_at') return formatDate(toTime(value))
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.map(toText).join(', ')
  if (name === 'last_install_status')
    return <span class={value === 'failed' ? 'error' : undefined}>{String(value)}</span>
  return toText(value)
}

function toText(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Seconds, or a date as text. */
function toTime(value: unknown): number {
  return typeof value === 'number' ? value * 1000 : Date.parse(String(value))
}

const MANIFESTS: Readonly<Record<string, string>> = {
  python: 'requirements.txt',
  node: 'package.json',
  php: 'composer.json',
  go: 'go.mod',
  rust: 'Cargo.toml',
}

function NoPackages({ runtime }: { runtime: string }) {
  const manifest = MANIFESTS[runtime]
  return (
    <Empty title="No packages">
      <p>
        {manifest === undefined
          ? 'Functions in this language use the files of their folder.'
          : `Add a ${manifest} beside the handler. Its packages are installed before the next request.`}
      </p>
    </Empty>
  )
}
