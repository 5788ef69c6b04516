/** The top of a function's page: what is wrong with it, its routes, and its charts. Owner: page console/function. */

import type { Catalog } from '../../data/records.ts'
import { type FunctionId, type FunctionRecord, toKey } from '../../data/function-records.ts'
import type { History } from '../../data/history.ts'
import { useLoad } from '../../data/load.ts'
import { formatMs, formatNumberOf } from '../../format.ts'
import { currentRange } from '../../parts/range-choice.tsx'
import { Spark } from '../../parts/spark.tsx'
import { toHref } from '../../router.ts'
import { Message } from './message.tsx'

interface HeadProps {
  id: FunctionId
  record: FunctionRecord
  problems: readonly string[]
  history: History | null
}

export function Head({ id, record, problems, history }: HeadProps) {
  const { data: catalog } = useLoad<Catalog>('/_fn/catalog', { on: ['reload'] })
  const { up, reason } = record.runtime_health
  return (
    <>
      {!up && (
        <p class="error" role="alert">
          The runtime is down: {reason}. <a href={toHref('health')}>Health</a>
        </p>
      )}
      {problems.length > 0 && (
        <ul class="problems" aria-label="Problems">
          {problems.map(problem => (
            <li key={problem}>
              <Message text={problem} id={id} file={record.file} />
            </li>
          ))}
        </ul>
      )}
      <ul class="routes" aria-label="Routes">
        {toRoutes(catalog, id).map(({ route, methods }) => (
          <li key={`${methods} ${route}`}>
            <a class="mono" href={toHref('routes', { method: methods[0] ?? 'GET', path: route })}>
              {route}
            </a>{' '}
            <span class="quiet">{methods.join(' ')}</span>
          </li>
        ))}
      </ul>
      <p class="sums">
        {history === null ? ' ' : toSentence(history)} {history !== null && <Spark values={history.totals.spark} />}
      </p>
    </>
  )
}

function toSentence({ totals }: History): string {
  const { requests, errors_4xx: refused, errors_5xx: failed, throttled } = totals
  const { words } = currentRange()
  if (requests === 0) return `No requests in ${words}.`
  const isFine = failed + refused + throttled === 0
  const errors = isFine ? 'no errors' : `${refused} of 4xx, ${failed} of 5xx, ${throttled} throttled`
  return `${formatNumberOf(requests, 'request')} in ${words}, p95 ${formatMs(totals.p95_ms)}, ${errors}.`
}

function toRoutes(catalog: Catalog | null, id: FunctionId): { route: string; methods: readonly string[] }[] {
  const key = toKey(id)
  const mapped = Object.entries(catalog?.mapped_routes ?? {}).flatMap(([route, owners]) =>
    owners
      .filter(one => toKey({ runtime: one.runtime, name: one.name, version: one.version ?? 'default' }) === key)
      .map(({ methods }) => ({ route, methods })),
  )
  // A version is always answered under its name, too.
  return id.version === 'default' ? mapped : [...mapped, { route: `/${id.name}@${id.version}`, methods: [] }]
}
