/** `/_fn/ui-state`: the access switches of the console, and its store. Owner: §4.2, page control/ui-state. */

import { showValue } from '../config/fields.ts'
import { parseJsonText } from '../config/json-text.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { UI_STORE_BYTES } from '../core/limits.ts'
import { type AccessState, isAdministrator, SWITCHES, type Switches } from './access.ts'
import type { ConsoleStore, KeptState } from './console-store.ts'
import { type ControlReply, type ControlRequest, type Endpoint, endpoint, json, readJson } from './endpoint.ts'

/** JSON may write a character in six. */
const BODY_BYTES = 16 * 1024 + 6 * UI_STORE_BYTES

/** @param gateway - id of this gateway in a fleet, which shares no switches; null without a fleet */
export function createUiStateEndpoints(
  access: AccessState,
  state: UiState,
  gateway: string | null = null,
): readonly Endpoint[] {
  // A client behind a load balancer does not know which gateway it has changed.
  const scope =
    gateway === null
      ? []
      : [`the switches apply to gateway ${gateway} only; the other gateways of the fleet keep theirs`]
  const change = async (request: ControlRequest): Promise<ControlReply> => {
    const changes: Record<string, boolean> = {}
    const warnings: string[] = []
    const { store: given, ...switches } = await readJson(request, BODY_BYTES)
    for (const [name, value] of Object.entries(switches)) {
      const field = Object.hasOwn(SWITCHES, name) ? SWITCHES[name] : undefined
      if (field === undefined) warnings.push(`${name.slice(0, 60)} is not known, or cannot be changed here`)
      else if (typeof value === 'boolean') changes[field] = value
      else throw badRequest(`body field ${name}`, `must be true or false, got ${showValue(value)}`)
    }
    checkLoosening(access, request, changes)
    const isPart = request.exchange.method === 'PATCH'
    // First what may fail: then nothing is changed.
    if (given !== undefined) await state.change(values => toUiValues(values, given, isPart))
    access.apply(changes)
    return reply(request, [...warnings, ...(Object.keys(changes).length === 0 ? [] : scope)])
  }
  const reply = async (request: ControlRequest, notes: readonly string[] | null = null): Promise<ControlReply> => {
    const { values, problem } = await state.read()
    const { flags, canLogIn } = access
    const warnings = [...(notes ?? []), ...(problem === null ? [] : [problem])]
    return json({
      ...Object.fromEntries(Object.entries(SWITCHES).map(([name, field]) => [name, flags[field]])),
      login_enabled: canLogIn,
      current_user: request.caller.session?.user ?? null,
      ...(gateway !== null && { gateway }),
      // The history of Try may hold private values.
      ...(request.details && { store: values }),
      ...((notes !== null || warnings.length > 0) && { warnings }),
    })
  }
  return [
    endpoint('GET /_fn/ui-state', 'read', request => reply(request)),
    endpoint('POST /_fn/ui-state', 'write', change),
    endpoint('PUT /_fn/ui-state', 'write', change),
    endpoint('PATCH /_fn/ui-state', 'write', change),
    endpoint('DELETE /_fn/ui-state', 'write', async request => {
      checkLoosening(access, request, null)
      await state.change(() => ({}))
      access.apply(null)
      return reply(request, scope.length === 0 ? null : scope)
    }),
  ]
}

/** @throws GatewayError FORBIDDEN */
function checkLoosening(access: AccessState, { caller }: ControlRequest, changes: Partial<Switches> | null): void {
  if (access.isLoosening(access.preview(changes)) && !isAdministrator(caller, access.flags))
    throw new GatewayError('FORBIDDEN', 'this lets more callers in or lets them do more: it needs the admin token')
}

// The saved state of the console: a JSON object.

/** Changes at once that one of them waits for: each try but the first means that another one was made. */
const MAX_TRIES = 20

type UiValues = Readonly<Record<string, unknown>>

export class UiState {
  readonly #store: ConsoleStore

  constructor(store: ConsoleStore) {
    this.#store = store
  }

  /** A state that cannot be used counts as missing, and the problem is returned. @throws GatewayError while a shared store is away */
  async read(): Promise<{ values: UiValues; problem: string | null }> {
    const { values, problem } = this.#parse(await this.#store.readState())
    return { values, problem: problem === null ? null : `${this.#store.statePlace} is not used: it ${problem}` }
  }

  /**
   * @param update - what it throws is thrown, and then nothing is written
   * @throws GatewayError FORBIDDEN with the reason when it cannot be written; CONFLICT
   */
  async change(update: (values: UiValues) => UiValues): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const before = await this.#store.readState()
      const { values, problem } = this.#parse(before)
      const next = update(values)
      const text = Object.keys(next).length === 0 ? null : JSON.stringify(next)
      if (await this.#store.writeState(text, { ...before, isUsed: problem === null })) return
    }
    throw new GatewayError('CONFLICT', 'the state is being changed by others, try again')
  }

  #parse({ text, problem }: KeptState): { values: UiValues; problem: string | null } {
    if (text === null) return { values: {}, problem }
    const parsed = parseJsonText(Buffer.from(text), UI_STORE_BYTES)
    if (!parsed.ok) return { values: {}, problem: `is not JSON: ${parsed.reason}` }
    return isObject(parsed.value) ? { values: parsed.value, problem: null } : { values: {}, problem: 'holds no object' }
  }
}

/**
 * The values after a change.
 * @param given - null for none at all
 * @param isPart - puts the given members over those that are there; null takes one away
 * @throws GatewayError BAD_REQUEST, BODY_TOO_LARGE
 */
export function toUiValues(values: UiValues, given: unknown, isPart: boolean): UiValues {
  if (given !== null && !isObject(given))
    throw badRequest('body field store', `must be an object, got ${showValue(given)}`)
  const next = isPart && given !== null ? merge(values, given) : (given ?? {})
  const bytes = Buffer.byteLength(JSON.stringify(next))
  if (bytes <= UI_STORE_BYTES) return next
  const text = `body field store must be at most ${UI_STORE_BYTES} bytes as JSON, would be ${bytes}`
  throw new GatewayError('BODY_TOO_LARGE', text)
}

function merge(values: UiValues, changes: UiValues): UiValues {
  const isTaken = (name: string): boolean => Object.hasOwn(changes, name) && changes[name] === null
  return Object.fromEntries(Object.entries({ ...values, ...changes }).filter(([name]) => !isTaken(name)))
}
