/** Whatever a gateway has to say, told to its listeners and written to its logs. Owner: §6, page observe/events. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError, Warning } from '../core/errors.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { AccessLogFormat } from './access-log.ts'
import { GatewayEvents, type LogRecord, type ReloadRecord, type RequestRecord } from './events.ts'
import { LogStore } from './log-store.ts'
import { OutputBudget } from './output-budget.ts'

export interface JournalOptions {
  clock: Clock
  /** Folder whose `.svc/logs` gets the log files; null keeps the newest lines in memory only. */
  functionsRoot: string | null
  /** True writes a line for each request. */
  accessLog: boolean
}

export class Journal {
  readonly events: GatewayEvents
  readonly #clock: Clock
  readonly #logs: LogStore
  readonly #outputBudget: OutputBudget
  readonly #accessLog: boolean
  readonly #accessFormat = new AccessLogFormat()
  /** Warnings that were told and still hold. */
  #known = new Set<string>()

  constructor({ clock, functionsRoot, accessLog }: JournalOptions) {
    this.#clock = clock
    this.#accessLog = accessLog
    this.#outputBudget = new OutputBudget(clock)
    this.events = new GatewayEvents((name, error) => this.log('error', `listener of "${name}" threw: ${String(error)}`))
    this.#logs = new LogStore({
      clock,
      directory: functionsRoot === null ? null : new OwnFolder(functionsRoot, '.svc', 'logs'),
      // Not into the log that cannot be written.
      onProblem: message => this.#emitLog('warn', message),
    })
  }

  /** Reads what earlier runs left. Never rejects. */
  open(): Promise<void> {
    return this.#logs.open()
  }

  /** Writes what is left. */
  close(): Promise<void> {
    return this.#logs.close()
  }

  /** Words of the gateway itself. */
  log(level: LogRecord['level'], message: string): void {
    if (level !== 'debug') this.#logs.error(level, message)
    this.#emitLog(level, message)
  }

  /** What a function wrote, within its budget. */
  output(fn: FunctionVersion, stream: 'stdout' | 'stderr', written: string, requestId?: string): void {
    const text = this.#outputBudget.take(fn.key, written)
    if (text === '') return
    const version = fn.version ?? DEFAULT_VERSION_LABEL
    this.#logs.output({ runtime: fn.runtime, fn: fn.name, version, stream, text })
    if (!this.events.has('log')) return
    this.events.emit('log', {
      time: this.#clock.wall(),
      level: stream === 'stderr' ? 'warn' : 'info',
      message: text,
      runtime: fn.runtime,
      fn: fn.name,
      version,
      stream,
      ...(requestId !== undefined && { requestId }),
    })
  }

  /** A worker that could not load its function, or ended by itself. */
  failure(fn: FunctionVersion, error: GatewayError): void {
    const { file, line, hint } = error.detail ?? {}
    const where = file === undefined ? fn.entryFile : line === undefined ? file : `${file}:${line}`
    this.log('error', `${fn.key}: ${where}: ${error.message}${hint === undefined ? '' : ` (${hint})`}`)
  }

  warn(warning: Warning): void {
    this.#logs.error('warn', `${warning.code} ${warning.message} (${warning.hint})`)
    this.events.emit('warning', warning)
  }

  /** Tells the warnings that did not hold before. */
  warnNew(warnings: readonly Warning[]): void {
    const known = new Set<string>()
    for (const warning of warnings) {
      const text = `${warning.code} ${warning.message}`
      if (!this.#known.has(text) && !known.has(text)) this.warn(warning)
      known.add(text)
    }
    this.#known = known
  }

  reloaded(record: ReloadRecord): void {
    this.events.emit('reload', record)
  }

  /** False while nobody wants to know of requests: then no record need be made. */
  get wantsRequests(): boolean {
    return this.#accessLog || this.events.has('request')
  }

  request(record: RequestRecord): void {
    if (this.#accessLog) this.#logs.access(this.#accessFormat, record)
    if (this.events.has('request')) this.events.emit('request', record)
  }

  #emitLog(level: LogRecord['level'], message: string): void {
    this.events.emit('log', { time: this.#clock.wall(), level, message })
  }
}
