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
    title: 'Changes without the admin token',
    beforeOn: 'Everybody who can open the console may then change functions, their code and their secrets.',
    beforeOff: 'Only the admin token can change anything then, this switch included.',
  },
  {
    name: 'local_only',
    setting: 'FN_CONSOLE_LOCAL_ONLY',
    title: 'This machine only',
    beforeOff: 'The console and /_fn answer other machines then: make sure that a login is asked for.',
  },
  {
    name: 'login_api_enabled',
    setting: 'FN_CONSOLE_LOGIN_API',
    title: 'A login is asked for',
    beforeOn: 'Who is not logged in sees nothing from then on, you included.',
    beforeOff: 'The console is then open to everybody who reaches it.',
  },
  {
    name: 'ui_enabled',
    setting: 'FN_UI_ENABLED',
    title: 'The console',
    beforeOff:
      'This page is then gone, and with it what the charts show of the past. PATCH /_fn/ui-state turns it on again.',
  },
  {
    name: 'api_enabled',
    setting: 'FN_CONSOLE_API_ENABLED',
    title: 'The control plane (/_fn)',
    beforeOff:
      'Everything below /_fn answers 404 then, to this page too. Only a request with the admin token turns it on again.',
  },
]

/** What somebody has to know before a switch is turned; null when there is nothing. */
export function toWarning({ beforeOn, beforeOff }: Switch, isOn: boolean): string | null {
  return (isOn ? beforeOff : beforeOn) ?? null
}
