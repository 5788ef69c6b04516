/** The list of keys, at `?`. Owner: page console/console. */

import { usePages } from '../data/fleet.ts'
import { isHelpOpen } from '../keys.ts'
import { Dialog } from './dialog.tsx'

const KEYS: readonly (readonly [string, string])[] = [
  ['Ctrl K', 'find a page or function'],
  ['/', 'search this page'],
  ['j k', 'next and previous row'],
  ['Enter', 'open the row'],
  ['Esc', 'close'],
]

export function Help() {
  const keys = [...KEYS, ...usePages().map(({ key, title }) => [`g ${key}`, title] as const)]
  const close = (): void => {
    isHelpOpen.value = false
  }
  return (
    <Dialog title="Keys" isOpen={isHelpOpen.value} onClose={close}>
      <h2>Keys</h2>
      <dl class="keys">
        {keys.map(([key, text]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  )
}
