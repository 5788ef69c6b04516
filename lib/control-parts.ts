/** The control plane's endpoints, all families in the order of the documents. Owner: §4.2. */

import type { Endpoint } from './control/endpoint.ts'
import { createStateEndpoints, type StateEndpointsDeps } from './control/state-endpoints.ts'

/** What the endpoints need of the gateway. */
type ControlDeps = StateEndpointsDeps

export function createControlEndpoints(deps: ControlDeps): readonly Endpoint[] {
  return [...createStateEndpoints(deps)]
}
