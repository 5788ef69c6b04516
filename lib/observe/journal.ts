/** Events and logs of a gateway: reported to its listeners and written to its logs. Owner: §6, page observe/events. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { toFunctionLabels } from '../core/identity.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { AccessLogFormat, PAUSED_NOTE, PausedLogFormat } from './access-log.ts'
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
import { OutputBudget, SecretMask } from './function-output.ts'
import type { WrittenLine } from './line-buffer.ts'
import { isFailure, toFailureDetail, toFailureText, toPrintable } from './log-line.ts'
import { type LogQuery, LogStore } from './log-store.ts'
import { traceIdOf } from './trace.ts'

export interface JournalOptions {
  clock: Clock
  /** Folder whose `.svc/logs` gets the log files; null keeps the newest lines in memory only. */
  functionsRoot: string | null
  /** True writes a line for each request. */
  accessLog: boolean
}

interface CallOrigin {
  id: string
  /** Its `traceparent`. */
  trace: string
}

export interface FailedCall extends CallOrigin {
  /** null when none was found yet. */
  fn: FunctionVersion | null
  method: string
  path: string
}

export class Journal {
  readonly events: GatewayEvents
  /** Hides secrets in output and errors of functions, before they are logged or shown. */
  readonly secrets = new SecretMask()
  readonly #clock: Clock
  readonly #logs: LogStore
  readonly #outputBudget: OutputBudget
  readonly #accessLog: boolean
  readonly #accessFormat = new AccessLogFormat()
  /** Unfinished builds by key. */
  readonly #builds = new Map<string, BuildRecord>()
  /** Failures logged with a call, and those of a build, an install or a load without one: each is logged once. */
  readonly #logged = new WeakSet<GatewayError>()
  readonly #reported = new WeakSet<GatewayError>()
  /** The last failure without a call: the frames of a broken module that many functions import are logged once. */
  #lastReport = ''
  /** Called for every failure of a function. */
  onFailure: ((fn: FunctionVersion, message: string) => void) | null = null
  /** Warnings that were reported and still hold. */
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
   * Reads the lines of earlier runs. Never rejects.
   * @returns a warning when the log files cannot be written
   */
  async open(): Promise<Warning[]> {
    const problem = await this.#logs.open()
    if (problem === null) return []
    const message = `log files cannot be written, the newest lines are kept in memory only: ${problem}`
    const hint = 'make .svc/logs of the functions root writable, or serve without --log-files'
    return [{ code: 'LOGS_NOT_WRITTEN', path: '.svc/logs', message, hint }]
  }

  /** Writes the remaining lines. */
  close(): Promise<void> {
    return this.#logs.close()
  }

  /** A message of the gateway itself. */
  log(level: LogRecord['level'], message: string): void {
    if (level !== 'debug') this.#logs.error(level, message)
    this.#emitLog(level, message)
  }

  /** Output of a function, within its budget. */
  output(fn: FunctionVersion, stream: 'stdout' | 'stderr', written: string, call: CallOrigin | null = null): void {
    const text = this.#outputBudget.take(fn.key, written)
    if (text === '') return
    const fields = { ...toFunctionLabels(fn), stream, ...(call !== null && toCallFields(call)) }
    this.#logs.output({ ...fields, text })
    if (!this.events.has('log')) return
    const level = stream === 'stderr' ? 'warn' : 'info'
    this.events.emit('log', { time: this.#clock.wall(), level, message: text, ...fields })
  }

  /** A function that could not be loaded, or whose worker ended by itself. @param others - functions with the same failure */
  failure(fn: FunctionVersion, error: GatewayError, others: readonly FunctionVersion[] = []): void {
    // A call that waited for it has reported it.
    if (this.#logged.has(error)) return
    this.#reported.add(error)
    const { code, message, detail: { stack: _, hint: __, ...place } = {} } = error
    const report = JSON.stringify([message, place.file, place.line])
    const isSame = report === this.#lastReport && place.file !== fn.entryFile
    this.#lastReport = report
    const shown = isSame ? new GatewayError(code, message, { detail: place }) : error
    this.#logFailure(shown, toFunctionLabels(fn), [fn, ...others])
  }

  /** A call that ended without a response of its function: logged when it is a failure, not when it is a refusal. */
  callFailed({ fn, id, trace, method, path }: FailedCall, error: GatewayError): void {
    if (!isFailure(error) || this.#reported.has(error)) return
    this.#logged.add(error)
    const call = { ...toCallFields({ id, trace }), method, path }
    if (fn === null) this.#logFailure(error, call, [])
    else this.#logFailure(error, { ...call, ...toFunctionLabels(fn) }, [fn])
  }

  #logFailure(error: GatewayError, fields: Partial<LogRecord>, failed: readonly FunctionVersion[]): void {
    const detail = toFailureDetail(error)
    const { headline: text, frames, hint } = toFailureText(error.message, failed[0]?.entryFile ?? null, detail)
    for (const fn of failed) this.onFailure?.(fn, text)
    const headline = failed.length > 1 ? `${text}; ${failed.length} functions are affected` : text
    const { method, path, runtime, fn } = fields
    const request = method === undefined ? '' : `${method} ${path}: `
    const lines = [`${request}${headline}${hint === null ? '' : ` (${hint})`}`, ...frames].map(toPrintable)
    // A function that fails at full speed must not fill the logs.
    const kept = this.#outputBudget.take(`failures of ${runtime}/${fn}`, lines.join('\n'))
    if (kept === '') return
    this.#logs.failure(kept.split('\n'), fields)
    const record = { time: this.#clock.wall(), level: 'error', message: headline, ...fields } as const
    // The headline has the line of the stack that says the same.
    const shown = frames.length === 0 ? detail : { ...detail, stack: frames.join('\n') }
    this.events.emit('log', { ...record, code: error.code, detail: shown })
  }

  /** A tool begins to work for a function. @param action - `building` */
  buildBegan(fn: FunctionVersion, action: string): void {
    this.#logs.error('info', `${action} ${fn.key}`)
    this.#builds.set(fn.key, this.#emitBuild(fn, action, 'began'))
  }

  buildEnded(fn: FunctionVersion, action: string): void {
    this.#builds.delete(fn.key)
    this.#emitBuild(fn, action, 'ended')
  }

  #emitBuild(fn: FunctionVersion, action: string, state: BuildRecord['state']): BuildRecord {
    const record = { time: this.#clock.wall(), action, state, key: fn.key, ...toFunctionLabels(fn) }
    this.events.emit('build', record)
    return record
  }

  /** As GatewayEvents.on; a listener for builds also gets the unfinished ones. */
  on<Name extends EventName>(name: Name, listener: Listener<Name>, takeLines: LinesTaker | null = null): () => void {
    const stop = this.events.on(name, listener, takeLines)
    if (name === 'build') for (const build of this.builds) (listener as Listener<'build'>)(build, null)
    return stop
  }

  /** Unfinished builds. */
  get builds(): Iterable<BuildRecord> {
    return this.#builds.values()
  }

  warn(warning: Warning): void {
    this.#logs.error('warn', `${warning.code} ${warning.message} (${warning.hint})`)
    this.events.emit('warning', warning)
  }

  /** Reports the warnings that did not hold before. */
  warnNew(warnings: readonly Warning[]): void {
    const before = this.#known
    this.#known = new Set()
    for (const warning of warnings) {
      const text = `${warning.code} ${warning.message}`
      if (!before.has(text) && !this.#known.has(text)) this.warn(warning)
      this.#known.add(text)
    }
  }

  reloaded(record: ReloadRecord): void {
    this.events.emit('reload', record)
  }

  /** The newest lines of a log, oldest first. */
  tail(query: LogQuery & { lines: number }): string[] {
    return this.#logs.tail(query)
  }

  /** Passes on every line of a log from now on. @returns a function that ends it */
  follow(query: LogQuery, onLine: (line: string) => void): () => void {
    return this.#logs.follow(query, onLine)
  }

  /** False without a listener and an access log: then no record is needed. */
  get wantsRequests(): boolean {
    return this.#accessLog || this.events.has('request')
  }

  request(record: RequestRecord): void {
    const line = this.#accessLog ? this.#logs.access(this.#accessFormat, record) : null
    if (this.events.has('request')) this.events.emit('request', record, line)
  }

  /** As `request`, for a request whose handler a debugger stopped for a while. */
  requestPaused(record: RequestRecord): void {
    const noted: RequestRecord = { ...record, note: PAUSED_NOTE }
    const line = this.#accessLog ? this.#logs.access(new PausedLogFormat(), noted) : null
    if (this.events.has('request')) this.events.emit('request', noted, line)
  }

  /**
   * As `request`, for requests whose lines another process has written, each with its line end.
   * @param toRecord - called only for listeners that do not take lines
   */
  requestLines(lines: Buffer, toRecord: (line: WrittenLine) => RequestRecord): void {
    if (this.#accessLog) this.#logs.accessLines(lines)
    this.events.emitLines(lines, toRecord, this.#accessLog)
  }

  #emitLog(level: LogRecord['level'], message: string): void {
    this.events.emit('log', { time: this.#clock.wall(), level, message })
  }
}

function toCallFields({ id, trace }: CallOrigin) {
  return { requestId: id, traceId: traceIdOf(trace) }
}
