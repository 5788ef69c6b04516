/** Start of the console in the browser. Owner: page console/console. */

import { effect } from '@preact/signals'
import { render } from 'preact'
import { App } from './app.tsx'
import { lostSince, restarts } from './data/events.ts'
import { refreshAll } from './data/load.ts'
import { startKeys } from './keys.ts'
import { startRouter } from './router.ts'
import { loadSession } from './session.ts'

startRouter()
startKeys()
void loadSession()
render(<App />, document.getElementById('app') as HTMLElement)

/** Back after a loss: what is shown is of before. */
let wasLost = false
effect(() => {
  const isLost = lostSince.value !== null
  if (wasLost && !isLost) {
    void loadSession()
    refreshAll()
  }
  wasLost = isLost
})
effect(() => {
  if (restarts.value > 0) refreshAll()
})
