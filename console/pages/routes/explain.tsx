/** The route that serves a request, the candidates that lost and by which rule, and files with similar names. Owner: page console/routes. */

import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useLoad } from '../../data/load.ts'
import type { Explanation, IgnoredPath, Warning } from '../../data/records.ts'
import { LoadState } from '../../parts/load-state.tsx'
import { query, setQuery, toHref } from '../../router.ts'
import { toKey, toSentence } from './route-rows.ts'
import { ChoiceField } from '../../parts/choice-field.tsx'

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']
/** Milliseconds without a key before the gateway is asked. */
const PAUSE_MS = 150

export function Explain() {
  const method = query.value.get('method') ?? 'GET'
  const path = query.value.get('path') ?? ''
  const host = query.value.get('host') ?? ''
  const [asked, setAsked] = useState({ method, path, host })
  useEffect(() => {
    const timer = setTimeout(() => setAsked({ method, path, host }), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [method, path, host])
  const isPath = asked.path.startsWith('/')
  const loaded = useLoad<Explanation>(isPath ? '/_fn/explain' : null, { query: asked, on: ['reload'] })
  return (
    <section class="explain" aria-label="Route lookup">
      <div class="try-line explain-line">
        <ChoiceField label="Method" value={method} choices={METHODS} onChange={value => setQuery({ method: value })} />
        <input
          aria-label="Path"
          class="mono"
          placeholder="/users/7"
          spellcheck={false}
          autocomplete="off"
          value={path}
          onInput={event => setQuery({ path: event.currentTarget.value })}
        />
        <input
          aria-label="Host"
          class="mono"
          placeholder="any host"
          spellcheck={false}
          value={host}
          onInput={event => setQuery({ host: event.currentTarget.value })}
        />
      </div>
      {path !== '' && !path.startsWith('/') && <p class="quiet">The path must start with /.</p>}
      <LoadState loaded={loaded} />
      <div role="status">{isPath && loaded.data !== null && <Found explanation={loaded.data} />}</div>
    </section>
  )
}

function Found({ explanation }: { explanation: Explanation }) {
  const { method, path, winner, losers, ignored, warnings } = explanation
  return (
    <>
      <p class={winner === null && explanation.beside === null ? 'sentence warning' : 'sentence'}>
        {toSentence(explanation)}
      </p>
      <p class="links">
        {winner !== null && <a href={toHref(`functions/${toKey(winner)}`)}>Open the function</a>}
        <a href={toHref('try', { method, path })}>Try it</a>
      </p>
      {losers.length > 0 && (
        <Reasons title="Other claims">
          {losers.map(loser => (
            <Reason key={`${toKey(loser)} ${loser.pattern} ${loser.origin}`}>
              <a href={toHref(`functions/${toKey(loser)}`)}>{loser.file}</a> on <code>{loser.pattern}</code>:{' '}
              {loser.reason}
              {loser.by === null ? '' : ` (served by ${loser.by})`}. <small>rule {loser.rule}</small>
            </Reason>
          ))}
        </Reasons>
      )}
      <Ignored ignored={ignored} title="Similar files that are not used" />
      <Warnings warnings={warnings} />
    </>
  )
}

export function Ignored({ ignored, title }: { ignored: readonly IgnoredPath[]; title: string }) {
  if (ignored.length === 0) return null
  return (
    <Reasons title={title}>
      {ignored.map(({ path, reason }) => (
        <Reason key={`${path} ${reason}`}>
          <code>{path}</code>: {reason}
        </Reason>
      ))}
    </Reasons>
  )
}

export function Warnings({ warnings }: { warnings: readonly Warning[] }) {
  if (warnings.length === 0) return null
  return (
    <Reasons title="Warnings">
      {warnings.map(({ code, path, message, hint }) => (
        <Reason key={`${code} ${path} ${message}`}>
          <code>{path}</code>: {message}
          {hint === undefined ? '' : ` – ${hint}`} <small>{code}</small>
        </Reason>
      ))}
    </Reasons>
  )
}

function Reasons({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <>
      <h2>{title}</h2>
      <ul class="reasons">{children}</ul>
    </>
  )
}

function Reason({ children }: { children: ComponentChildren }) {
  return <li>{children}</li>
}
