/** Live log lines: one open response of `/_fn/logs?follow=1`, requested again when it breaks. Owner: page console/logs. */

import { useEffect, useState } from 'preact/hooks'
import { ApiError, request, toUrl } from '../../data/api.ts'
import { readJsonLines } from '../../data/ndjson.ts'
import { addRows, type LogRecord, type LogRow, toRow } from './log-rows.ts'

interface FeedQuery {
  readonly file: string
  readonly runtime: string
  readonly fn: string
}

/** Lines of before that are asked for, and lines that are kept. */
const FIRST_LINES = 1000
const MOST_ROWS = 5000
/** Milliseconds that lines are gathered before they are drawn, and between tries. */
const GATHER_MS = 100
const RETRY_MS = 2000

interface Feed {
  readonly rows: readonly LogRow[]
  readonly error: string | null
  /** True when the first lines were read. */
  readonly isOpen: boolean
}

const CLOSED: Feed = { rows: [], error: null, isOpen: false }

interface FeedLine {
  record?: LogRecord
  skipped?: number
}

export function useLogFeed({ file, runtime, fn }: FeedQuery): Feed {
  const [feed, setFeed] = useState<Feed>(CLOSED)
  useEffect(() => {
    const stop = new AbortController()
    setFeed(CLOSED)
    void follow({ file, runtime, fn }, stop.signal, setFeed)
    return () => stop.abort()
  }, [file, runtime, fn])
  return feed
}

type SetFeed = (change: (feed: Feed) => Feed) => void

async function follow(query: FeedQuery, signal: AbortSignal, setFeed: SetFeed): Promise<void> {
  while (!signal.aborted) {
    try {
      await readOnce(query, signal, setFeed)
    } catch (error) {
      if (signal.aborted) return
      const message = error instanceof ApiError ? error.message : 'The connection to the log was lost.'
      setFeed(feed => ({ ...feed, error: `${message} Reconnecting.` }))
    }
    await new Promise(resolve => setTimeout(resolve, RETRY_MS))
  }
}

async function readOnce(query: FeedQuery, signal: AbortSignal, setFeed: SetFeed): Promise<void> {
  const fields = { ...query, format: 'json', records: 1, follow: 1, lines: FIRST_LINES }
  const answer = await request('GET', toUrl('/_fn/logs', fields), undefined, { signal })
  let count = 0
  let waiting: LogRow[] = []
  setFeed(feed => ({ ...feed, error: null, isOpen: true }))
  // After a reconnect the gateway sends the last lines again, so the shown ones are dropped.
  let isAnew = true
  const flush = (): void => {
    if (signal.aborted || waiting.length === 0) return
    const added = waiting
    const before = isAnew ? [] : null
    waiting = []
    isAnew = false
    setFeed(feed => ({ ...feed, rows: addRows(before ?? feed.rows, added, MOST_ROWS) }))
  }
  let timer: ReturnType<typeof setTimeout> | undefined
  try {
    for await (const value of readJsonLines(answer)) {
      const { record, skipped } = value as FeedLine
      if (record !== undefined) waiting.push(toRow(record, count++))
      else if (skipped !== undefined) waiting.push(toRow(toNote(skipped), count++))
      timer ??= setTimeout(() => {
        timer = undefined
        flush()
      }, GATHER_MS)
    }
  } finally {
    clearTimeout(timer)
    flush()
  }
}

function toNote(skipped: number): LogRecord {
  const text = `${skipped} lines were skipped: they arrived faster than this browser could read them`
  const unknown = {
    time: null,
    level: 'warn',
    request_id: null,
    trace_id: null,
    runtime: null,
    fn: null,
    version: null,
  }
  return { file: '', ...unknown, stream: null, text }
}
