/** `GET /_fn/dependencies`: how far each function is with what it needs before it can run. Owner: page control/dependencies. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { Journal } from '../observe/journal.ts'
import { type Endpoint, READ } from './endpoint.ts'
import { toSeconds } from './records.ts'

interface State {
  state: 'preparing' | 'ready' | 'failed'
  /** Monotonic ms. */
  since: number
  error: GatewayError | null
  step: string | null
}

interface DependencyEndpointsDeps {
  clock: Clock
  /** Each function of the catalog; null for one that needs nothing, or that nobody asked for yet. */
  dependencies: { states(): Iterable<{ fn: FunctionVersion; state: State | null }> }
  /** Builds and installs that go on. */
  journal: Pick<Journal, 'builds'>
}

export function createDependencyEndpoints(deps: DependencyEndpointsDeps): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/dependencies',
      access: READ,
      handle: ({ details }) => ({ status: 200, body: toDependenciesRecord(deps, details) }),
    },
  ]
}

function toDependenciesRecord({ clock, dependencies, journal }: DependencyEndpointsDeps, details: boolean): object {
  const running = new Map([...journal.builds].map(build => [build.key, build]))
  const offset = clock.wall() - clock.monotonic()
  const toRow = ({ fn, state }: { fn: FunctionVersion; state: State | null }): object => {
    const { key, runtime } = fn
    if (state === null) return { key, runtime, state: 'none', step: null, since: null, ...toErrorFields(null, details) }
    const work = running.get(key)
    return {
      ...{ key, runtime, state: state.state },
      step: work?.action ?? state.step,
      since: toSeconds(Math.round(work?.time ?? state.since + offset)),
      ...toErrorFields(state.error, details),
    }
  }
  return {
    functions: [...dependencies.states()].map(toRow),
    running: [...running.values()].map(({ key, runtime, action, time }) => ({
      ...{ key, runtime, action },
      since: toSeconds(time),
    })),
  }
}

/** What a tool said may name paths of this machine. */
function toErrorFields(error: GatewayError | null, details: boolean): object {
  const { file = null, line = null, hint = null } = (details ? error?.detail : undefined) ?? {}
  const message = error === null ? null : details ? error.message : 'failed'
  return { error: message, file, line, hint }
}
