/** The user of the console and their permissions: `GET /_fn/ui-state`. Owner: page console/console. */

import { computed, signal } from '@preact/signals'
import { ApiError, get, isLoginWanted, send } from './data/api.ts'
import { startEvents, stopEvents } from './data/events.ts'
import { forgetAll, refreshAll } from './data/load.ts'

export interface UiState {
  readonly ui_enabled: boolean
  readonly api_enabled: boolean
  readonly write_enabled: boolean
  readonly local_only: boolean
  readonly login_api_enabled: boolean
  readonly login_enabled: boolean
  readonly current_user: string | null
  readonly current_rights?: 'admin' | 'login' | null
  /** Id of the gateway in a fleet: the switches are those of this gateway. */
  readonly gateway?: string
  /** After a change. */
  readonly warnings?: readonly string[]
}

export const uiState = signal<UiState | null>(null)
/** Why nothing can be shown at all; null while it can. */
export const refusal = signal<ApiError | null>(null)

/** True when edits will be taken. */
export const canWrite = computed(() => {
  const state = uiState.value
  return state !== null && (state.write_enabled || state.current_user === 'admin')
})

/** Why edits will not be taken, for a control that is off; null when they will. */
export const whyReadOnly = computed(() =>
  canWrite.value
    ? null
    : 'Read only. Start the gateway with FN_CONSOLE_WRITE_ENABLED=1, or log in with the admin token, to make changes.',
)

export async function loadSession(): Promise<void> {
  try {
    uiState.value = await get<UiState>('/_fn/ui-state')
    refusal.value = null
    isLoginWanted.value = false
    startEvents()
  } catch (error) {
    if (!(error instanceof ApiError)) throw error
    // What was shown stays while the gateway is away; the bar above it says so.
    if (error.status !== 0 || uiState.value === null) refusal.value = error
  }
}

/**
 * @param credentials - a token, or a name with its password; not kept
 * @throws ApiError
 */
export async function logIn(credentials: { token: string } | { username: string; password: string }): Promise<void> {
  await send('POST', '/_fn/login', credentials)
  await loadSession()
  refreshAll()
}

/**
 * @param everywhere - in all other browsers too
 * @throws ApiError
 */
export async function logOut(everywhere: boolean): Promise<void> {
  await send('POST', '/_fn/logout', undefined, everywhere ? { everywhere: 1 } : {})
  stopEvents()
  forgetAll()
  uiState.value = null
  await loadSession()
  refreshAll()
}
