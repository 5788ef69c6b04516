/** `GET /_fn/packs`: the shared packs that are there. Owner: §4.2, page dependencies/shared-packs. */

import type { Clock } from '../core/clock.ts'
import { type Endpoint, READ } from './endpoint.ts'

/** A pack as it is shown; `dir` is a full path. */
interface PackFacts {
  readonly runtime: string
  readonly name: string
  readonly dir: string
  readonly facts: Readonly<Record<string, unknown>>
}

export interface PackEndpointsDeps {
  clock: Clock
  packs: { readonly root: string; list: () => readonly PackFacts[] }
}

export function createPackEndpoints({ clock, packs }: PackEndpointsDeps): readonly Endpoint[] {
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
