/** Whatever a gateway has to say, told to its listeners and written to its logs. Owner: §6, page observe/events. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { AccessLogFormat } from './access-log.ts'
import {
  type BuildRecord,
  type EventName,
  GatewayEvents,
  type LinesTaker,
  type Listener,
  type LogRecord,
  type ReloadRecord,
  type RequestRecord,
} from './events.ts'
import { isFailure, type LogOrigin, toFailureDetail, toFailureText, toPrintable } from './log-line.ts'
import type { WrittenLine } from './line-buffer.ts'
import { type LogQuery, LogStore } from './log-store.ts'
import { OutputBudget, SecretMask } from './function-output.ts'
import { traceIdOf } from './trace.ts'

export interface JournalOptions {
  clock: Clock
  /** Folder whose `.svc/logs` gets the log files; null keeps the newest lines in memory only. */
  functionsRoot: string | null
  /** True writes a line for each request. */
  accessLog: boolean
}

/** A call as its failure is told. */
interface FailedCall {
  /** null when none was found yet. */
  fn: FunctionVersion | null
  id: string
  /** Its `traceparent`. */
  trace: string
  method: string
  path: string
}

export class Journal {
  readonly events: GatewayEvents
  /** For what functions print and throw, before it is told here or shown elsewhere. */
  readonly secrets = new SecretMask()
  readonly #clock: Clock
  readonly #logs: LogStore
  readonly #outputBudget: OutputBudget
  readonly #accessLog: boolean
  readonly #accessFormat = new AccessLogFormat()
  /** Builds that go on, by key. */
  readonly #builds = new Map<string, BuildRecord>()
  /** Failures logged for a call, and those of a build, an install or a load without one: each is logged once. */
  readonly #told = new WeakSet<GatewayError>()
  readonly #reported = new WeakSet<GatewayError>()
  /** The last failure without a call: a broken module that many functions import is logged with its frames once. */
  #lastReport = ''
  /** Hears of every failure of a function; null where nobody keeps them. */
  onFailure: ((fn: FunctionVersion, message: string) => void) | null = null
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

  /**
   * Reads what earlier runs left. Never rejects.
   * @returns a warning when the log files cannot be written
   */
  async open(): Promise<Warning[]> {
    const problem = await this.#logs.open()
    if (problem === null) return []
    const message = `log files cannot be written, the newest lines are kept in memory only: ${problem}`
    const hint = 'make .svc/logs of the functions root writable, or serve without --log-files'
    return [{ code: 'LOGS_NOT_WRITTEN', path: '.svc/logs', message, hint }]
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
  output(
    fn: FunctionVersion,
    stream: 'stdout' | 'stderr',
    written: string,
    call: Pick<FailedCall, 'id' | 'trace'> | null = null,
  ): void {
    const text = this.#outputBudget.take(fn.key, written)
    if (text === '') return
    const fields = { ...toFunctionFields(fn), stream, ...(call !== null && toCallFields(call)) }
    this.#logs.output({ ...fields, text })
    if (!this.events.has('log')) return
    this.events.emit('log', {
      time: this.#clock.wall(),
      level: stream === 'stderr' ? 'warn' : 'info',
      message: text,
      ...fields,
    })
  }

  /** A function that could not be loaded, or whose worker ended by itself. */
  failure(fn: FunctionVersion, error: GatewayError, others: readonly FunctionVersion[] = []): void {
    // A call that waited for it has told.
    if (this.#told.has(error)) return
    this.#reported.add(error)
    const { message, detail } = error
    const report = JSON.stringify([message, detail?.file, detail?.line])
    const isSame = report === this.#lastReport && detail?.file !== fn.entryFile
    this.#lastReport = report
    this.#tellFailure(isSame ? withoutStack(error) : error, toFunctionFields(fn), fn, others)
  }

  /** A call that ended without an answer of its function: told when it is a failure, not when it is a refusal. */
  callFailed({ fn, id, trace, method, path }: FailedCall, error: GatewayError): void {
    if (!isFailure(error) || this.#reported.has(error)) return
    this.#told.add(error)
    const call = { ...toCallFields({ id, trace }), method, path }
    this.#tellFailure(error, fn === null ? call : { ...call, ...toFunctionFields(fn) }, fn)
  }

  /** @param others - functions that the same failure concerns */
  #tellFailure(
    error: GatewayError,
    fields: Partial<LogRecord>,
    failed: FunctionVersion | null,
    others: readonly FunctionVersion[] = [],
  ): void {
    const detail = toFailureDetail(error)
    const { headline: text, frames, hint } = toFailureText(error.message, failed?.entryFile ?? null, detail)
    for (const fn of failed === null ? [] : [failed, ...others]) this.onFailure?.(fn, text)
    const headline = others.length === 0 ? text : `${text}; ${others.length + 1} functions are affected`
    const { method, path, runtime, fn } = fields
    const asked = method === undefined ? '' : `${method} ${path}: `
    const lines = [`${asked}${headline}${hint === null ? '' : ` (${hint})`}`, ...frames].map(toPrintable)
    // A function that fails at full speed must not fill the logs.
    const kept = this.#outputBudget.take(`failures of ${runtime}/${fn}`, lines.join('\n'))
    if (kept === '') return
    this.#logs.failure(kept.split('\n'), fields)
    const record = { time: this.#clock.wall(), level: 'error', message: headline, ...fields } as const
    // The headline has the line of the stack that says the same.
    const told = frames.length === 0 ? detail : { ...detail, stack: frames.join('\n') }
    this.events.emit('log', { ...record, code: error.code, detail: told })
  }

  /** A tool begins to work for a function. @param action - `building` */
  buildBegan(fn: FunctionVersion, action: string): void {
    this.#logs.error('info', `${action} ${fn.key}`)
    const record = { time: this.#clock.wall(), action, state: 'began', key: fn.key, ...toFunctionFields(fn) } as const
    this.#builds.set(fn.key, record)
    this.events.emit('build', record)
  }

  buildEnded(fn: FunctionVersion, action: string): void {
    this.#builds.delete(fn.key)
    const time = this.#clock.wall()
    this.events.emit('build', { time, action, state: 'ended', key: fn.key, ...toFunctionFields(fn) })
  }

  /** As GatewayEvents.on; who listens for builds is told of those that run, which may have begun before anybody could listen. */
  on<Name extends EventName>(name: Name, listener: Listener<Name>, takeLines: LinesTaker | null = null): () => void {
    const stop = this.events.on(name, listener, takeLines)
    if (name === 'build') for (const build of this.builds) (listener as Listener<'build'>)(build, null)
    return stop
  }

  /** Builds that go on, for who begins to listen. */
  get builds(): Iterable<BuildRecord> {
    return this.#builds.values()
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

  /** The newest lines of a log, oldest first. */
  tail(query: LogQuery & { lines: number }): string[] {
    return this.#logs.tail(query)
  }

  /** Tells every line of a log that comes from now on. @returns a function that ends it */
  follow(query: LogQuery, onLine: (line: string) => void): () => void {
    return this.#logs.follow(query, onLine)
  }

  /** False while nobody wants to know of requests: then no record need be made. */
  get wantsRequests(): boolean {
    return this.#accessLog || this.events.has('request')
  }

  request(record: RequestRecord): void {
    const line = this.#accessLog ? this.#logs.access(this.#accessFormat, record) : null
    if (this.events.has('request')) this.events.emit('request', record, line)
  }

  /**
   * As `request`, for those whose lines another process has written, each with its end.
   * @param toRecord - called only when somebody listens who does not take lines
   */
  requestLines(lines: Buffer, toRecord: (line: WrittenLine) => RequestRecord): void {
    if (this.#accessLog) this.#logs.accessLines(lines)
    if (this.events.has('request')) this.events.emitLines(lines, toRecord, this.#accessLog)
  }

  #emitLog(level: LogRecord['level'], message: string): void {
    this.events.emit('log', { time: this.#clock.wall(), level, message })
  }
}

function withoutStack({ code, message, detail: { stack: _, hint: __, ...detail } = {} }: GatewayError): GatewayError {
  return new GatewayError(code, message, { detail })
}

function toCallFields({ id, trace }: Pick<FailedCall, 'id' | 'trace'>): LogOrigin {
  return { requestId: id, traceId: traceIdOf(trace) }
}

function toFunctionFields({ runtime, name, version }: FunctionVersion): {
  runtime: string
  fn: string
  version: string
} {
  return { runtime, fn: name, version: version ?? DEFAULT_VERSION_LABEL }
}
