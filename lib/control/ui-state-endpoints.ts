/** `/_fn/ui-state`: what the console shows of access, and switches; and what it keeps. Owner: §4.2, page control/ui-state. */

import { showValue } from '../config/findings.ts'
import { GatewayError } from '../core/errors.ts'
import { isAdministrator } from './access.ts'
import { type AccessState, SWITCHES, type Switches } from './access-state.ts'
import type { ControlRequest } from './control-request.ts'
import { type ControlReply, type Endpoint, READ, WRITE } from './endpoint.ts'
import { UI_STORE_BYTES, type UiStore } from './ui-store.ts'

/** JSON may write a character in six. */
const BODY_BYTES = 16 * 1024 + 6 * UI_STORE_BYTES

interface UiStateEndpointsDeps {
  access: AccessState
  store: UiStore
}

export function createUiStateEndpoints({ access, store }: UiStateEndpointsDeps): readonly Endpoint[] {
  const path = '/_fn/ui-state'
  const change = async (request: ControlRequest): Promise<ControlReply> => {
    const body = await request.readJson(BODY_BYTES)
    const changes: Record<string, boolean> = {}
    const warnings: string[] = []
    const { store: given, ...switches } = body
    for (const [name, value] of Object.entries(switches)) {
      const field = Object.hasOwn(SWITCHES, name) ? SWITCHES[name] : undefined
      if (field === undefined) warnings.push(`${name.slice(0, 60)} is not known, or cannot be changed here`)
      else if (typeof value === 'boolean') changes[field] = value
      else throw new GatewayError('BAD_REQUEST', `body field ${name} must be true or false, got ${showValue(value)}`)
    }
    checkLoosening(access, request, changes)
    const values = given === undefined ? null : store.preview(given, request.exchange.method === 'PATCH')
    // First what may fail: then nothing is changed.
    if (values !== null) store.write(values)
    access.apply(changes)
    return reply(request, warnings)
  }
  const reply = (request: ControlRequest, warnings: readonly string[] | null = null): ControlReply => {
    const { values, problem } = store.read()
    const told = [...(warnings ?? []), ...(problem === null ? [] : [problem])]
    // What was tried before may be nobody else's business.
    const kept = request.details ? { store: values } : {}
    const more = warnings === null && told.length === 0 ? {} : { warnings: told }
    return { status: 200, body: { ...toSnapshot(access, request), ...kept, ...more } }
  }
  return [
    { method: 'GET', path, access: READ, handle: request => reply(request) },
    { method: 'POST', path, access: WRITE, handle: change },
    { method: 'PUT', path, access: WRITE, handle: change },
    { method: 'PATCH', path, access: WRITE, handle: change },
    {
      method: 'DELETE',
      path,
      access: WRITE,
      handle: request => {
        checkLoosening(access, request, null)
        store.write({})
        access.apply(null)
        return reply(request)
      },
    },
  ]
}

/** @throws GatewayError FORBIDDEN */
function checkLoosening(access: AccessState, request: ControlRequest, changes: Partial<Switches> | null): void {
  if (access.isLoosening(access.preview(changes)) && !isAdministrator(request.caller, access.flags)) {
    throw new GatewayError('FORBIDDEN', 'this lets more callers in or lets them do more: it needs the admin token')
  }
}

function toSnapshot({ flags, canLogIn }: AccessState, { caller }: ControlRequest): Record<string, unknown> {
  const switches = Object.entries(SWITCHES).map(([name, field]) => [name, flags[field]])
  return {
    ...Object.fromEntries(switches),
    login_enabled: canLogIn,
    current_user: caller.session?.user ?? null,
  }
}
