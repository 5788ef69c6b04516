/** The body and the headers of an answer. Whatever a function answers is shown, never run. Owner: page console/try. */

import { useEffect, useMemo, useState } from 'preact/hooks'
import { type PreviewKind, toHexDump, toImageType, toPrettyJson, toPreviewKind, toText } from '../preview.ts'
import { TextBox } from './text-box.tsx'

/** Characters of text and bytes of others that are shown; a download has all. */
const MOST_CHARS = 256 * 1024
const MOST_HEX_BYTES = 4096

interface PreviewProps {
  contentType: string
  bytes: Uint8Array
  isDone: boolean
}

/** @param isDone - false while more is coming: then the end is shown */
export function BodyPreview({ contentType, bytes, isDone }: PreviewProps) {
  const [isRaw, setRaw] = useState(false)
  const kind: PreviewKind = useMemo(
    // What is still coming may end in the midst of a character.
    () => (isDone ? toPreviewKind(contentType, bytes) : 'text'),
    [contentType, bytes, isDone],
  )
  if (kind === 'empty') return <p class="quiet">None.</p>
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
      {isCut && <p class="quiet">Only the beginning is shown. Download the file to see all of it.</p>}
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
        alt="Response of the function"
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

export function HeaderList({ headers }: { headers: readonly (readonly [name: string, value: string])[] }) {
  if (headers.length === 0) return <p class="quiet">None.</p>
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
