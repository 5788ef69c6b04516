/** One job: what it is, what it answered, cancelling and deleting it. Owner: page console/jobs. */

import { useState } from 'preact/hooks'
import { type ApiError, send, toUrl } from '../../data/api.ts'
import { isPending, type Job, toAttemptIds } from '../../data/jobs.ts'
import { useLoad } from '../../data/load.ts'
import { formatAgo, formatBytes, formatDate, formatMs, NO_DATA } from '../../format.ts'
import { BodyPreview, HeaderList } from '../../parts/body-preview.tsx'
import { Confirm } from '../../parts/dialog.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { fromBase64 } from '../../preview.ts'
import { navigate, toHref } from '../../router.ts'
import { canWrite, whyReadOnly } from '../../session.ts'
import { toLook } from './job-list.tsx'
import { Facts } from '../../parts/facts.tsx'

/** Bytes of an answer that are shown; a larger one is a download. */
const MOST_SHOWN_BYTES = 1024 * 1024

/** Attempts whose logs are linked. */
const MOST_ATTEMPTS = 10

export function JobPage({ id }: { id: string }) {
  const path = `/_fn/jobs/${encodeURIComponent(id)}`
  const loaded = useLoad<Job>(path, { on: ['job'] })
  const [error, setError] = useState<string | null>(null)
  const [isAsking, setAsking] = useState(false)
  const job = loaded.data
  const end = async (): Promise<void> => {
    setError(null)
    try {
      const { deleted } = await send<{ deleted: boolean }>('DELETE', path)
      if (deleted) navigate(toHref('jobs'))
      else loaded.reload()
    } catch (failure) {
      setError((failure as ApiError).message)
    }
  }
  return (
    <>
      <p class="links">
        <a href={toHref('jobs')}>All jobs</a>
      </p>
      <LoadState loaded={loaded} />
      {error !== null && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {job !== null && (
        <>
          <div class="section-head">
            <p class="sentence" role="status">
              <strong class={toLook(job)}>{job.status}</strong> {toSentence(job)}
            </p>
            <button
              type="button"
              class="danger"
              disabled={!canWrite.value}
              title={whyReadOnly.value ?? undefined}
              onClick={() => setAsking(true)}
            >
              {isPending(job) ? 'Cancel' : 'Delete'}
            </button>
          </div>
          <JobFacts job={job} />
          {job.result_bytes !== null && <Result job={job} path={`${path}/result`} />}
          <EndDialog job={job} isOpen={isAsking} onConfirm={() => void end()} onClose={() => setAsking(false)} />
        </>
      )}
    </>
  )
}

function toSentence(job: Job): string {
  if (job.status === 'queued') return job.next_run_at_ms === null ? '' : `runs ${formatAgo(job.next_run_at_ms)}`
  if (job.status === 'running') return `since ${formatDate(job.updated_at_ms)}`
  const answer = job.result_status === null ? '' : ` with status ${job.result_status}`
  return `${formatDate(job.finished_at_ms)}${answer}`
}

function JobFacts({ job }: { job: Job }) {
  const key = `${job.runtime}/${job.name}@${job.version ?? 'default'}`
  const facts: [string, preact.ComponentChildren][] = [
    ['Function', <a href={toHref(`functions/${key}`)}>{key}</a>],
    ['Call', <code>{`${job.method} ${job.route}`}</code>],
    ['Made', formatDate(job.created_at_ms)],
    ['Attempt', `${job.attempt} of ${job.max_attempts}`],
    ['Last error', job.last_error ?? NO_DATA],
    ['Answer', job.result_bytes === null ? 'none' : formatBytes(job.result_bytes)],
  ]
  const attempts = toAttemptIds(job, MOST_ATTEMPTS)
  if (attempts.length > 0) {
    const links = attempts.map(id => (
      <a href={toHref(`requests/${id}`)} key={id}>
        {id}
      </a>
    ))
    facts.push(['What it left in the logs', <span class="links">{links}</span>])
  }
  if (job.max_attempts > 1) {
    const growth = job.backoff === 1 ? '' : `, each ${job.backoff} times the one before`
    facts.push(['Between attempts', `${formatMs(job.retry_delay_ms)}${growth}`])
  }
  if (job.idempotency_key !== null) facts.push(['Idempotency key', <code>{job.idempotency_key}</code>])
  if (job.callback !== null) facts.push(['Callback', `${job.callback.url}: ${job.callback.status}`])
  return <Facts class="pairs" facts={facts} />
}

interface ResultRecord {
  readonly status: number
  readonly headers: Readonly<Record<string, string | readonly string[]>>
  readonly latency_ms: number
  readonly body?: string
  readonly body_base64?: string
}

function Result({ job, path }: { job: Job; path: string }) {
  const isShown = (job.result_bytes ?? 0) <= MOST_SHOWN_BYTES
  // An attempt that follows has another answer.
  const loaded = useLoad<ResultRecord>(isShown ? path : null, { on: ['job'] })
  const { data } = loaded
  return (
    <section aria-label="Its answer">
      <div class="section-head">
        <h2>
          Its answer <small>{job.result_truncated ? 'cut at the limit' : ''}</small>
        </h2>
        {!isShown && (
          <a href={toUrl(path, { raw: 1 })} download={job.id}>
            Download
          </a>
        )}
      </div>
      <LoadState loaded={loaded} />
      {!isShown && <p class="quiet">It is too large to be shown here.</p>}
      {data?.headers !== undefined && (
        <>
          <p>
            Status {data.status} in {formatMs(data.latency_ms)}
          </p>
          <BodyPreview contentType={String(data.headers['content-type'] ?? '')} bytes={toBytes(data)} isDone={true} />
          <h2 class="section-head">Headers</h2>
          <HeaderList
            headers={Object.entries(data.headers).flatMap(([name, value]) =>
              [value].flat().map((one): [string, string] => [name, one]),
            )}
          />
        </>
      )}
    </section>
  )
}

function toBytes({ body, body_base64: encoded }: ResultRecord): Uint8Array {
  return encoded === undefined ? new TextEncoder().encode(body ?? '') : fromBase64(encoded)
}

interface EndProps {
  job: Job
  isOpen: boolean
  onConfirm: () => void
  onClose: () => void
}

function EndDialog({ job, isOpen, onConfirm, onClose }: EndProps) {
  const isOver = !isPending(job)
  return (
    <Confirm
      title={isOver ? 'Delete this job?' : 'Cancel this job?'}
      action={isOver ? 'Delete' : 'Cancel it'}
      isOpen={isOpen}
      onConfirm={onConfirm}
      onClose={onClose}
    >
      {isOver ? (
        <p>
          Its record{job.result_bytes === null ? '' : ` and its answer of ${formatBytes(job.result_bytes)}`} are lost.
        </p>
      ) : (
        <p>
          {job.status === 'running'
            ? 'Its function is ended in the midst; what it did is not undone.'
            : 'It will not run.'}
        </p>
      )}
    </Confirm>
  )
}
