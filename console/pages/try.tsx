/** Try: a request is built, sent, and its answer shown as it comes. Owner: page console/try. */

import { useEffect, useRef, useState } from 'preact/hooks'
import { type ApiError, send } from '../data/api.ts'
import { useLoad } from '../data/load.ts'
import type { Catalog } from '../data/records.ts'
import { Empty } from '../parts/empty.tsx'
import { Page } from '../parts/page.tsx'
import { navigate, query, setQuery, toHref } from '../router.ts'
import { canWrite, whyReadOnly } from '../session.ts'
import { Answer } from './try/answer.tsx'
import { Builder } from './try/builder.tsx'
import { CopyAs } from './try/copy.tsx'
import { loadHistory, remember } from './try/history.ts'
import { usePublicOrigin } from './try/public-origin.ts'
import { Tried } from './try/tried.tsx'
import { NO_ANSWER, sendRequest, toCall, type TryAnswer } from './try/send.ts'
import { findProblem, fromFields, toFields, type TryRequest } from './try/try-request.ts'

const NAMES = ['method', 'path', 'headers', 'as', 'body'] as const

/** The request as the address has it; files and secrets stay only as long as the page. */
function useRequest(): [TryRequest, (change: Partial<TryRequest>) => void] {
  const fields = query.value
  const asked = NAMES.map(name => fields.get(name) ?? '').join('\n\n')
  const written = useRef(asked)
  const [request, setRequest] = useState(() => fromFields(fields))
  useEffect(() => {
    // A link of the history, or the back button.
    if (asked === written.current) return
    written.current = asked
    setRequest(fromFields(query.peek()))
  }, [asked])
  const change = (part: Partial<TryRequest>): void => {
    const next = { ...request, ...part }
    const kept = toFields(next)
    written.current = NAMES.map(name => kept[name] ?? '').join('\n\n')
    setRequest(next)
    setQuery(kept)
  }
  return [request, change]
}

export function TryPage() {
  const { data: catalog } = useLoad<Catalog>('/_fn/catalog', { on: ['reload'] })
  const [request, change] = useRequest()
  const { origin } = usePublicOrigin()
  const [answer, setAnswer] = useState<TryAnswer | null>(null)
  const [error, setError] = useState<string | null>(null)
  const running = useRef<AbortController | null>(null)
  useEffect(() => {
    loadHistory().catch((failure: ApiError) => setError(failure.message))
    return () => running.current?.abort()
  }, [])
  const isBusy = answer !== null && !answer.isDone
  const problem = findProblem(request)
  const run = async (): Promise<void> => {
    if (problem !== null) return
    running.current?.abort()
    const stop = new AbortController()
    running.current = stop
    setError(null)
    setAnswer(NO_ANSWER)
    const last = await sendRequest(request, stop.signal, setAnswer)
    if (stop.signal.aborted) return
    const { status, timing } = last
    const entry = { at: Date.now(), fields: toFields(request), status, total_ms: timing?.total_ms ?? null }
    await remember(entry).catch((failure: ApiError) => setError(`The history is not saved: ${failure.message}`))
  }
  const stop = (): void => {
    running.current?.abort()
    setAnswer(answer === null ? null : { ...answer, isDone: true, error: 'stopped' })
  }
  const enqueue = async (): Promise<void> => {
    setError(null)
    try {
      const call = await toCall(request)
      if (call === null) throw new Error('No function serves this request, so it cannot run as a job.')
      const { id } = await send<{ id: string }>('POST', '/_fn/jobs', call)
      navigate(toHref('jobs', { id }))
    } catch (failure) {
      setError((failure as Error).message)
    }
  }
  return (
    <Page title="Try it" question="What does it return?">
      <div class="try">
        <form
          class="try-request"
          aria-label="Request"
          onSubmit={event => {
            event.preventDefault()
            void run()
          }}
          onKeyDown={event => {
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void run()
          }}
        >
          <Builder request={request} routes={catalog?.mapped_routes ?? {}} onChange={change} />
          <p class="error" role="alert">
            {error ?? problem}
          </p>
          <div class="tools">
            <button type="submit" class="primary" disabled={problem !== null}>
              Send <kbd>Ctrl ↵</kbd>
            </button>
            {isBusy && (
              <button type="button" onClick={stop}>
                Stop
              </button>
            )}
            <button
              type="button"
              disabled={!canWrite.value || problem !== null}
              title={whyReadOnly.value ?? 'Runs the request in the background and stores its result'}
              onClick={() => void enqueue()}
            >
              Run as a job
            </button>
          </div>
          {problem === null && <CopyAs request={request} origin={origin} />}
        </form>
        {answer === null ? (
          <Empty title="The response appears here">
            <p>
              The call runs as one over HTTP does, with the function's own limits. Its output and where the time went
              are shown beside the answer.
            </p>
          </Empty>
        ) : (
          <Answer answer={answer} />
        )}
      </div>
      <Tried onError={setError} />
    </Page>
  )
}
