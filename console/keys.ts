/** Keys that work on every page: `/`, `g` and a letter, Ctrl+K, `?`. Owner: page console/console. */

import { signal } from '@preact/signals'
import { navigate, toHref } from './router.ts'
import { PAGES } from './pages.ts'

export const isPaletteOpen = signal(false)
export const isHelpOpen = signal(false)

/** Milliseconds in which the letter after `g` has to come. */
const CHORD_MS = 1500

let chordUntil = 0

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  return target.isContentEditable || /^(?:input|textarea|select)$/i.test(target.tagName) || target.shadowRoot !== null
}

export function startKeys(): void {
  document.addEventListener('keydown', event => {
    if (event.defaultPrevented) return
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault()
      isPaletteOpen.value = !isPaletteOpen.value
      return
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
    if (document.querySelector('dialog[open]') !== null) return
    if (takeKey(event.key)) event.preventDefault()
  })
}

function takeKey(key: string): boolean {
  const now = performance.now()
  if (now < chordUntil) {
    chordUntil = 0
    const page = PAGES.find(one => one.key === key)
    if (page === undefined) return false
    navigate(toHref(page.path))
    return true
  }
  if (key === 'g') chordUntil = now + CHORD_MS
  else if (key === '/') {
    const field = document.querySelector<HTMLElement>('main [data-search]')
    if (field === null) isPaletteOpen.value = true
    else field.focus()
    return true
  } else if (key === '?') {
    isHelpOpen.value = true
    return true
  }
  return false
}
