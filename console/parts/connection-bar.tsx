/** Shows that the gateway is unreachable or was restarted. The data on the page stays. Owner: page console/console. */

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { lostSince, restarts } from '../data/events.ts'
import { formatClock } from '../format.ts'

/** Milliseconds before a loss is shown: a stream that reconnects is away for a moment. */
const PATIENCE_MS = 1500
/** Milliseconds for which a restart is shown. */
const RESTART_SHOWN_MS = 8000

export function ConnectionBar() {
  const isToldLost = useSignal(false)
  const isRestartTold = useSignal(false)
  const since = lostSince.value
  const restart = restarts.value
  useEffect(() => {
    if (since === null) {
      isToldLost.value = false
      return
    }
    const timer = setTimeout(() => {
      isToldLost.value = true
    }, PATIENCE_MS)
    return () => clearTimeout(timer)
  }, [since])
  useEffect(() => {
    if (restart === 0) return
    isRestartTold.value = true
    const timer = setTimeout(() => {
      isRestartTold.value = false
    }, RESTART_SHOWN_MS)
    return () => clearTimeout(timer)
  }, [restart])
  return (
    <div class="connection" role="status" aria-live="polite">
      {isToldLost.value && since !== null ? (
        <p class="bar lost">
          No connection to the gateway since {formatClock(since)}. The data is from that time. Reconnecting.
        </p>
      ) : isRestartTold.value ? (
        <p class="bar">The gateway was restarted. This page is up to date.</p>
      ) : null}
    </div>
  )
}
