/** The list of keys, at `?`. Owner: page console/console. */

import { isHelpOpen } from '../keys.ts'
import { PAGES } from '../pages.ts'
import { Dialog } from './dialog.tsx'

const KEYS: readonly (readonly [string, string])[] = [
  ['Ctrl K', 'find a page or function'],
  ['/', 'search this page'],
  ['j k', 'next and previous row'],
  ['Enter', 'open the row'],
  ['Esc', 'close'],
  ...PAGES.map(({ key, title }) => [`g ${key}`, title] as const),
]

export function Help() {
  const close = (): void => {
    isHelpOpen.value = false
  }
  return (
    <Dialog title="Keys" isOpen={isHelpOpen.value} onClose={close}>
      <h2>Keys</h2>
      <dl class="keys">
        {KEYS.map(([key, text]) => (
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
