/** The call by which a function is kept warm. Spec: §2.9. */

import type { FunctionVersion } from '../core/catalog.ts'
import { toFunctionPath } from '../core/versions.ts'
import { TRIGGER_HEADER } from '../invocation/forwarded-headers.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import type { RequestIds } from '../invocation/event.ts'
import { type PingOutcome, pingMethod } from './keep-warm.ts'

/** Calls a function through its own admission, marked as a ping. Never rejects. */
export async function ping(
  invoke: (request: InternalRequest) => Promise<InternalResult>,
  ids: RequestIds,
  fn: FunctionVersion,
): Promise<PingOutcome> {
  const { status, error } = await invoke({
    fn,
    // The page of a request in the console reads from its id what it was.
    id: `ping-${ids.next()}`,
    method: pingMethod(fn),
    path: toFunctionPath(fn.name, fn.version),
    query: { __fn_keep_warm: '1' },
    headers: { [TRIGGER_HEADER]: 'keep_warm', 'user-agent': 'fngw-keep-warm' },
    trigger: { type: 'keep_warm' },
    isUnchecked: true,
  })
  return { status, error: error?.message ?? null }
}
