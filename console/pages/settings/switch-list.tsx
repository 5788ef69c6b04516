/** The switches that put themselves over the settings until the gateway ends. Owner: page console/settings. */

import { useSignal } from '@preact/signals'
import { type ApiError, send } from '../../data/api.ts'
import { Confirm } from '../../parts/dialog.tsx'
import { canWrite, loadSession, type UiState, uiState, whyReadOnly } from '../../session.ts'
import { SWITCHES, type SwitchName, toWarning } from './switches.ts'

export function SwitchList() {
  const error = useSignal<string | null>(null)
  const warnings = useSignal<readonly string[]>([])
  const asked = useSignal<{ name: SwitchName; warning: string; title: string } | null>(null)
  const question = asked.value
  const state = uiState.value
  if (state === null) return null
  const act = async (method: string, body?: object): Promise<void> => {
    try {
      const changed = await send<UiState>(method, '/_fn/ui-state', body)
      warnings.value = changed.warnings ?? []
      error.value = null
    } catch (failure) {
      warnings.value = []
      error.value = (failure as ApiError).message
    }
    await loadSession()
  }
  const turn = (name: SwitchName): void => void act('PATCH', { [name]: !state[name] })
  return (
    <section class="block" aria-label="Switches">
      <h2>Switches</h2>
      <p class="quiet">Switches override the settings until the gateway stops. {whyReadOnly.value}</p>
      {state.gateway !== undefined && (
        <p>
          These are the switches of gateway <span class="mono">{state.gateway}</span>. The other gateways of the fleet
          have their own: open the console at the address of each gateway, or change the settings of all.
        </p>
      )}
      <ul class="switches">
        {SWITCHES.map(one => {
          const warning = toWarning(one, state[one.name])
          return (
            <li key={one.name}>
              <label>
                <input
                  type="checkbox"
                  checked={state[one.name]}
                  disabled={!canWrite.value}
                  onClick={event => {
                    // It shows what is, which the gateway decides.
                    event.preventDefault()
                    if (warning === null) turn(one.name)
                    else
                      asked.value = {
                        name: one.name,
                        warning,
                        title: `${one.title}: turn ${state[one.name] ? 'off' : 'on'}?`,
                      }
                  }}
                />{' '}
                {one.title} <small class="mono">{one.setting}</small>
              </label>
            </li>
          )
        })}
      </ul>
      <p class="quiet" role="status">
        {warnings.value.join(' ')}
      </p>
      <p class="error" role="alert">
        {error.value}
      </p>
      <button type="button" disabled={!canWrite.value} onClick={() => void act('DELETE')}>
        Reset to settings
      </button>
      <Confirm
        title={question?.title ?? ''}
        action="Turn it"
        isOpen={question !== null}
        onConfirm={() => question !== null && turn(question.name)}
        onClose={() => {
          asked.value = null
        }}
      >
        <p>{question?.warning}</p>
      </Confirm>
    </section>
  )
}
