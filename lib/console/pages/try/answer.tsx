/** The answer on the page Try: status, where the time went, body, headers, what the function wrote. Owner: page console/try. */

import { useEffect, useMemo, useState } from 'preact/hooks'
import { formatBytes, formatMs, formatNumberOf } from '../../format.ts'
import { TextBox } from '../../parts/text-box.tsx'
import { toHref } from '../../router.ts'
import { type PreviewKind, toHexDump, toImageType, toPrettyJson, toPreviewKind, toText } from './preview.ts'
import type { TryAnswer } from './send.ts'
import type { HeaderPair } from './try-request.ts'

/** Characters of text and bytes of others that are shown; a download has all. */
const MOST_CHARS = 256 * 1024
const MOST_HEX_BYTES = 4096

export function Answer({ answer }: { answer: TryAnswer }) {
  const { status, error, isDone, headers, body, chunks, stdout, stderr } = answer
  return (
    <section class="answer" aria-label="Answer" aria-busy={!isDone}>
      <div role="status">
        {status !== null && <StatusLine answer={answer} status={status} />}
        {status === null && !isDone && <p class="quiet">Waiting for the answer …</p>}
      </div>
      {error !== null && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {answer.timing !== null && <Timing timing={answer.timing} />}
      {status !== null && (
        <>
          <h2>
            Body <small>{body.length === 0 ? '' : toSize(body.length, chunks, isDone)}</small>
          </h2>
          <Preview contentType={toValue(headers, 'content-type')} bytes={body} isDone={isDone} />
          <h2>Headers</h2>
          <Headers headers={headers} />
        </>
      )}
      <Output title="stdout" text={stdout} />
      <Output title="stderr" text={stderr} />
    </section>
  )
}

function toSize(bytes: number, chunks: number, isDone: boolean): string {
  const pieces = chunks > 1 ? ` in ${formatNumberOf(chunks, 'piece')}` : ''
  return `${formatBytes(bytes)}${pieces}${isDone ? '' : ', more is coming'}`
}

function toValue(headers: readonly HeaderPair[], wanted: string): string {
  return headers.find(([name]) => name.toLowerCase() === wanted)?.[1] ?? ''
}

function StatusLine({ answer, status }: { answer: TryAnswer; status: number }) {
  const { requestId, traceId, by, timing } = answer
  const look = status >= 500 ? 'error' : status >= 400 ? 'warning' : undefined
  return (
    <>
      <p class="status-line">
        <strong class={look}>{status}</strong>
        {timing !== null && <span>{formatMs(timing.total_ms)}</span>}
        {by === null ? (
          <span class="quiet">no function: the URL was asked</span>
        ) : (
          <a href={toHref(`functions/${by}`)}>{by}</a>
        )}
      </p>
      <p class="quiet">
        {requestId !== null && (
          <>
            request <a href={toHref(`requests/${requestId}`)}>{requestId}</a>
          </>
        )}
        {traceId !== null && (
          <>
            {' '}
            trace <code>{traceId}</code>
          </>
        )}
      </p>
    </>
  )
}

/** One line whose parts are as long as their shares. */
function Timing({ timing: { queue_ms: queue, worker_ms: worker, total_ms: total } }: { timing: TimingRecord }) {
  if (queue === null || worker === null)
    return <p class="quiet">{formatMs(total)} in all, as this browser measured it.</p>
  const share = total > 0 ? Math.round((queue / total) * 100) : 0
  return (
    <div class="timing">
      <div class="timing-bar" aria-hidden="true">
        <span class="queue" style={{ width: `${share}%` }} />
        <span class="worker" style={{ width: `${100 - share}%` }} />
      </div>
      <dl>
        <div>
          <dt>Queue</dt>
          <dd>{formatMs(queue)}</dd>
        </div>
        <div>
          <dt>Worker</dt>
          <dd>{formatMs(worker)}</dd>
        </div>
        <div>
          <dt>Total</dt>
          <dd>{formatMs(total)}</dd>
        </div>
      </dl>
    </div>
  )
}

type TimingRecord = NonNullable<TryAnswer['timing']>

interface PreviewProps {
  contentType: string
  bytes: Uint8Array
  isDone: boolean
}

function Preview({ contentType, bytes, isDone }: PreviewProps) {
  const [isRaw, setRaw] = useState(false)
  const kind: PreviewKind = useMemo(
    // What is still coming may end in the midst of a character.
    () => (isDone ? toPreviewKind(contentType, bytes) : 'text'),
    [contentType, bytes, isDone],
  )
  if (kind === 'empty') return <p class="quiet">It has none.</p>
  return (
    <>
      {isDone && (
        <div class="preview-tools">
          {(kind === 'json' || kind === 'image') && (
            <label>
              <input type="checkbox" checked={isRaw} onChange={event => setRaw(event.currentTarget.checked)} /> as it
              came
            </label>
          )}
          <Download bytes={bytes} />
        </div>
      )}
      {kind === 'image' && !isRaw ? (
        <Picture bytes={bytes} type={toImageType(contentType, bytes) ?? ''} />
      ) : (
        <TextBody bytes={bytes} kind={kind} isRaw={isRaw} isDone={isDone} />
      )}
    </>
  )
}

function TextBody({
  bytes,
  kind,
  isRaw,
  isDone,
}: Omit<PreviewProps, 'contentType'> & { kind: PreviewKind; isRaw: boolean }) {
  // A stream grows at its end: that is what is shown of a long one.
  const shown = isDone ? bytes : bytes.subarray(-MOST_CHARS)
  const text = isDone ? toText(bytes) : new TextDecoder().decode(shown)
  const isHex = kind === 'binary' || text === null
  const whole = isHex
    ? toHexDump(bytes, MOST_HEX_BYTES)
    : kind === 'json' && !isRaw
      ? (toPrettyJson(text) ?? text)
      : text
  const isCut = isHex ? bytes.length > MOST_HEX_BYTES : whole.length > MOST_CHARS
  return (
    <>
      <TextBox label="Body" text={whole.slice(0, MOST_CHARS)} />
      {isCut && <p class="quiet">Only the beginning is shown; the download has all of it.</p>}
    </>
  )
}

/** A blob's address, given back when it is not shown any more. */
function useBlobUrl(bytes: Uint8Array, type: string): string {
  const url = useMemo(() => URL.createObjectURL(new Blob([bytes as Uint8Array<ArrayBuffer>], { type })), [bytes, type])
  useEffect(() => () => URL.revokeObjectURL(url), [url])
  return url
}

function Picture({ bytes, type }: { bytes: Uint8Array; type: string }) {
  const url = useBlobUrl(bytes, type)
  const [size, setSize] = useState('')
  return (
    <figure>
      <img
        src={url}
        alt="What the function answered"
        onLoad={event => setSize(`${event.currentTarget.naturalWidth} × ${event.currentTarget.naturalHeight}`)}
      />
      <figcaption class="quiet">
        {type} {size}
      </figcaption>
    </figure>
  )
}

/** As bytes to be saved: opened as a page it would be one of this origin. */
function Download({ bytes }: { bytes: Uint8Array }) {
  const url = useBlobUrl(bytes, 'application/octet-stream')
  return (
    <a href={url} download="answer">
      Download
    </a>
  )
}

function Headers({ headers }: { headers: readonly HeaderPair[] }) {
  if (headers.length === 0) return <p class="quiet">It has none.</p>
  return (
    <dl class="pairs mono">
      {headers.map(([name, value], index) => (
        // A name may come again.
        <div key={index}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

function Output({ title, text }: { title: string; text: string }) {
  if (text === '') return null
  return (
    <>
      <h2>{title}</h2>
      <TextBox label={title} text={text} />
    </>
  )
}
