/** `/_fn/ui-state`: the access switches of the console, and its store. Owner: §4.2, page control/ui-state. */

import { showValue } from '../config/fields.ts'
import { parseJsonText } from '../config/json-text.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { type AccessState, isAdministrator, SWITCHES, type Switches } from './access.ts'
import { type ControlReply, type ControlRequest, type Endpoint, endpoint, json, readJson } from './endpoint.ts'
import { toGatewayRefusal } from './function-endpoints.ts'

/** Bytes of the object as JSON. */
export const UI_STORE_BYTES = 256 * 1024
/** JSON may write a character in six. */
const BODY_BYTES = 16 * 1024 + 6 * UI_STORE_BYTES

export function createUiStateEndpoints(access: AccessState, store: UiStore): readonly Endpoint[] {
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
    const values = given === undefined ? null : store.preview(given, request.exchange.method === 'PATCH')
    // First what may fail: then nothing is changed.
    if (values !== null) store.write(values)
    access.apply(changes)
    return reply(request, warnings)
  }
  const reply = (request: ControlRequest, notes: readonly string[] | null = null): ControlReply => {
    const { values, problem } = store.read()
    const { flags, canLogIn } = access
    const warnings = [...(notes ?? []), ...(problem === null ? [] : [problem])]
    return json({
      ...Object.fromEntries(Object.entries(SWITCHES).map(([name, field]) => [name, flags[field]])),
      login_enabled: canLogIn,
      current_user: request.caller.session?.user ?? null,
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
    endpoint('DELETE /_fn/ui-state', 'write', request => {
      checkLoosening(access, request, null)
      store.write({})
      access.apply(null)
      return reply(request)
    }),
  ]
}

/** @throws GatewayError FORBIDDEN */
function checkLoosening(access: AccessState, { caller }: ControlRequest, changes: Partial<Switches> | null): void {
  if (access.isLoosening(access.preview(changes)) && !isAdministrator(caller, access.flags))
    throw new GatewayError('FORBIDDEN', 'this lets more callers in or lets them do more: it needs the admin token')
}

// The store of the console: a JSON object in `.svc/console/state.json`.

const FILE = 'state.json'
/** Requests of the history of Try may hold what only the gateway's owner should read. */
const MODE = 0o600

type UiValues = Readonly<Record<string, unknown>>

export class UiStore {
  readonly #folder: OwnFolder

  /** @param folder - `.svc/console` of the functions root */
  constructor(folder: OwnFolder) {
    this.#folder = folder
  }

  /** Never throws: a file that cannot be used counts as missing, and the problem is returned. */
  read(): { values: UiValues; problem: string | null } {
    const toUnused = (why: string) => ({ values: {}, problem: `.svc/console/${FILE} is not used: it ${why}` })
    try {
      const size = this.#folder.statFile(FILE)?.size ?? null
      if (size === null) return { values: {}, problem: null }
      if (size > UI_STORE_BYTES) return toUnused(`has ${size} bytes, at most ${UI_STORE_BYTES} are read`)
      const parsed = parseJsonText(this.#folder.read(FILE) ?? Buffer.from('{}'), UI_STORE_BYTES)
      if (!parsed.ok) return toUnused(`is not JSON: ${parsed.reason}`)
      return isObject(parsed.value) ? { values: parsed.value, problem: null } : toUnused('holds no object')
    } catch (error) {
      return toUnused(`cannot be read: ${(error as Error).message}`)
    }
  }

  /**
   * The values after a change; nothing is written.
   * @param given - null for none at all
   * @param isPart - puts the given members over those that are there; null takes one away
   * @throws GatewayError BAD_REQUEST, BODY_TOO_LARGE
   */
  preview(given: unknown, isPart: boolean): UiValues {
    if (given !== null && !isObject(given))
      throw badRequest('body field store', `must be an object, got ${showValue(given)}`)
    const values = isPart && given !== null ? merge(this.read().values, given) : (given ?? {})
    const bytes = Buffer.byteLength(JSON.stringify(values))
    if (bytes <= UI_STORE_BYTES) return values
    const text = `body field store must be at most ${UI_STORE_BYTES} bytes as JSON, would be ${bytes}`
    throw new GatewayError('BODY_TOO_LARGE', text)
  }

  /** @throws GatewayError FORBIDDEN with the reason when the file cannot be written */
  write(values: UiValues): void {
    try {
      // A file that can still be repaired is kept.
      if (this.read().problem !== null) this.#folder.rename(FILE, `${FILE}.unused`)
      if (Object.keys(values).length === 0) this.#folder.remove(FILE)
      else this.#folder.write(FILE, JSON.stringify(values), MODE)
    } catch (error) {
      throw toGatewayRefusal(error)
    }
  }
}

function merge(values: UiValues, changes: UiValues): UiValues {
  const isTaken = (name: string): boolean => Object.hasOwn(changes, name) && changes[name] === null
  return Object.fromEntries(Object.entries({ ...values, ...changes }).filter(([name]) => !isTaken(name)))
}
