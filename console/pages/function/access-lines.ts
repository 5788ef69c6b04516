/** Lines of the access log as rows. Owner: page console/function. */

export interface AccessLine {
  /** Of the request. */
  readonly id: string
  /** ms since the epoch. */
  readonly at: number
  readonly method: string
  readonly path: string
  readonly status: number
  readonly durationMs: number | null
  readonly queueMs: number | null
  readonly bytesOut: number | null
}

const toNumber = (value: unknown): number | null => (typeof value === 'number' ? value : null)
const toText = (value: unknown): string => (typeof value === 'string' ? value : '')

/** @returns newest first; other lines are dropped */
export function parseAccessLines(lines: readonly string[]): AccessLine[] {
  return lines
    .flatMap(text => {
      const line = parseLine(text)
      return line === null ? [] : [line]
    })
    .reverse()
}

function parseLine(text: string): AccessLine | null {
  let record: Record<string, unknown>
  try {
    record = JSON.parse(text) as Record<string, unknown>
  } catch {
    return null
  }
  const status = toNumber(record.status)
  if (status === null) return null
  return {
    id: toText(record.req_id),
    at: Date.parse(toText(record.time)),
    method: toText(record.method),
    path: toText(record.path),
    status,
    durationMs: toNumber(record.dur_ms),
    queueMs: toNumber(record.queue_ms),
    bytesOut: toNumber(record.bytes_out),
  }
}
