/** `GET /_fn/fleet`, described on page control/control-plane. Owner: page console/fleet. */

import { PAGES } from '../pages.ts'
import { uiState } from '../session.ts'
import { type Loaded, useLoad } from './load.ts'

export interface FleetGateway {
  readonly id: string
  readonly addresses?: readonly string[]
  readonly version: string
  readonly release: string
  readonly state: 'starting' | 'ready' | 'draining' | 'gone'
  readonly uptime_seconds: number
  readonly load_average: number
  readonly cpus: number
  readonly running_calls: number
  readonly queued_calls: number
  readonly runs_schedules: boolean
  readonly seen_ms_ago: number
}

/** Of a gateway with a store. */
export interface Fleet {
  readonly fleet: true
  /** Of the gateway that responds. */
  readonly id: string
  readonly store: 'up' | 'down'
  readonly problem?: string
  readonly rollout: boolean
  /** The newest first. */
  readonly releases: readonly { readonly release: string; readonly gateways: number }[]
  readonly gateways: readonly FleetGateway[]
}

type FleetRecord = Fleet | { readonly fleet: false }

/** @param every - milliseconds between two requests; 0 asks once */
export function useFleet(every = 0): Loaded<FleetRecord> {
  return useLoad<FleetRecord>(uiState.value === null ? null : '/_fn/fleet', { every })
}

/** The pages that this gateway has: one without a store is in no fleet. */
export function usePages(): typeof PAGES {
  const isFleet = useFleet().data?.fleet === true
  return PAGES.filter(({ path }) => path !== 'fleet' || isFleet)
}
