/** Light, dark, high contrast, or as the system has it; kept in the browser. Owner: page console/console. */

import { useState } from 'preact/hooks'
import { chooseTheme, chosenTheme } from '../theme.ts'

const THEMES: readonly (readonly [string, string])[] = [
  ['', 'System theme'],
  ['light', 'Light'],
  ['dark', 'Dark'],
  ['contrast', 'High contrast'],
]

export function ThemeChoice() {
  const [theme, setTheme] = useState(chosenTheme)
  const choose = (next: string): void => {
    setTheme(next)
    chooseTheme(next)
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
