/** Terminal output: requests, errors with their frames, output of functions. Owner: page bin/dev. */

import type { LogRecord, RequestRecord } from '../lib/index.ts'
import { toCount } from '../lib/core/text.ts'
import { AccessLogFormat } from '../lib/observe/access-log.ts'
import { toLines } from '../lib/observe/log-line.ts'
import { toBanner, toWarningText } from './banner.ts'
import type { Output } from './output.ts'
import { createOutputStream } from './show-log.ts'
import { createBuildStatus } from './status-line.ts'
import { EarlyWarnings, isShownLevel, isShownRequest, type Followed, type Show } from './show.ts'

type Paint = Output['style']

export interface TextOptions {
  output: Output
  /** `fngw` version. */
  version: string
  /** How `fngw` is typed here. */
  program: string
  /** True writes access lines to standard output and names requests by id, as a log wants it. */
  production: boolean
}

export function createTextShow({ output, version, program, production }: TextOptions): Show {
  const { style } = output
  const format = new AccessLogFormat()
  const status = createBuildStatus(output)
  const lines = production ? createOutputStream(output, toDropLine) : null
  const early = new EarlyWarnings()
  let isReady = false
  return {
    note: text => output.note(text),
    ready(gateway, url, control) {
      isReady = true
      output.note(toBanner({ gateway, url, control, version, program, output }))
      for (const warning of isShownLevel('warn', gateway) ? early.besides(gateway) : [])
        output.note(toWarningText(warning, output))
      output.result(`ready ${url}`)
    },
    follow(gateway) {
      gateway.on('log', record => {
        if (!isShownLevel(record.level, gateway)) return
        // The access line before it says what was asked for.
        const isAsked = record.method !== undefined && !production && gateway.settings.accessLog
        const isProblem = record.stream === undefined && record.code === undefined && /warn|error/.test(record.level)
        const time = isProblem ? `${style('dim', format.toClockText(record.time))} ` : ''
        for (const line of toLogText(record, output, !isAsked)) output.note(time + line)
      })
      gateway.on('build', record => {
        if (status !== null) status.on(record)
        else if (record.state === 'began' && isShownLevel('info', gateway))
          output.note(`${record.action} ${record.key}`)
      })
      gateway.on('warning', warning => {
        if (!isReady) early.add(warning)
        else if (isShownLevel('warn', gateway)) output.note(toWarningText(warning, output))
      })
      gateway.on('reload', ({ durationMs, functions, warnings }) => {
        if (!isReady || !isShownLevel('info', gateway)) return
        const found = warnings === 0 ? '' : `, ${toCount(warnings, 'warning')}`
        const text = `reloaded in ${durationMs.toFixed(0)} ms: ${toCount(functions, 'function')}${found}`
        output.note(style('dim', text))
      })
      followRequests(gateway, record => {
        if (lines === null) {
          if (isControlRead(record)) return
          const note = record.note === undefined ? '' : ` ${record.note}`
          output.note(toAccessText(format.toDevLine(record) + note, record.status, style))
        } else lines.append(format.toDevLine(record))
      })
    },
    stopping: signal => output.note(`${signal}: finishing what runs, once more to stop at once`),
    close: () => {
      status?.close()
      return lines?.flush() ?? Promise.resolve()
    },
  }
}

function toDropLine(count: number): string {
  return `... ${count} access lines were dropped: the reader is too slow`
}

/** An open console and commands that wait ask the control plane all the time: their lines would bury those of the user's requests. */
function isControlRead({ method, path, status }: RequestRecord): boolean {
  return /^\/(?:_fn|console)(?:\/|$)/.test(path) && method === 'GET' && (status < 400 || status === 499)
}

function followRequests(gateway: Followed, show: (record: RequestRecord) => void): void {
  if (!gateway.settings.accessLog) return
  gateway.on('request', record => {
    if (isShownRequest(record.path, gateway)) show(record)
  })
}

/** Colours of an access line: the time aside, the status by its kind. */
export function toAccessText(line: string, status: number, style: Paint): string {
  const from = line.indexOf(' ')
  const to = line.indexOf(' ', from + 1)
  const colour = status >= 500 ? 'red' : status >= 400 ? 'yellow' : status >= 300 ? 'cyan' : 'green'
  return `${style('dim', line.slice(0, from))} ${style(colour, line.slice(from + 1, to))}${line.slice(to)}`
}

/**
 * Words of the gateway, a line of a function, or a failure with its frames.
 * @param withCall - true says of a failure what was asked for
 */
export function toLogText(
  record: LogRecord,
  { clean, style }: Pick<Output, 'clean' | 'style'>,
  withCall = true,
): string[] {
  if (record.stream !== undefined) {
    const prefix = style(record.stream === 'stderr' ? 'yellow' : 'dim', clean(`[fn:${record.fn} ${record.stream}]`))
    return toLines(record.message).map(line => `${prefix} ${clean(line)}`)
  }
  if (record.code !== undefined) return toFailureLines(record, withCall, clean, style)
  const text = clean(record.message)
  if (record.level === 'info' || record.level === 'debug') return [text]
  return [`${style(record.level === 'error' ? 'red' : 'yellow', record.level)} ${text}`]
}

function toFailureLines(record: LogRecord, withCall: boolean, clean: Output['clean'], style: Paint): string[] {
  const { requestId, method, path, runtime, fn, message, detail = {} } = record
  const frames = (detail.stack ?? '').split('\n').filter(line => line.trim() !== '')
  const who = method === undefined ? `${runtime}/${fn}` : `${method} ${path} req=${requestId}`
  const call = withCall ? ` ${style('dim', clean(`(${who})`))}` : ''
  return [
    `${style('red', 'error')} ${style('red', clean(message))}${call}`,
    ...frames.map(frame => style('dim', `    ${clean(frame.trimEnd())}`)),
    ...(detail.hint === undefined ? [] : [`  hint: ${clean(detail.hint)}`]),
  ]
}
