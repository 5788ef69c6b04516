/** The switches of the console, and what is lost when one is turned. Owner: page console/settings. */

export type SwitchName = 'ui_enabled' | 'api_enabled' | 'write_enabled' | 'local_only' | 'login_api_enabled'

interface Switch {
  name: SwitchName
  setting: string
  title: string
  /** Asked before it is turned on or off; absent: nothing is lost. */
  beforeOn?: string
  beforeOff?: string
}

export const SWITCHES: readonly Switch[] = [
  {
    name: 'write_enabled',
    setting: 'FN_CONSOLE_WRITE_ENABLED',
    title: 'Write access without the admin token',
    beforeOn: 'Everyone who can open the console will be able to change functions, their code and their secrets.',
    beforeOff: 'Only the admin token will be able to change anything, including this switch.',
  },
  {
    name: 'local_only',
    setting: 'FN_CONSOLE_LOCAL_ONLY',
    title: 'Local connections only',
    beforeOff: 'The console and /_fn will be reachable from other machines. Make sure that a login is required.',
  },
  {
    name: 'login_api_enabled',
    setting: 'FN_CONSOLE_LOGIN_API',
    title: 'Require login',
    beforeOn: 'Users who are not logged in, including you, will see nothing.',
    beforeOff: 'The console will be open to everyone who can reach it.',
  },
  {
    name: 'ui_enabled',
    setting: 'FN_UI_ENABLED',
    title: 'Console',
    beforeOff: 'This page and the history of the charts will be lost. PATCH /_fn/ui-state enables the console again.',
  },
  {
    name: 'api_enabled',
    setting: 'FN_CONSOLE_API_ENABLED',
    title: 'Control plane (/_fn)',
    beforeOff:
      'Every path below /_fn will return 404, for this page too. Only a request with the admin token enables it again.',
  },
]

/** A warning before a switch is changed; null if there is none. */
export function toWarning({ beforeOn, beforeOff }: Switch, isOn: boolean): string | null {
  return (isOn ? beforeOff : beforeOn) ?? null
}
