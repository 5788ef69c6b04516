/** The theme of the page: as chosen, else as the system has it. Owner: page console/console. */

const KEY = 'fngw.theme'
const CHOICES: readonly string[] = ['light', 'dark', 'contrast']

/** The choice made in this browser; '' for the system theme. */
export function chosenTheme(): string {
  const theme = localStorage.getItem(KEY) ?? ''
  return CHOICES.includes(theme) ? theme : ''
}

/** @param theme - '' for as the system has it */
export function chooseTheme(theme: string): void {
  if (theme === '') localStorage.removeItem(KEY)
  else localStorage.setItem(KEY, theme)
  showTheme()
}

/** Puts the theme on the page, where the style sheet looks for it. */
function showTheme(): void {
  const chosen = chosenTheme()
  const isDark = window.matchMedia('(prefers-color-scheme: dark)').matches
  const root = document.documentElement
  root.dataset.theme = chosen === '' ? (isDark ? 'dark' : 'light') : chosen
  root.toggleAttribute('data-chosen', chosen !== '')
  // What is drawn on a canvas has its colours from the theme.
  window.dispatchEvent(new Event('fngw-theme'))
}

/** Shows the theme, and follows the system from then on. */
export function startTheme(): void {
  showTheme()
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', showTheme)
}
