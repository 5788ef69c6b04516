/**
 * `fngw run`: access lines on standard output, everything else on standard error, one JSON object a line each.
 * Owner: page bin/dev.
 */

import type { Gateway, LogRecord, RequestRecord } from '../lib/index.ts'
import { systemClock } from '../lib/core/clock.ts'
import { toCount } from '../lib/core/text.ts'
import { AccessLogFormat } from '../lib/observe/access-log.ts'
import { LineStream, type WrittenLine } from '../lib/observe/line-buffer.ts'
import { toJsonLogLines } from '../lib/observe/log-line.ts'
import type { Output } from './output.ts'
import { EarlyWarnings, isShownLevel, isShownRequest, mayHideOne, type Show } from './show.ts'

export function createLogShow(output: Output): Show {
  const format = new AccessLogFormat()
  const lines = createOutputStream(output, toDropLine)
  const put = (record: LogRecord): void => {
    for (const line of toJsonLogLines(record)) output.note(line)
  }
  const log = (level: LogRecord['level'], message: string): void => put({ time: Date.now(), level, message })
  const early = new EarlyWarnings()
  let isReady = false
  return {
    note: text => log('info', text),
    ready(gateway, url) {
      for (const { code, message, hint } of [...gateway.warnings, ...early.besides(gateway)])
        log('warn', `${code} ${message} (${hint})`)
      isReady = true
      log('info', toServingText(gateway, url))
      const ready = {
        event: 'ready',
        time: new Date().toISOString(),
        level: 'info',
        msg: 'ready',
        url,
        pid: process.pid,
      }
      output.result(JSON.stringify(ready))
    },
    follow(gateway) {
      const add = (record: LogRecord): void => {
        if (isShownLevel(record.level, gateway)) put(record)
      }
      const say = (level: LogRecord['level'], message: string) => add({ time: Date.now(), level, message })
      gateway.on('log', add)
      gateway.on('build', ({ state, key, action }) => {
        if (state === 'began') say('info', `${action} ${key}`)
      })
      gateway.on('warning', warning => {
        const { code, message, hint } = warning
        if (!isReady) early.add(warning)
        else say('warn', `${code} ${message} (${hint})`)
      })
      gateway.on('reload', ({ functions, routes, durationMs }) => {
        const counts = `${toCount(functions, 'function')}, ${toCount(routes, 'route')}`
        if (isReady) say('info', `reloaded in ${durationMs.toFixed(0)} ms: ${counts}`)
      })
      if (!gateway.settings.accessLog) return
      const show = (record: RequestRecord, line: WrittenLine | null): void => {
        if (!isShownRequest(record.path, gateway)) return
        // To make the line once more would cost half a microsecond a request.
        if (line === null) lines.appendRecord(format, record)
        else lines.appendCopy(line)
      }
      gateway.on('request', show, many => {
        if (mayHideOne(many)) return false
        lines.appendLines(many)
        return true
      })
    },
    stopping: signal => log('info', `${signal}: finishing what runs`),
    close: () => lines.flush(),
  }
}

/** Standard output in batches, which waits for its reader. */
export function createOutputStream({ stdout }: Output, toDropLine: (count: number) => string): LineStream {
  return new LineStream({ clock: systemClock, stream: stdout, toDropLine })
}

/** The line that stands for access lines that found no room. */
function toDropLine(count: number): string {
  const message = `${count} access lines were dropped: the reader is too slow`
  return toJsonLogLines({ time: Date.now(), level: 'warn', message })[0]!
}

function toServingText(gateway: Gateway, url: string): string {
  return `serving ${gateway.settings.functionsRoot} at ${url}: ${toCount(gateway.counts().routes, 'route')}`
}
