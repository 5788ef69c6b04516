/** Logs: lines as they come, filtered, paused where one looks back. Owner: page console/logs. */

import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { formatNumberOf } from '../format.ts'
import { Dialog } from '../parts/dialog.tsx'
import { Empty } from '../parts/empty.tsx'
import { Page } from '../parts/page.tsx'
import { Table } from '../parts/table.tsx'
import { LOG_COLUMNS, RecordFields, stateOfRow } from './logs/log-columns.tsx'
import { useLogFeed } from './logs/log-feed.ts'
import { currentFilters, LogFilters } from './logs/log-filters.tsx'
import { findShown, type LogRow } from './logs/log-rows.ts'

/** Pixels above the end that still count as its end. */
const END_PX = 24

export function LogsPage() {
  const { feed: feedQuery, ...filter } = currentFilters()
  const { rows: all, error, isOpen } = useLogFeed(feedQuery)
  const [paused, setPaused] = useState<readonly LogRow[] | null>(null)
  const [open, setOpen] = useState<LogRow | null>(null)
  const box = useRef<HTMLDivElement>(null)
  const { level, search, hasOwn } = filter
  const source = paused ?? all
  const rows = useMemo(() => findShown(source, filter), [source, level, search, hasOwn])
  const newer = paused === null ? 0 : countNewer(findShown(all, filter), paused.at(-1)?.id ?? -1)
  useLayoutEffect(() => {
    const list = box.current?.querySelector('.table')
    if (paused === null && list != null) list.scrollTop = list.scrollHeight
  }, [rows, paused])
  const onScroll = (event: Event): void => {
    const list = event.target as HTMLElement
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < END_PX
    if (!isAtEnd && paused === null) setPaused(all)
    else if (isAtEnd && paused !== null) setPaused(null)
  }
  return (
    <Page
      title="Logs"
      question="What happened?"
      tools={
        <button type="button" aria-pressed={paused !== null} onClick={() => setPaused(paused === null ? all : null)}>
          {paused === null ? 'Pause' : 'Resume'}
        </button>
      }
    >
      <LogFilters />
      <p class="quiet log-state" role="status">
        {error !== null ? (
          <span class="error">{error}</span>
        ) : paused !== null ? (
          `Paused. ${formatNumberOf(newer, 'newer line')}.`
        ) : (
          `${formatNumberOf(rows.length, 'line')}, newest last.`
        )}
      </p>
      <div class="logs" ref={box} onScrollCapture={onScroll}>
        <Table
          label="Lines"
          columns={LOG_COLUMNS}
          rows={rows}
          keyOf={({ id }) => String(id)}
          onOpen={setOpen}
          stateOf={stateOfRow}
          empty={isOpen ? <NoLines isFiltered={all.length > 0} /> : <div />}
        />
      </div>
      <Dialog title="Line" isOpen={open !== null} onClose={() => setOpen(null)} class="line">
        {open !== null && <RecordFields record={open.record} />}
      </Dialog>
    </Page>
  )
}

function countNewer(rows: readonly LogRow[], last: number): number {
  return rows.filter(({ id }) => id > last).length
}

function NoLines({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No log lines match these filters" />
  return (
    <Empty title="No log lines yet">
      <p>Requests, output of functions and errors appear here as they happen.</p>
    </Empty>
  )
}
