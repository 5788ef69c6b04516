/** The menu at the side: pages, theme, who is logged in. Owner: page console/console. */

import { useSignal } from '@preact/signals'
import { usePages } from '../data/fleet.ts'
import { toHref } from '../router.ts'
import { logOut, uiState } from '../session.ts'
import { isPaletteOpen } from '../keys.ts'
import { ThemeChoice } from './theme-choice.tsx'

export function Menu({ current }: { current: string }) {
  const isOpen = useSignal(false)
  return (
    <nav class={isOpen.value ? 'menu open' : 'menu'} aria-label="Pages">
      <div class="menu-head">
        <a class="brand" href={toHref('')}>
          fngw
        </a>
        <button
          type="button"
          class="menu-button"
          aria-expanded={isOpen.value}
          onClick={() => {
            isOpen.value = !isOpen.value
          }}
        >
          Menu
        </button>
      </div>
      <ul>
        {usePages().map(({ path, title, key }) => (
          <li key={path}>
            <a
              href={toHref(path)}
              aria-current={path === current ? 'page' : undefined}
              title={`g ${key}`}
              onClick={() => {
                isOpen.value = false
              }}
            >
              {title}
            </a>
          </li>
        ))}
      </ul>
      <div class="menu-foot">
        <button
          type="button"
          onClick={() => {
            isPaletteOpen.value = true
          }}
        >
          Find <kbd>Ctrl K</kbd>
        </button>
        <ThemeChoice />
        <User />
      </div>
    </nav>
  )
}

function User() {
  const state = uiState.value
  if (state === null) return null
  if (state.current_user !== null) {
    return (
      <>
        <button type="button" onClick={() => void logOut(false)}>
          Log out {state.current_user}
        </button>
        <button type="button" class="plain" title="Log out in all browsers" onClick={() => void logOut(true)}>
          Log out everywhere
        </button>
      </>
    )
  }
  return state.login_enabled ? <a href={toHref('login')}>Log in</a> : null
}
