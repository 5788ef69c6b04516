/** What happens in a gateway, for the program that embeds it and for the logs. In process only. Spec: §6. */

import type { ErrorCode, ErrorDetail, Warning } from '../core/errors.ts'
import { eachLine, type WrittenLine } from './line-buffer.ts'

/** One request of the public or control plane that was answered, or whose client left. */
export interface RequestRecord {
  /** Wall clock at the end, ms. */
  time: number
  id: string
  method: string
  path: string
  /** Pattern of the route; null when none matched. */
  route: string | null
  fn: string | null
  version: string | null
  runtime: string | null
  /** Handler file below the functions root. */
  entryFile: string | null
  /** 499 when the client left before the response. */
  status: number
  durationMs: number
  /** Waiting for a slot, ms. */
  queuedMs: number
  bytesIn: number
  bytesOut: number
  ip: string
  userAgent: string | null
  /** 32 digits. */
  traceId: string
  /** Message of the gateway's own refusal or failure. */
  error: string | null
  /** Why its time says little; absent for most. */
  note?: string
}

/** The tree was read, at the start or again. */
export interface ReloadRecord {
  time: number
  /** `watch`, `api` or `start`. */
  cause: string
  functions: number
  routes: number
  warnings: number
  durationMs: number
}

/** Output of a function or a message of the gateway. */
export interface LogRecord {
  time: number
  level: 'debug' | 'info' | 'warn' | 'error'
  message: string
  runtime?: string
  fn?: string
  version?: string
  stream?: 'stdout' | 'stderr'
  requestId?: string
  traceId?: string
  /** Of a failed call. */
  method?: string
  path?: string
  code?: ErrorCode
  detail?: ErrorDetail
}

interface FunctionEvent {
  time: number
  /** `runtime/name@version`. */
  key: string
  runtime: string
  fn: string
  version: string
}

/** A tool begins or ends to build a function or to install its packages. */
export interface BuildRecord extends FunctionEvent {
  /** `building`, or `installing packages of`. */
  action: string
  state: 'began' | 'ended'
}

/** A run of a schedule ended. */
export interface ScheduleRecord extends FunctionEvent {
  /** Of the response; 0 without one. */
  status: number
  /** From 1; more than that is a retry. */
  attempt: number
  durationMs: number
  /** null for a successful run. */
  error: string | null
}

/** A step of a job. */
export interface JobEventRecord {
  time: number
  id: string
  /** Of its function version: `runtime/name@version`. */
  key: string
  state: 'queued' | 'running' | 'done' | 'failed' | 'canceled'
  /** Started runs. */
  attempt: number
  /** Of the last response; null without one. */
  status: number | null
  error: string | null
}

interface GatewayEventMap {
  request: RequestRecord
  reload: ReloadRecord
  warning: Warning
  log: LogRecord
  build: BuildRecord
  schedule: ScheduleRecord
  job: JobEventRecord
}

/** Events of `gateway.on()`. */
export type EventName = keyof GatewayEventMap
export const EVENT_NAMES: readonly EventName[] = ['request', 'reload', 'warning', 'log', 'build', 'schedule', 'job']

/**
 * A listener to an event. The record of `warning` is a `Warning`, that of each other event has the event's name.
 * @param line - the access log line of a `request`, valid only during the call; null when none was written, and for other events
 */
export type Listener<Name extends EventName> = (record: GatewayEventMap[Name], line: WrittenLine | null) => void

/**
 * Takes access lines of another process as they are: a record of each would cost more than the rest of its handling.
 * @param lines - each with its line end; valid during the call only
 * @returns false to get them one by one, with their records
 */
export type LinesTaker = (lines: Buffer) => boolean

interface Listening<Name extends EventName> {
  readonly listener: Listener<Name>
  readonly takeLines: LinesTaker | null
}

/** Typed listeners of one gateway. A listener that throws disturbs neither the gateway nor the other listeners. */
export class GatewayEvents {
  readonly #listeners = Object.fromEntries(EVENT_NAMES.map(name => [name, []])) as unknown as {
    [Name in EventName]: Listening<Name>[]
  }
  readonly #onListenerError: (name: EventName, error: unknown) => void
  /** Called when a listener is added or removed. */
  onChange: (() => void) | null = null

  constructor(onListenerError: (name: EventName, error: unknown) => void) {
    this.#onListenerError = onListenerError
  }

  /**
   * @param takeLines - of a listener to `request` that does not need records
   * @returns a function that removes the listener
   * @throws TypeError for an unknown event, or a listener that is not a function
   */
  on<Name extends EventName>(name: Name, listener: Listener<Name>, takeLines: LinesTaker | null = null): () => void {
    if (!EVENT_NAMES.includes(name))
      throw new TypeError(`unknown event ${JSON.stringify(name)}: there are ${EVENT_NAMES.join(', ')}`)
    if (typeof listener !== 'function') throw new TypeError(`listener of "${name}" must be a function`)
    const list = this.#listeners[name] as Listening<Name>[]
    const listening = { listener, takeLines }
    list.push(listening)
    this.onChange?.()
    return () => {
      const index = list.indexOf(listening)
      if (index === -1) return
      list.splice(index, 1)
      this.onChange?.()
    }
  }

  /** True when the event has a listener: checked before a record is made. */
  has(name: EventName): boolean {
    return this.#listeners[name].length > 0
  }

  emit<Name extends EventName>(name: Name, record: GatewayEventMap[Name], line: WrittenLine | null = null): void {
    const list = this.#listeners[name] as Listening<Name>[]
    if (list.length > 0) for (const { listener } of [...list]) this.#call(name, listener, record, line)
  }

  /**
   * As `emit` of a `request` for each line that another process has made.
   * @param toRecord - called only for listeners that do not take the lines
   * @param isLogged - the lines are in the access log
   */
  emitLines(lines: Buffer, toRecord: (line: WrittenLine) => RequestRecord, isLogged: boolean): void {
    const others = this.#listeners.request.filter(({ takeLines }) => !this.#areTaken(takeLines, lines))
    if (others.length === 0) return
    eachLine(lines, line => {
      const record = toRecord(line)
      for (const { listener } of others) this.#call('request', listener, record, isLogged ? line : null)
    })
  }

  #areTaken(takeLines: LinesTaker | null, lines: Buffer): boolean {
    try {
      return takeLines?.(lines) ?? false
    } catch (error) {
      this.#onListenerError('request', error)
      return true
    }
  }

  #call<Name extends EventName>(
    name: Name,
    listener: Listener<Name>,
    record: GatewayEventMap[Name],
    line: WrittenLine | null,
  ): void {
    try {
      listener(record, line)
    } catch (error) {
      this.#onListenerError(name, error)
    }
  }
}
