/** The signals that stop `fngw dev` and `run`. Owner: page bin/dev. */

import { followParent } from './parent-watch.ts'

/** Exit codes of processes that these signals end. */
const CODES = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const
const SIGNALS = Object.keys(CODES) as (keyof typeof CODES)[]

interface StopSignals {
  /** The first signal, or SIGTERM when npm, which started this process, is gone. */
  readonly first: Promise<NodeJS.Signals>
  /** Listens no more: the process is as it was. */
  forget(): void
}

/**
 * Listens to SIGINT, SIGTERM and SIGHUP. A second one ends the process with its conventional code.
 * @param env - of this process
 */
export function followSignals(
  env: Readonly<Record<string, string | undefined>>,
  exit: (code: number) => void = code => process.exit(code),
): StopSignals {
  const listeners: (() => void)[] = []
  const first = new Promise<NodeJS.Signals>(resolve => {
    let received = false
    for (const signal of SIGNALS) {
      const listener = (): void => {
        if (received) exit(CODES[signal])
        received = true
        resolve(signal)
      }
      process.on(signal, listener)
      listeners.push(() => process.off(signal, listener))
    }
  })
  listeners.push(followParent(env, () => process.kill(process.pid, 'SIGTERM')))
  return {
    first,
    forget: () => {
      for (const stop of listeners.splice(0)) stop()
    },
  }
}
