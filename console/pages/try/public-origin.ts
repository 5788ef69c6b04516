/** The origin of public routes: the console's, unless the control plane has a separate port. Owner: page console/try. */

import { get } from '../../data/api.ts'
import { useLoad } from '../../data/load.ts'
import { gatewayUrl } from '../../router.ts'

interface PublicOrigin {
  /** Such as `http://127.0.0.1:8080`. */
  readonly origin: string
  /** False when the browser, bound to the console's own origin, cannot ask there. */
  readonly isHere: boolean
}

interface SettingRow {
  readonly name: string
  readonly value: unknown
}

interface Answer {
  readonly settings: readonly SettingRow[]
}

const PATH = '/_fn/settings'

/** Until the gateway responds, the usual one is assumed. */
export function usePublicOrigin(): PublicOrigin {
  const { data } = useLoad<Answer>(PATH)
  return toPublicOrigin(gatewayUrl, data?.settings ?? [])
}

/** @throws ApiError */
export async function askPublicOrigin(): Promise<PublicOrigin> {
  return toPublicOrigin(gatewayUrl, (await get<Answer>(PATH)).settings)
}

/** @param at - address of the console */
export function toPublicOrigin(at: URL, rows: readonly SettingRow[]): PublicOrigin {
  const valueOfRow = (wanted: string): unknown => rows.find(({ name }) => name === wanted)?.value ?? null
  if (valueOfRow('controlPort') === null) return { origin: at.origin, isHere: true }
  const port = valueOfRow('port')
  // A port that the system chose is not reported.
  const shown = typeof port === 'number' && port > 0 ? `:${port}` : ''
  return { origin: `${at.protocol}//${at.hostname}${shown}`, isHere: false }
}
