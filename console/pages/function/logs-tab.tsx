/** Logs and errors of one function, with links to the lines that errors name. Owner: page console/function. */

import { useEffect, useRef } from 'preact/hooks'
import { type FunctionId, type FunctionRecord, toFunctionPage, toTarget } from '../../data/function-records.ts'
import { useLoad } from '../../data/load.ts'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { query, setQuery, toHref } from '../../router.ts'
import { Message } from './message.tsx'

const LINES = 500
const EVERY_MS = 1500

const FILES = [
  ['runtime', 'Output'],
  ['error', 'Errors'],
] as const

export function LogsTab({ id, record }: { id: FunctionId; record: FunctionRecord }) {
  const { runtime, name, version } = toTarget(id)
  const wanted = query.value
  const file = wanted.get('log') === 'error' ? 'error' : 'runtime'
  const isFollowing = wanted.get('follow') !== '0'
  const loaded = useLoad<{ data: readonly string[] }>('/_fn/logs', {
    query: { file, format: 'json', lines: LINES, runtime, fn: name, version },
    every: isFollowing ? EVERY_MS : 0,
  })
  const lines = loaded.data?.data ?? []
  const box = useRef<HTMLDivElement>(null)
  const last = lines.at(-1)
  useEffect(() => {
    if (isFollowing) box.current?.scrollTo(0, box.current.scrollHeight)
  }, [isFollowing, last, lines.length])
  return (
    <>
      <LoadState loaded={loaded} />
      <div class="bar-of-tab">
        <nav class="choice" aria-label="Log">
          {FILES.map(([value, title]) => (
            <a
              key={value}
              href={toHref(toFunctionPage(id), { tab: 'logs', log: value === 'runtime' ? null : value })}
              aria-current={file === value ? 'true' : undefined}
            >
              {title}
            </a>
          ))}
        </nav>
        <label class="check">
          <input
            type="checkbox"
            checked={isFollowing}
            onChange={event => setQuery({ follow: event.currentTarget.checked ? null : '0' })}
          />{' '}
          Follow
        </label>
        <a href={toHref('logs', { runtime, fn: name })}>All logs</a>
      </div>
      {loaded.data !== null && lines.length === 0 ? (
        <Empty title="No lines">
          <p>
            {file === 'error' ? 'The log has no errors of this function.' : 'Output to stdout and stderr appears here.'}
          </p>
        </Empty>
      ) : (
        // A box that scrolls has to be reached by keys.
        <section
          class="lines mono"
          ref={box}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: see above
          tabIndex={0}
          aria-label="Lines of the log"
        >
          {lines.map((line, index) => (
            // Lines have no name of their own.
            <div key={index}>
              <Message text={line} id={id} file={record.file} />
            </div>
          ))}
        </section>
      )}
    </>
  )
}
