/** What the control plane is made of: its endpoints, all families in the order of the documents, and who may use them. Owner: §4.2. */

import { randomBytes } from 'node:crypto'
import type { Settings } from './config/settings.ts'
import { AccessState } from './control/access-state.ts'
import type { Endpoint } from './control/endpoint.ts'
import { createEventsEndpoints } from './control/events-endpoints.ts'
import { createInvokeEndpoints, type InvokeEndpointsDeps } from './control/invoke-endpoints.ts'
import { createLogEndpoints, type LogEndpointsDeps } from './control/log-endpoints.ts'
import { createMetricsEndpoints, type MetricsEndpointsDeps } from './control/metrics-endpoints.ts'
import { createSessionEndpoints } from './control/session-endpoints.ts'
import { Sessions } from './control/sessions.ts'
import { createStateEndpoints, type StateEndpointsDeps } from './control/state-endpoints.ts'
import { createUiStateEndpoints } from './control/ui-state-endpoints.ts'
import { EventFeed } from './observe/event-feed.ts'
import type { Journal } from './observe/journal.ts'

/** What the endpoints need of the gateway. */
interface ControlDeps extends StateEndpointsDeps, InvokeEndpointsDeps, LogEndpointsDeps, MetricsEndpointsDeps {
  settings: Settings
  journal: Journal
}

export interface ControlParts {
  endpoints: readonly Endpoint[]
  access: AccessState
  sessions: Sessions
  /** Ends the answers that would go on. */
  close: () => void
}

export function createControlParts(deps: ControlDeps): ControlParts {
  const { clock, settings, journal } = deps
  const access = new AccessState(settings)
  const sessions = new Sessions({ clock, ttlMs: settings.consoleSessionTtlSeconds * 1000 })
  const id = randomBytes(4).toString('hex')
  const feed = new EventFeed({ clock, id, events: journal.events, builds: () => journal.builds })
  const endpoints = [
    ...createStateEndpoints(deps),
    ...createInvokeEndpoints(deps),
    ...createEventsEndpoints({ feed }),
    ...createLogEndpoints(deps),
    ...createMetricsEndpoints(deps),
    ...createSessionEndpoints({ clock, settings, sessions, access }),
    ...createUiStateEndpoints({ access }),
  ]
  const close = (): void => {
    feed.close()
    deps.streams.close()
  }
  return { endpoints, access, sessions, close }
}
