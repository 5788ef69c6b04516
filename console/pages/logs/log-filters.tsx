/** Filters of the logs: fields in the address, and chips of those that are set. Owner: page console/logs. */

import { useEffect, useState } from 'preact/hooks'
import { RUNTIMES } from '../../data/function-records.ts'
import { Chips } from '../../parts/chips.tsx'
import { query, setQuery } from '../../router.ts'
import { LEVELS } from './log-rows.ts'
import { ChoiceField } from '../../parts/choice-field.tsx'
import { SearchField } from '../../parts/search-field.tsx'

const FILES = [
  ['', 'All logs'],
  ['access', 'Requests'],
  ['runtime', 'Function output'],
  ['error', 'Errors and warnings'],
] as const
/** Milliseconds without a key before another function is asked for. */
const PAUSE_MS = 300

const field = (name: string): string => query.value.get(name) ?? ''

/** Filters as the address has them. */
export function currentFilters() {
  const [file, runtime, fn] = [field('file') || 'all', field('runtime'), field('fn')]
  return { feed: { file, runtime, fn }, level: field('level'), search: field('q'), hasOwn: field('own') === '1' }
}

export function LogFilters() {
  return (
    <>
      <div class="log-filters">
        <select
          aria-label="Log"
          value={field('file')}
          onChange={event => setQuery({ file: event.currentTarget.value })}
        >
          {FILES.map(([value, text]) => (
            <option value={value} key={value}>
              {text}
            </option>
          ))}
        </select>
        <ChoiceField
          label="Runtime"
          value={field('runtime')}
          choices={RUNTIMES}
          all="All runtimes"
          onChange={value => setQuery({ runtime: value })}
        />
        <select
          aria-label="Level"
          value={field('level')}
          onChange={event => setQuery({ level: event.currentTarget.value })}
        >
          <option value="">All levels</option>
          {LEVELS.slice(1).map(name => (
            <option value={name} key={name}>
              {name === 'warn' ? 'warn and error' : name}
            </option>
          ))}
        </select>
        <FunctionField />
        <SearchField label="Search the lines" placeholder="Search" value={field('q')} />
        <label>
          <input
            type="checkbox"
            checked={field('own') === '1'}
            onChange={event => setQuery({ own: event.currentTarget.checked ? '1' : null })}
          />{' '}
          console requests
        </label>
      </div>
      <Chips chips={toChips()} onRemove={name => setQuery({ [name]: null })} />
    </>
  )
}

function FunctionField() {
  const asked = field('fn')
  const [text, setText] = useState(asked)
  useEffect(() => setText(asked), [asked])
  useEffect(() => {
    if (text === asked) return
    const timer = setTimeout(() => setQuery({ fn: text.trim() }), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [text, asked])
  return (
    <input
      aria-label="Function"
      placeholder="Function"
      spellcheck={false}
      value={text}
      onInput={event => setText(event.currentTarget.value)}
    />
  )
}

function toChips(): { name: string; text: string }[] {
  const names = { file: 'log', runtime: 'runtime', level: 'level', fn: 'function', q: 'text' }
  const chips = Object.entries(names).map(([name, title]) => ({ name, text: `${title}: ${field(name)}` }))
  return [...chips.filter(({ name }) => field(name) !== ''), ...(field('own') === '1' ? [OWN_CHIP] : [])]
}

const OWN_CHIP = { name: 'own', text: 'with console requests' }
