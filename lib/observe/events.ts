/** What happens in a gateway, for the program that embeds it and for the logs. In process only. Spec: §6. */

import type { ErrorCode, ErrorDetail, Warning } from '../core/errors.ts'
import { eachLine, type WrittenLine } from './line-buffer.ts'

/** One answered (or left) request of the public or control plane. */
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
  /** 499 when the client left before the answer. */
  status: number
  durationMs: number
  /** Waiting for a place, ms. */
  queuedMs: number
  bytesIn: number
  bytesOut: number
  ip: string
  userAgent: string | null
  /** 32 digits. */
  traceId: string
  /** Message of the gateway's own refusal or failure. */
  error: string | null
}

export interface ReloadRecord {
  time: number
  /** Why it was done: `watch`, `api`, `start`. */
  cause: string
  functions: number
  routes: number
  warnings: number
  durationMs: number
}

/** Output of a function or word of the gateway. */
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
  /** Of a failed call: what was asked for, and what is known of the failure. */
  method?: string
  path?: string
  code?: ErrorCode
  detail?: ErrorDetail
}

/** A tool begins or ends to build a function or to install its packages. */
export interface BuildRecord {
  time: number
  /** `building`, or `installing packages of`. */
  action: string
  state: 'began' | 'ended'
  /** `runtime/name@version`. */
  key: string
  runtime: string
  fn: string
  version: string
}

/** A run of a schedule ended. */
export interface ScheduleRecord {
  time: number
  /** `runtime/name@version`. */
  key: string
  runtime: string
  fn: string
  version: string
  /** Of the answer; 0 when there is none. */
  status: number
  /** From 1; more than that is a retry. */
  attempt: number
  durationMs: number
  /** null for a good answer. */
  error: string | null
}

/** A step of a job. */
export interface JobEventRecord {
  time: number
  id: string
  /** Of its function version: `runtime/name@version`. */
  key: string
  state: 'queued' | 'running' | 'done' | 'failed' | 'canceled'
  /** Runs that began. */
  attempt: number
  /** Of the last answer; null when there is none. */
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

export type EventName = keyof GatewayEventMap
/** @param line - the access line of a `request`, valid during the call only; null where none was written, and for other events */
export type Listener<Name extends EventName> = (record: GatewayEventMap[Name], line: WrittenLine | null) => void

/**
 * Takes access lines of another process as they came: to make a record of each would cost more than all else of them.
 * @param lines - each with its end; valid during the call only
 * @returns false when they are wanted one by one, with their records
 */
export type LinesTaker = (lines: Buffer) => boolean

interface Listening<Name extends EventName> {
  readonly listener: Listener<Name>
  readonly takeLines: LinesTaker | null
}

export const EVENT_NAMES: readonly EventName[] = ['request', 'reload', 'warning', 'log', 'build', 'schedule', 'job']

/** Typed listeners of one gateway. A listener that throws disturbs neither the gateway nor the other listeners. */
export class GatewayEvents {
  readonly #listeners: { [Name in EventName]: Listening<Name>[] } = {
    request: [],
    reload: [],
    warning: [],
    log: [],
    build: [],
    schedule: [],
    job: [],
  }
  readonly #onListenerError: (name: EventName, error: unknown) => void
  /** Called when a listener is added or removed. */
  onChange: (() => void) | null = null

  constructor(onListenerError: (name: EventName, error: unknown) => void) {
    this.#onListenerError = onListenerError
  }

  /**
   * @param takeLines - of a listener to `request` that can do without records
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

  /** True when an emit would reach someone: asked before a record is made. */
  has(name: EventName): boolean {
    return this.#listeners[name].length > 0
  }

  emit<Name extends EventName>(name: Name, record: GatewayEventMap[Name], line: WrittenLine | null = null): void {
    const list = this.#listeners[name] as Listening<Name>[]
    if (list.length > 0) for (const { listener } of [...list]) this.#call(listener, name, record, line)
  }

  /**
   * As `emit` of a `request` for each of the lines that another process has made.
   * @param toRecord - called only for listeners that do not take the lines as they are
   * @param isLogged - the lines are in the access log
   */
  emitLines(lines: Buffer, toRecord: (line: WrittenLine) => RequestRecord, isLogged: boolean): void {
    const others = this.#listeners.request.filter(
      ({ takeLines }) => takeLines === null || !this.#areTaken(takeLines, lines),
    )
    if (others.length === 0) return
    eachLine(lines, line => {
      const record = toRecord(line)
      for (const { listener } of others) this.#call(listener, 'request', record, isLogged ? line : null)
    })
  }

  #areTaken(takeLines: LinesTaker, lines: Buffer): boolean {
    try {
      return takeLines(lines)
    } catch (error) {
      this.#onListenerError('request', error)
      return true
    }
  }

  #call<Name extends EventName>(
    listener: Listener<Name>,
    name: Name,
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
