/** Conflicts and warnings, each with its file, the rule and how to mend it. Owner: page console/overview. */

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { formatNumberOf } from '../../format.ts'
import type { toProblems } from './problems.ts'

/** Shown at first; a button shows the others. */
const SHOWN_AT_FIRST = 5

type Problems = ReturnType<typeof toProblems>

export function ProblemList({ problems: { conflicts, warnings } }: { problems: Problems }) {
  const isLong = useSignal(false)
  if (conflicts.length + warnings.length === 0) return null
  const items = [
    ...conflicts.map(conflict => <ConflictItem key={`conflict ${conflict.route}`} conflict={conflict} />),
    ...warnings.map((warning, index) => <WarningItem key={`${index} ${warning.path}`} warning={warning} />),
  ]
  const hidden = items.length - SHOWN_AT_FIRST
  return (
    <section class="problem-list" aria-label="Warnings and conflicts">
      <ul>{isLong.value ? items : items.slice(0, SHOWN_AT_FIRST)}</ul>
      {hidden > 0 && (
        <button
          type="button"
          aria-expanded={isLong.value}
          onClick={() => {
            isLong.value = !isLong.value
          }}
        >
          {isLong.value ? 'Show fewer' : `Show ${formatNumberOf(hidden, 'other')}`}
        </button>
      )}
    </section>
  )
}

interface ItemProps {
  code: string
  hint: string | null
  text: ComponentChildren
  children?: ComponentChildren
}

function Item({ code, hint, text, children }: ItemProps) {
  return (
    <li>
      <div>
        {text} <small class="mono">{code}</small>
      </div>
      {children}
      {hint !== null && hint !== '' && <p class="quiet">{hint}</p>}
    </li>
  )
}

function WarningItem({ warning: { code, path, href, message, hint } }: { warning: Problems['warnings'][number] }) {
  return (
    <Item
      code={code}
      hint={hint}
      text={
        <>
          {path !== '' && (href === null ? <span class="mono">{path}</span> : <a href={href}>{path}</a>)} {message}
        </>
      }
    />
  )
}

function ConflictItem({ conflict }: { conflict: Problems['conflicts'][number] }) {
  const { route, methods, hint, claims } = conflict
  return (
    <Item
      code="ROUTE_CONFLICT"
      hint={hint}
      text={
        <>
          <strong>
            {methods} <span class="mono">{route}</span>
          </strong>{' '}
          returns 409: {formatNumberOf(claims.length, 'function')} claim it with the same priority.
        </>
      }
    >
      <ul>
        {claims.map(({ key, href, path, source }) => (
          <li key={`${key} ${path}`}>
            <a href={href}>{key}</a> {source}, <span class="mono">{path}</span>
          </li>
        ))}
      </ul>
    </Item>
  )
}
