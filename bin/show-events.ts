/** `--json`: each event of the gateway as one object a line on standard output, for a program. Owner: page bin/dev. */

import type { Output } from './output.ts'
import { createOutputStream } from './show-log.ts'
import { EarlyWarnings, isShownLevel, isShownRequest, type Show } from './show.ts'

/**
 * @param production - true writes in batches: one write per request would cost more than the line
 * @param pid - the process that a signal to the gateway is sent to
 */
export function createEventShow(output: Output, production: boolean, pid: number = process.pid): Show {
  const lines = production ? createOutputStream(output, count => toLine('dropped', { count })) : null
  const emit = (event: string, record: object): void => {
    if (lines === null) output.result(toLine(event, record))
    else lines.append(toLine(event, record))
  }
  const early = new EarlyWarnings()
  let isReady = false
  return {
    note: text => output.note(text),
    ready(gateway, url) {
      for (const warning of [...gateway.warnings, ...early.besides(gateway)]) emit('warning', warning)
      isReady = true
      emit('ready', { url, pid })
      void lines?.flush()
    },
    follow(gateway) {
      gateway.on('log', record => {
        if (isShownLevel(record.level, gateway)) emit('log', record)
      })
      gateway.on('warning', warning => {
        if (isReady) emit('warning', warning)
        else early.add(warning)
      })
      gateway.on('build', record => emit('build', record))
      gateway.on('reload', record => {
        if (isReady) emit('reload', record)
      })
      if (!gateway.settings.accessLog) return
      gateway.on('request', record => {
        if (isShownRequest(record.path, gateway)) emit('request', record)
      })
    },
    stopping: () => {},
    close: () => lines?.flush() ?? Promise.resolve(),
  }
}

function toLine(event: string, record: object): string {
  return JSON.stringify({ event, ...record })
}
