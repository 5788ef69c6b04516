/** `fngw dev` and `fngw run`: one gateway from settings to signal. Owner: §1, page bin/dev. */

import { createGateway, type Gateway, type GatewayOptions, type Listening, type RequestRecord } from '../lib/index.ts'
import { toBanner } from './banner.ts'
import type { Output } from './output.ts'
import { CommandError } from './usage-error.ts'

interface ServeOptions {
  gateway: GatewayOptions
  json: boolean
  output: Output
  /** `fngw` version. */
  version: string
}

/** Ports tried after a busy default one. */
const NEXT_PORTS = 20

async function listen(gateway: Gateway, output: Output): Promise<Listening> {
  const { port, portExplicit } = gateway.settings
  for (let tries = 0; ; tries++) {
    try {
      return await gateway.listen({ port: port + tries })
    } catch (error) {
      const isBusy = (error as { code?: string }).code === 'EADDRINUSE'
      if (!isBusy || portExplicit || tries >= NEXT_PORTS) throw new CommandError((error as Error).message)
      output.note(`port ${port + tries} is in use, trying ${port + tries + 1}`)
    }
  }
}

function toAccessLine(record: RequestRecord): string {
  const time = new Date(record.time).toTimeString().slice(0, 8)
  const handler = record.runtime === null ? '' : ` ${record.runtime} ${record.entryFile}`
  return `${time} ${record.status} ${record.method} ${record.path}${handler} ${record.durationMs.toFixed(1)}ms ${record.bytesOut}B`
}

/** Shows what happens on the terminal, or as one JSON object per line. */
function follow(gateway: Gateway, { json, output }: ServeOptions): void {
  const emit = (event: string, record: object): void => output.result(JSON.stringify({ event, ...record }))
  const { logLevel, accessLog } = gateway.settings
  const levels = ['debug', 'info', 'warn', 'error', 'silent']
  const isShown = (level: string): boolean => levels.indexOf(level) >= levels.indexOf(logLevel)
  gateway.on('log', record => {
    if (!isShown(record.level)) return
    if (json) {
      emit('log', record)
      return
    }
    const prefix = record.fn === undefined ? '' : `[fn:${record.fn} ${record.stream}] `
    for (const line of record.message.replace(/\n$/, '').split('\n')) output.note(output.clean(prefix + line))
  })
  gateway.on('warning', warning => {
    if (json) emit('warning', warning)
    else output.note(output.clean(`warning ${warning.code}: ${warning.message}\n  fix: ${warning.hint}`))
  })
  gateway.on('reload', record => {
    if (json) emit('reload', record)
    else
      output.note(
        `reloaded in ${record.durationMs.toFixed(0)} ms: ${record.functions} functions, ${record.warnings} warnings`,
      )
  })
  if (accessLog && !gateway.settings.production) {
    gateway.on('request', record => {
      if (record.path === '/_fn/health') return
      if (json) emit('request', record)
      else output.note(output.clean(toAccessLine(record)))
    })
  }
}

/**
 * Serves until a signal; resolves with the exit code. The first SIGINT or SIGTERM drains, the second ends at once.
 * @throws CommandError when it cannot start
 */
export async function serve(options: ServeOptions): Promise<number> {
  const { json, output, version } = options
  const ended = nextSignal()
  const gateway = await createGateway(options.gateway)
  try {
    const { url } = await listen(gateway, output)
    if (json) {
      for (const warning of gateway.warnings) output.result(JSON.stringify({ event: 'warning', ...warning }))
      output.result(JSON.stringify({ event: 'ready', url, pid: process.pid }))
    } else {
      output.note(toBanner({ gateway, url, version, style: output.style }))
      output.result(`ready ${url}`)
    }
    follow(gateway, options)
    const signal = await ended
    if (!json) output.note(`${signal}: finishing what runs, once more to stop at once`)
    return 0
  } finally {
    await gateway.close()
  }
}

/** The first of SIGINT, SIGTERM, SIGHUP; a second one ends the process with its conventional code. */
function nextSignal(): Promise<NodeJS.Signals> {
  const codes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const
  return new Promise(resolve => {
    let received = false
    for (const signal of Object.keys(codes) as (keyof typeof codes)[]) {
      process.on(signal, () => {
        if (received) process.exit(codes[signal])
        received = true
        resolve(signal)
      })
    }
  })
}
