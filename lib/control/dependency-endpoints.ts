/** `GET /_fn/dependencies`: the preparation of each function before it can run. Owner: page control/dependencies. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import { type ControlContext, type Endpoint, type PreparedState, READ } from './endpoint.ts'
import { toSeconds } from './records.ts'

export function createDependencyEndpoints(context: ControlContext): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/dependencies',
      access: READ,
      handle: ({ details }) => ({ status: 200, body: toDependenciesRecord(context, details) }),
    },
  ]
}

function toDependenciesRecord({ clock, dependencies, journal }: ControlContext, details: boolean): object {
  const running = new Map([...journal.builds].map(build => [build.key, build]))
  const offset = clock.wall() - clock.monotonic()
  const toRow = ({ fn, state }: { fn: FunctionVersion; state: PreparedState | null }): object => {
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

/** Output of a tool may name paths of this machine. */
function toErrorFields(error: GatewayError | null, details: boolean): object {
  const { file = null, line = null, hint = null } = (details ? error?.detail : undefined) ?? {}
  const message = error === null ? null : details ? error.message : 'failed'
  return { error: message, file, line, hint }
}

// `GET /_fn/packs`: the shared packs that are there.

export function createPackEndpoints({ clock, packs }: ControlContext): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/packs',
      access: READ,
      handle: ({ details }) => {
        const runtimes: Record<string, { packs: unknown[] }> = {}
        for (const { runtime, name, dir, facts } of packs.list()) {
          runtimes[runtime] ??= { packs: [] }
          runtimes[runtime].packs.push({ name, ...(details ? { dir } : {}), ...facts })
        }
        const body = {
          generated_at: clock.wall() / 1000,
          ...(details ? { packs_root: packs.root } : {}),
          runtimes,
        }
        return { status: 200, body }
      },
    },
  ]
}
