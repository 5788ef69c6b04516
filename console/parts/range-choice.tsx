/** The time range of what a page draws; it stands in the address (`range`). Owner: page console/overview. */

import { path, query, toHref } from '../router.ts'

interface Range {
  /** As the gateway calls it, and as it stands in the address. */
  readonly window: string
  readonly text: string
  /** "the last 5 minutes" */
  readonly words: string
}

const FIRST: Range = { window: '5m', text: '5 min', words: 'the last 5 minutes' }
const RANGES: readonly Range[] = [
  FIRST,
  { window: '1h', text: '1 h', words: 'the last hour' },
  { window: '24h', text: '24 h', words: 'the last 24 hours' },
]

/** The range in the address. */
export function currentRange(): Range {
  return toRange(query.value.get('range'))
}

export function toRange(wanted: string | null): Range {
  return RANGES.find(({ window }) => window === wanted) ?? FIRST
}

export function RangeChoice() {
  const { window } = currentRange()
  const fields = Object.fromEntries(query.value)
  return (
    <nav class="choice" aria-label="Time range">
      {RANGES.map(range => (
        <a
          key={range.window}
          href={toHref(path.value, { ...fields, range: range === FIRST ? null : range.window })}
          aria-current={range.window === window ? 'true' : undefined}
        >
          {range.text}
        </a>
      ))}
    </nav>
  )
}
