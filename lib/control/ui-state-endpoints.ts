/** `/_fn/ui-state`: what the console shows of access, and switches. Owner: §4.2, page control/ui-state. */

import { showValue } from '../config/findings.ts'
import { GatewayError } from '../core/errors.ts'
import { isAdministrator } from './access.ts'
import { type AccessState, SWITCHES, type Switches } from './access-state.ts'
import type { ControlRequest } from './control-request.ts'
import { type ControlReply, type Endpoint, READ, WRITE } from './endpoint.ts'

const BODY_BYTES = 16 * 1024

interface UiStateEndpointsDeps {
  access: AccessState
}

export function createUiStateEndpoints({ access }: UiStateEndpointsDeps): readonly Endpoint[] {
  const path = '/_fn/ui-state'
  const change = async (request: ControlRequest): Promise<ControlReply> => {
    const body = await request.readJson(BODY_BYTES)
    const changes: Record<string, boolean> = {}
    const warnings: string[] = []
    for (const [name, value] of Object.entries(body)) {
      const field = Object.hasOwn(SWITCHES, name) ? SWITCHES[name] : undefined
      if (field === undefined) warnings.push(`${name.slice(0, 60)} is not known, or cannot be changed here`)
      else if (typeof value === 'boolean') changes[field] = value
      else throw new GatewayError('BAD_REQUEST', `body field ${name} must be true or false, got ${showValue(value)}`)
    }
    apply(access, request, changes)
    return reply(request, { warnings })
  }
  const reply = (request: ControlRequest, more: object = {}): ControlReply => ({
    status: 200,
    body: { ...toSnapshot(access, request), ...more },
  })
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
        apply(access, request, null)
        return reply(request)
      },
    },
  ]
}

function apply(access: AccessState, request: ControlRequest, changes: Partial<Switches> | null): void {
  if (access.isLoosening(access.preview(changes)) && !isAdministrator(request.caller, access.flags)) {
    throw new GatewayError('FORBIDDEN', 'this lets more callers in or lets them do more: it needs the admin token')
  }
  access.apply(changes)
}

function toSnapshot({ flags, canLogIn }: AccessState, { caller }: ControlRequest): Record<string, unknown> {
  const switches = Object.entries(SWITCHES).map(([name, field]) => [name, flags[field]])
  return {
    ...Object.fromEntries(switches),
    login_enabled: canLogIn,
    current_user: caller.session?.user ?? null,
  }
}
