/** The flags of access that hold now: the settings, and what `PUT /_fn/ui-state` put over them. Owner: §5.1. */

import type { Settings } from '../config/settings.ts'
import { type AccessFlags, needsLogin } from './access.ts'

type Switch = 'uiEnabled' | 'consoleApiEnabled' | 'consoleWriteEnabled' | 'consoleLocalOnly' | 'consoleLoginApi'

/** Names of the switches in JSON. */
export const SWITCHES: Readonly<Record<string, Switch>> = {
  ui_enabled: 'uiEnabled',
  api_enabled: 'consoleApiEnabled',
  write_enabled: 'consoleWriteEnabled',
  local_only: 'consoleLocalOnly',
  login_api_enabled: 'consoleLoginApi',
}

export type Switches = Readonly<Record<Switch, boolean>>

/** Lives as long as the gateway: a start begins with the settings again. */
export class AccessState {
  readonly #settings: Settings
  #flags: AccessFlags
  /** Told after every change of the switches. */
  onChange: (() => void) | null = null

  constructor(settings: Settings) {
    this.#settings = settings
    this.#flags = { ...settings, ...this.preview(null), apiOffByState: false }
  }

  get flags(): AccessFlags {
    return this.#flags
  }

  /** True when there is something to log in with, and for. */
  get canLogIn(): boolean {
    const { adminToken, consoleLoginPasswordHash } = this.#settings
    return this.#flags.uiEnabled && (adminToken !== null || consoleLoginPasswordHash !== null)
  }

  /** The switches after some changes; null: as the settings say. Nothing is changed. */
  preview(changes: Partial<Switches> | null): Switches {
    const switches = toSwitches(changes === null ? this.#settings : { ...this.#flags, ...changes })
    return { ...switches, consoleLoginApi: needsLogin({ ...this.#settings, ...switches }) }
  }

  apply(changes: Partial<Switches> | null): void {
    const switches = this.preview(changes)
    const apiOffByState = this.#settings.consoleApiEnabled && !switches.consoleApiEnabled
    this.#flags = { ...this.#settings, ...switches, apiOffByState }
    this.onChange?.()
  }

  /** True when the switches let somebody do what the flags of now do not: only an administrator may put them so. */
  isLoosening(next: Switches): boolean {
    const now = this.#flags
    return (
      (now.consoleLocalOnly && !next.consoleLocalOnly) ||
      (now.consoleLoginApi && !next.consoleLoginApi) ||
      (!now.consoleWriteEnabled && next.consoleWriteEnabled)
    )
  }
}

function toSwitches(flags: Switches): Switches {
  const { uiEnabled, consoleApiEnabled, consoleWriteEnabled, consoleLocalOnly, consoleLoginApi } = flags
  return { uiEnabled, consoleApiEnabled, consoleWriteEnabled, consoleLocalOnly, consoleLoginApi }
}
