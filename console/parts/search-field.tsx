/** The search of a page: what is typed stands in the address (`q`), and `/` leads to it. Owner: page console/console. */

import { setQuery } from '../router.ts'

interface SearchFieldProps {
  label: string
  value: string
  /** Shown while it is empty; the label by default. */
  placeholder?: string
}

export function SearchField({ label, value, placeholder = label }: SearchFieldProps) {
  return (
    <input
      type="search"
      data-search
      aria-label={label}
      placeholder={placeholder}
      value={value}
      onInput={event => setQuery({ q: event.currentTarget.value })}
    />
  )
}
