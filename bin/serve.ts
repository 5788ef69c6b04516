/** `fngw dev` and `fngw run`: one gateway from settings to signal. Owner: §1, page bin/dev. */

import {
  createGateway,
  type Gateway,
  type GatewayListening,
  type GatewayOptions,
  type ListenError,
} from '../lib/index.ts'
import { KEY_HELP, type KeyInput, listenForKeys } from './hot-keys.ts'
import { openUrl } from './open-url.ts'
import type { Output } from './output.ts'
import { serveAsOwnUser } from './own-user.ts'
import { followParent } from './parent-watch.ts'
import { toRouteLines } from './routes.ts'
import { createEventShow } from './show-events.ts'
import { createLogShow } from './show-log.ts'
import { createTextShow } from './show-text.ts'
import type { Show } from './show.ts'
import { CommandError } from './usage-error.ts'

interface ServeOptions {
  gateway: GatewayOptions
  /** True shows every event as JSON. */
  json: boolean
  /** True opens the address in the browser. */
  open: boolean
  output: Output
  /** `fngw` version. */
  version: string
  /** How `fngw` is typed here. */
  program: string
  /** Where keys are pressed; null where there is nobody. */
  terminal: { input: KeyInput } | null
}

/** Ports tried after a busy default one. */
const NEXT_PORTS = 20

async function listen(gateway: Gateway, show: Show): Promise<GatewayListening> {
  const { port, portExplicit } = gateway.settings
  for (let tries = 0; ; tries++) {
    try {
      return await gateway.listen({ port: port + tries })
    } catch (error) {
      const { code, port: refused } = error as ListenError
      const isBusy = code === 'EADDRINUSE' && refused === port + tries
      if (!isBusy || portExplicit || tries >= NEXT_PORTS) throw new CommandError((error as Error).message)
      show.note(`port ${port + tries} is in use, trying ${port + tries + 1}`)
    }
  }
}

function createShow({ settings }: Gateway, { json, output, version, program }: ServeOptions): Show {
  if (json) return createEventShow(output, settings.production)
  if (settings.logFormat === 'json') return createLogShow(output)
  return createTextShow({ output, version, program, production: settings.production })
}

/**
 * Serves until a signal; resolves with the exit code. The first SIGINT or SIGTERM drains, the second ends at once.
 * @throws CommandError when it cannot start
 */
export async function serve(options: ServeOptions): Promise<number> {
  const code = await serveAsOwnUser(options.gateway)
  if (code !== null) return code
  const ended = nextSignal()
  const gateway = await createGateway(options.gateway)
  const show = createShow(gateway, options)
  let stopKeys = (): void => {}
  try {
    const { url, control } = await listen(gateway, show)
    if (control !== null) show.note(`control plane at ${control.url}/_fn, and only there`)
    show.ready(gateway, url)
    show.follow(gateway)
    if (options.open) openUrl(url, () => show.note(`no browser could be opened: ${url}`))
    stopKeys = followKeys(gateway, url, show, options)
    show.stopping(await ended)
    return 0
  } finally {
    stopKeys()
    await gateway.close()
    await show.close()
  }
}

/** Keys of `fngw dev` at a terminal. @returns a function that gives the terminal back */
function followKeys(gateway: Gateway, url: string, show: Show, { json, output, terminal }: ServeOptions): () => void {
  if (terminal === null || json || gateway.settings.production) return () => {}
  const open = async (): Promise<void> => {
    const { status } = await gateway.inject('/docs')
    const address = status === 200 ? `${url}/docs` : url
    openUrl(address, () => show.note(`no browser could be opened: ${address}`))
  }
  const stop = listenForKeys(terminal.input, {
    open: () => void open().catch(() => {}),
    reload: () => void gateway.reload().catch(error => show.note(`reload failed: ${output.clean(String(error))}`)),
    routes: () => {
      for (const line of toRouteLines(gateway.catalog())) show.note(output.clean(line))
    },
    clear: () => output.clear(),
    quit: () => process.kill(process.pid, 'SIGINT'),
    suspend: resume => {
      process.once('SIGCONT', resume)
      process.kill(process.pid, 'SIGTSTP')
    },
  })
  // Whatever ends the process, the terminal is usable afterwards.
  process.once('exit', stop)
  show.note(KEY_HELP)
  return () => {
    process.off('exit', stop)
    stop()
  }
}

/** The first of SIGINT, SIGTERM, SIGHUP; a second one ends the process with its conventional code. */
function nextSignal(): Promise<NodeJS.Signals> {
  followParent(process.env, () => process.kill(process.pid, 'SIGTERM'))
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
