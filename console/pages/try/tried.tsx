/** Earlier requests, each with a link that restores it. Owner: page console/try. */

import type { ApiError } from '../../data/api.ts'
import { formatDate, formatMs, NO_DATA } from '../../format.ts'
import { toHref } from '../../router.ts'
import { forgetHistory, isShared, tried } from './history.ts'

export function Tried({ onError }: { onError: (message: string) => void }) {
  if (tried.value.length === 0) return null
  return (
    <section aria-label="History">
      <div class="section-head">
        <h2>
          History <small>{isShared.value ? 'stored by the gateway' : 'stored in this browser'}</small>
        </h2>
        <button type="button" onClick={() => forgetHistory().catch((failure: ApiError) => onError(failure.message))}>
          Clear history
        </button>
      </div>
      <ul class="history">
        {tried.value.map(({ at, fields, status, total_ms: totalMs }) => (
          <li key={at}>
            <a class="mono" href={toHref('try', fields)}>
              {fields.method ?? 'GET'} {fields.path ?? '/'}
            </a>
            <span class={status !== null && status >= 500 ? 'error' : undefined}>{status ?? NO_DATA}</span>
            <span>{formatMs(totalMs)}</span>
            <span class="quiet">{formatDate(at)}</span>
          </li>
        ))}
      </ul>
    </section>
  )
}
