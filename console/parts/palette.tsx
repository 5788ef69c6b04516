/** Ctrl+K: pages and functions by a few letters of their names. Owner: page console/console. */

import { useState } from 'preact/hooks'
import { toMatches, type Choice } from '../choices.ts'
import { toShownName } from '../data/function-records.ts'
import { usePages } from '../data/fleet.ts'
import { useLoad } from '../data/load.ts'
import type { Catalog } from '../data/records.ts'
import { isPaletteOpen } from '../keys.ts'
import { navigate, toHref } from '../router.ts'
import { Dialog } from './dialog.tsx'

/** Rows that are shown; more letters find the others. */
const MOST_ROWS = 12

export function Palette() {
  const close = (): void => {
    isPaletteOpen.value = false
  }
  return (
    <Dialog title="Find" isOpen={isPaletteOpen.value} onClose={close} class="palette">
      <Finder onDone={close} />
    </Dialog>
  )
}

function toChoices(catalog: Catalog | null, shown: ReturnType<typeof usePages>): Choice[] {
  const pages = shown.map(({ path, title }) => ({ text: title, kind: 'page', href: toHref(path) }))
  const functions = Object.entries(catalog?.runtimes ?? {}).flatMap(([runtime, { functions: list }]) =>
    list.flatMap(({ name, has_default: hasDefault, versions }) =>
      [...(hasDefault ? ['default'] : []), ...versions].map(version => ({
        text: toShownName({ name, version }),
        kind: runtime,
        href: toHref(`functions/${runtime}/${name}@${version}`),
      })),
    ),
  )
  return [...pages, ...functions]
}

function Finder({ onDone }: { onDone: () => void }) {
  const { data } = useLoad<Catalog>('/_fn/catalog', { on: ['reload'] })
  const pages = usePages()
  const [text, setText] = useState('')
  const [index, setIndex] = useState(0)
  const rows = toMatches(toChoices(data, pages), text, MOST_ROWS)
  const chosen = Math.min(index, rows.length - 1)
  const go = (choice: Choice | undefined): void => {
    if (choice === undefined) return
    onDone()
    navigate(choice.href)
  }
  return (
    <>
      <input
        type="search"
        placeholder="Page or function"
        aria-label="Page or function"
        // Its suggestions are the rows below, not a list of the browser.
        // biome-ignore lint/a11y/noRedundantRoles: a search field alone is none
        role="combobox"
        list={undefined}
        aria-expanded="true"
        aria-controls="palette-rows"
        aria-activedescendant={rows.length > 0 ? `palette-${chosen}` : undefined}
        value={text}
        autofocus
        onInput={event => {
          setText(event.currentTarget.value)
          setIndex(0)
        }}
        onKeyDown={event => {
          const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
          if (step !== 0 && rows.length > 0) {
            event.preventDefault()
            setIndex((chosen + step + rows.length) % rows.length)
          } else if (event.key === 'Enter') {
            event.preventDefault()
            go(rows[chosen])
          }
        }}
      />
      <div id="palette-rows" role="listbox" aria-label="Found" class="rows">
        {rows.map((choice, row) => (
          // The field above has the focus and takes the keys.
          // biome-ignore lint/a11y/useKeyWithClickEvents: see above
          // biome-ignore lint/a11y/useFocusableInteractive: see above
          <div
            key={choice.href}
            id={`palette-${row}`}
            role="option"
            aria-selected={row === chosen}
            onClick={() => go(choice)}
          >
            <span>{choice.text}</span> <small>{choice.kind}</small>
          </div>
        ))}
      </div>
      {rows.length === 0 && <p>Nothing matches.</p>}
    </>
  )
}
