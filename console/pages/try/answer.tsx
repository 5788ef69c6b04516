/** The answer on the page Try: status, where the time went, body, headers, what the function wrote. Owner: page console/try. */

import { formatBytes, formatMs, formatNumberOf } from '../../format.ts'
import { BodyPreview, HeaderList } from '../../parts/body-preview.tsx'
import { TextBox } from '../../parts/text-box.tsx'
import { toHref } from '../../router.ts'
import type { TryAnswer } from './send.ts'
import type { HeaderPair } from './try-request.ts'

export function Answer({ answer }: { answer: TryAnswer }) {
  const { status, error, isDone, headers, body, chunks, stdout, stderr, stack } = answer
  return (
    <section class="answer" aria-label="Response" aria-busy={!isDone}>
      <div role="status">
        {status !== null && <StatusLine answer={answer} status={status} />}
        {status === null && !isDone && <p class="quiet">Waiting for the response …</p>}
      </div>
      {error !== null && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {answer.timing !== null && <Timing timing={answer.timing} />}
      <Output title="Stack" text={stack} />
      {status !== null && (
        <>
          <h2>
            Body <small>{body.length === 0 ? '' : toSize(body.length, chunks, isDone)}</small>
          </h2>
          <BodyPreview contentType={toValue(headers, 'content-type')} bytes={body} isDone={isDone} />
          <h2>Headers</h2>
          <HeaderList headers={headers} />
        </>
      )}
      <Output title="stdout" text={stdout} />
      <Output title="stderr" text={stderr} />
    </section>
  )
}

function toSize(bytes: number, chunks: number, isDone: boolean): string {
  const pieces = chunks > 1 ? ` in ${formatNumberOf(chunks, 'piece')}` : ''
  return `${formatBytes(bytes)}${pieces}${isDone ? '' : ', receiving'}`
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
          <span class="quiet">no function: sent to the URL</span>
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
  if (queue === null || worker === null) return <p class="quiet">{formatMs(total)} total, measured by this browser.</p>
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

function Output({ title, text }: { title: string; text: string }) {
  if (text === '') return null
  return (
    <>
      <h2>{title}</h2>
      <TextBox label={title} text={text} />
    </>
  )
}
