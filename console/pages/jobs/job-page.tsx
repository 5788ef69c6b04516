/** One job: its state, attempts, input and result; cancel, delete and run again. Owner: page console/jobs. */

import { useState } from 'preact/hooks'
import { type ApiError, send, toUrl } from '../../data/api.ts'
import { isPending, type Job, type JobAttempt } from '../../data/jobs.ts'
import { useLoad } from '../../data/load.ts'
import { formatAgo, formatBytes, formatDate, formatMs, NO_DATA } from '../../format.ts'
import { BodyPreview, HeaderList } from '../../parts/body-preview.tsx'
import { Confirm } from '../../parts/dialog.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { TextBox } from '../../parts/text-box.tsx'
import { fromBase64 } from '../../preview.ts'
import { navigate, toHref } from '../../router.ts'
import { canWrite, whyReadOnly } from '../../session.ts'
import { toLook } from './job-columns.tsx'
import { Facts } from '../../parts/facts.tsx'

/** Bytes of a result that are shown; a larger one is a download. */
const MOST_SHOWN_BYTES = 1024 * 1024

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
            {!isPending(job) && <RunAgain path={path} />}
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
          <Attempts attempts={job.attempts} />
          <Input path={path} canRunAgain={!isPending(job)} />
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
  const status = job.result_status === null ? '' : ` with status ${job.result_status}`
  return `${formatDate(job.finished_at_ms)}${status}`
}

function JobFacts({ job }: { job: Job }) {
  const key = `${job.runtime}/${job.name}@${job.version ?? 'default'}`
  const facts: [string, preact.ComponentChildren][] = [
    ['Function', <a href={toHref(`functions/${key}`)}>{key}</a>],
    ['Call', <code>{`${job.method} ${job.route}`}</code>],
    ['Created', formatDate(job.created_at_ms)],
    ['Attempt', `${job.attempt} of ${job.max_attempts}`],
    ['Last error', job.last_error ?? NO_DATA],
    ['Result', job.result_bytes === null ? 'none' : formatBytes(job.result_bytes)],
  ]
  if (job.max_attempts > 1) {
    const growth = job.backoff === 1 ? '' : `, each ${job.backoff} times the previous one`
    facts.push(['Retry delay', `${formatMs(job.retry_delay_ms)}${growth}`])
  }
  if (job.idempotency_key !== null) facts.push(['Idempotency key', <code>{job.idempotency_key}</code>])
  if (job.callback !== null) facts.push(['Callback', `${job.callback.url}: ${job.callback.status}`])
  return <Facts class="pairs" facts={facts} />
}

/** The runs one below the other: how long each took, how it ended, and the way to its log lines. */
function Attempts({ attempts }: { attempts: readonly JobAttempt[] }) {
  if (attempts.length === 0) return null
  return (
    <section aria-label="Attempts">
      <h2>Attempts</h2>
      <ol class="attempts">
        {attempts.map(({ request_id: id, started_at_ms: start, ended_at_ms: end, status, error }, index) => (
          <li key={id} class={error === null ? undefined : 'failing'}>
            <a href={toHref(`requests/${id}`)}>Attempt {index + 1}</a>
            <time dateTime={new Date(start).toISOString()}>{formatDate(start)}</time>
            <span>{end === null ? 'running' : formatMs(end - start)}</span>
            <span>{status === null ? '' : `HTTP ${status}`}</span>
            <pre class={error === null ? undefined : 'error'}>{error ?? (end === null ? '' : 'ok')}</pre>
          </li>
        ))}
      </ol>
    </section>
  )
}

/** Creates a job with the same input, or with an edited one, and opens it. */
function useRetry(path: string): { error: string | null; retry: (changes: object) => Promise<void> } {
  const [error, setError] = useState<string | null>(null)
  const retry = async (changes: object): Promise<void> => {
    setError(null)
    try {
      const { id } = await send<Job>('POST', `${path}/retry`, changes)
      navigate(toHref('jobs', { id }))
    } catch (failure) {
      setError((failure as ApiError).message)
    }
  }
  return { error, retry }
}

function RunAgain({ path }: { path: string }) {
  const { error, retry } = useRetry(path)
  return (
    <>
      {error !== null && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      <button
        type="button"
        disabled={!canWrite.value}
        title={whyReadOnly.value ?? 'Creates a job with the same input'}
        onClick={() => void retry({})}
      >
        Run again
      </button>
    </>
  )
}

/** Fields that a person edits; the function of a job stays. */
const EDITED = ['method', 'route', 'params', 'query', 'headers', 'body', 'body_base64', 'context'] as const

type InputRecord = Readonly<Record<string, unknown>> & { body_bytes: number; body_omitted: boolean }

function Input({ path, canRunAgain }: { path: string; canRunAgain: boolean }) {
  const { data } = useLoad<InputRecord>(`${path}/input`)
  const [text, setText] = useState<string | null>(null)
  const { error, retry } = useRetry(path)
  const [problem, setProblem] = useState<string | null>(null)
  if (data === null) return null
  const shown = JSON.stringify(
    Object.fromEntries(EDITED.flatMap(name => (name in data ? [[name, data[name]]] : []))),
    null,
    2,
  )
  const run = (): void => {
    try {
      const changes: unknown = JSON.parse(text ?? shown)
      setProblem(null)
      void retry(changes as object)
    } catch (failure) {
      setProblem(`The input is not JSON: ${(failure as Error).message}`)
    }
  }
  return (
    <section aria-label="Input">
      <div class="section-head">
        <h2>
          Input <small>{data.body_omitted ? `the body of ${formatBytes(data.body_bytes)} is not shown` : ''}</small>
        </h2>
        {canRunAgain && text === null && (
          <button
            type="button"
            disabled={!canWrite.value}
            title={whyReadOnly.value ?? undefined}
            onClick={() => setText(shown)}
          >
            Edit and run again
          </button>
        )}
      </div>
      {text === null ? (
        <TextBox label="Fields" text={shown} />
      ) : (
        <>
          <textarea
            aria-label="Input as JSON"
            class="mono"
            rows={Math.min(24, text.split('\n').length + 1)}
            spellcheck={false}
            value={text}
            onInput={event => setText(event.currentTarget.value)}
          />
          <p class="error" role="alert">
            {problem ?? error}
          </p>
          <div class="tools">
            <button type="button" class="primary" onClick={run}>
              Run with this input
            </button>
            <button
              type="button"
              onClick={() => {
                setText(null)
                setProblem(null)
              }}
            >
              Discard
            </button>
          </div>
        </>
      )}
    </section>
  )
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
  // The next attempt has another result.
  const loaded = useLoad<ResultRecord>(isShown ? path : null, { on: ['job'] })
  const { data } = loaded
  return (
    <section aria-label="Result">
      <div class="section-head">
        <h2>
          Result <small>{job.result_truncated ? 'cut at the limit' : ''}</small>
        </h2>
        {!isShown && (
          <a href={toUrl(path, { raw: 1 })} download={job.id}>
            Download
          </a>
        )}
      </div>
      <LoadState loaded={loaded} />
      {!isShown && <p class="quiet">The result is too large to show here.</p>}
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
      action={isOver ? 'Delete' : 'Cancel job'}
      isOpen={isOpen}
      onConfirm={onConfirm}
      onClose={onClose}
    >
      {isOver ? (
        <p>
          This deletes its record{job.result_bytes === null ? '' : ` and its result (${formatBytes(job.result_bytes)})`}
          .
        </p>
      ) : (
        <p>
          {job.status === 'running'
            ? 'This stops the running handler. Side effects are not undone.'
            : 'The job will not run.'}
        </p>
      )}
    </Confirm>
  )
}
