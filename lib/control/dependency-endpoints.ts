/** `GET /_fn/dependencies`: the preparation of each function before it can run. Owner: page control/dependencies. */

import type { GatewayError } from '../core/errors.ts'
import { type ControlContext, type Endpoint, endpoint, json } from './endpoint.ts'
import { toSeconds } from './records.ts'

export function createDependencyEndpoints({ clock, dependencies, journal }: ControlContext): readonly Endpoint[] {
  return [
    endpoint('GET /_fn/dependencies', 'read', ({ details }) => {
      const running = new Map([...journal.builds].map(build => [build.key, build]))
      const offset = clock.wall() - clock.monotonic()
      const rows = [...dependencies.states()].map(({ fn: { key, runtime }, state }) => {
        if (state === null)
          return { key, runtime, state: 'none', step: null, since: null, ...toErrorFields(null, details) }
        const work = running.get(key)
        return {
          ...{ key, runtime, state: state.state },
          step: work?.action ?? state.step,
          since: toSeconds(Math.round(work?.time ?? state.since + offset)),
          ...toErrorFields(state.error, details),
        }
      })
      const builds = [...running.values()].map(({ key, runtime, action, time }) => {
        return { key, runtime, action, since: toSeconds(time) }
      })
      return json({ functions: rows, running: builds })
    }),
  ]
}

/** Output of a tool may name paths of this machine. */
function toErrorFields(error: GatewayError | null, details: boolean): object {
  const { file = null, line = null, hint = null } = (details ? error?.detail : undefined) ?? {}
  const message = error === null ? null : details ? error.message : 'failed'
  return { error: message, file, line, hint }
}
