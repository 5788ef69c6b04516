/** Light, dark, high contrast, or as the system has it; kept in the browser. Owner: page console/console. */

import { useState } from 'preact/hooks'

const KEY = 'fngw.theme'
const THEMES: readonly (readonly [string, string])[] = [
  ['', 'As the system'],
  ['light', 'Light'],
  ['dark', 'Dark'],
  ['contrast', 'High contrast'],
]

export function ThemeChoice() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? '')
  const choose = (next: string): void => {
    setTheme(next)
    if (next === '') {
      delete document.documentElement.dataset.theme
      localStorage.removeItem(KEY)
    } else {
      document.documentElement.dataset.theme = next
      localStorage.setItem(KEY, next)
    }
    // What is drawn on a canvas has its colours from the theme.
    window.dispatchEvent(new Event('fngw-theme'))
  }
  return (
    <select aria-label="Theme" value={theme} onChange={event => choose(event.currentTarget.value)}>
      {THEMES.map(([value, text]) => (
        <option value={value} key={value}>
          {text}
        </option>
      ))}
    </select>
  )
}
