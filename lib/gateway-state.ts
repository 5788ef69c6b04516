/** A gateway as records show it. Owner: §1. */

import type { Catalog } from './catalog-loader.ts'
import type { GatewayState } from './control/records.ts'
import type { Admission } from './invocation/admission.ts'
import type { SecretMask } from './observe/function-output.ts'
import type { Runtimes } from './runtime/runtimes.ts'

interface StateParts extends Pick<GatewayState, 'settings' | 'warnings' | 'configLoadedAt' | 'watching' | 'details'> {
  catalog: Catalog
  runtimes: Pick<Runtimes, 'byName' | 'dispatcher'>
  admission: Pick<Admission, 'snapshot'>
  secrets: Pick<SecretMask, 'hideIn'>
}

export function toGatewayState({ catalog, runtimes, admission, secrets, ...parts }: StateParts): GatewayState {
  const { dispatcher, byName } = runtimes
  return {
    ...parts,
    functions: catalog.discovery.functions,
    // Records of ten thousand routes take 10 ms to make: only for those who read them.
    get routes() {
      return catalog.records()
    },
    routeCounts: catalog.counts(),
    homes: catalog.homes,
    ignored: catalog.discovery.ignored,
    runtimes: byName,
    workerCount: key => dispatcher.workerCount(key),
    isWarm: key => dispatcher.isWarm(key),
    loadErrorOf: fn => {
      const error = dispatcher.loadErrorOf(fn.key)
      return error && secrets.hideIn(fn, error)
    },
    isStale: key => dispatcher.isStale(key),
    get admission() {
      return admission.snapshot()
    },
    catalogGeneratedAt: catalog.generatedAt,
  }
}
