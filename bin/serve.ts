/** `fngw dev` and `fngw run`: one gateway from settings to signal. Owner: §1, page bin/dev. */

import {
  createGateway,
  type Gateway,
  type GatewayListening,
  type GatewayOptions,
  type HandedSockets,
  type ListenError,
} from '../lib/index.ts'
import { takeHandedSockets } from './handed-sockets.ts'
import { KEY_HELP, type KeyInput, followKeys } from './hot-keys.ts'
import { openDocs, openPage } from './open-url.ts'
import type { Output } from './output.ts'
import { followLine, type Outside, readRoutes, toLocalCidrs } from './outside.ts'
import { serveAsOwnUser } from './own-user.ts'
import { toRouteLines } from './routes.ts'
import { announceGateway } from './running-gateways.ts'
import { takeServiceNotify } from './service-notify.ts'
import { createEventShow } from './show-events.ts'
import { createLogShow } from './show-log.ts'
import { createTextShow } from './show-text.ts'
import type { Show } from './show.ts'
import { giveBackStart } from './start-garbage.ts'
import { followSignals } from './stop-signals.ts'
import { CommandError } from './usage-error.ts'

interface ServeOptions {
  /** The command. */
  name: 'dev' | 'run'
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
  /** Input of keys; null without a terminal. */
  terminal: { input: KeyInput } | null
  /** How it is reached from outside of its container; null where it is in none that `fngw dev` has made. */
  outside: Outside | null
}

const NO_CONTAINER =
  'FN_RUNTIME_IMAGE is for fngw dev: fngw run uses the programs of this machine, and is itself what an image runs'
/** Ports tried after a busy default one. */
const NEXT_PORTS = 20

/** Facts about a gateway before it serves. */
type Opening = Parameters<NonNullable<GatewayOptions['beforeStart']>>[0]

async function listen(gateway: Opening, handed: HandedSockets | null, show: Show): Promise<GatewayListening> {
  const { port, portExplicit } = gateway.settings
  for (let tries = 0; ; tries++) {
    try {
      return await gateway.listen({ port: port + tries, ...(handed && { handed }) })
    } catch (error) {
      const { code, port: refused } = error as ListenError
      const isBusy = code === 'EADDRINUSE' && refused === port + tries
      if (!isBusy || portExplicit || tries >= NEXT_PORTS) throw new CommandError((error as Error).message)
      show.note(`port ${port + tries} is in use, trying ${port + tries + 1}`)
    }
  }
}

function createShow({ settings }: Opening, { json, output, version, program, outside }: ServeOptions): Show {
  if (json) return createEventShow(output, settings.production, outside?.pid ?? process.pid)
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
  const signals = followSignals(process.env)
  try {
    await serveUntil(signals.first, options.outside === null ? options : toInner(options, options.outside))
    return 0
  } finally {
    signals.forget()
  }
}

/** In a container of `fngw dev`: keys and the end come by standard input, and callers of this machine by the container's network. */
function toInner(options: ServeOptions, outside: Outside): ServeOptions {
  const input = followLine(process.stdin, () => process.kill(process.pid, 'SIGTERM'))
  const consoleLocalCidrs = [...toLocalCidrs(outside, readRoutes())]
  return {
    ...options,
    terminal: outside.keys ? { input } : null,
    gateway: { ...options.gateway, defaults: { ...options.gateway.defaults, consoleLocalCidrs } },
  }
}

async function serveUntil(ended: Promise<NodeJS.Signals>, options: ServeOptions): Promise<void> {
  const handed = takeHandedSockets(process.env, process.pid)
  const notify = takeServiceNotify(process.env, process.pid)
  const { gateway, show, listening, forget } = await open(options, handed)
  let stopKeys = (): void => {}
  let stopGarbage = (): void => {}
  try {
    const url = options.outside?.url ?? listening.url
    const control = options.outside === null ? (listening.control?.url ?? null) : options.outside.control
    if (control !== null) show.note(`control plane at ${control}/_fn, and only there`)
    show.ready(gateway, url, control)
    notify.ready(`serving at ${url}`, show.note)
    if (options.open) openPage(url, show.note)
    stopKeys = followServeKeys(gateway, { url, control }, show, options)
    stopGarbage = giveBackStart()
    const signal = await ended
    notify.stopping()
    show.stopping(signal)
  } finally {
    stopKeys()
    stopGarbage()
    forget()
    await gateway.close()
    await show.close()
    await notify.close()
  }
}

interface Opened {
  gateway: Gateway
  show: Show
  listening: GatewayListening
  /** Removes the record by which commands find the gateway. */
  forget: () => void
}

/** Listens first: requests that come before the tree is read wait for it, and probes get an answer. */
async function open(options: ServeOptions, handed: HandedSockets | null): Promise<Opened> {
  let early: Omit<Opened, 'gateway'> | null = null
  // A socket for the control plane alone says as much as a port for it.
  const own = handed?.control == null ? {} : { controlPort: 0 }
  try {
    const gateway = await createGateway({
      ...options.gateway,
      defaults: { ...options.gateway.defaults, ...own },
      beforeStart: async opening => {
        const show = createShow(opening, options)
        // Before anything starts: the first errors of a start are the ones that matter.
        show.follow(opening)
        if (options.name === 'run' && opening.settings.runtimeImage !== null) show.note(NO_CONTAINER)
        const listening = await listen(opening, handed, show)
        early = { show, listening, forget: announce(opening, listening, options) }
      },
    })
    return { gateway, ...early! }
  } catch (error) {
    ;(early as Omit<Opened, 'gateway'> | null)?.forget()
    throw error
  }
}

/** In a container of `fngw dev` the outer process does it: its address is the one that commands reach. */
function announce({ settings }: Opening, { url, control }: GatewayListening, { outside }: ServeOptions): () => void {
  if (outside !== null) return () => {}
  return announceGateway(settings.functionsRoot, { url, control: control?.url ?? null })
}

/** Keys of `fngw dev` at a terminal. @returns a function that gives the terminal back */
function followServeKeys(
  gateway: Gateway,
  { url, control }: { url: string; control: string | null },
  show: Show,
  { json, output, terminal }: ServeOptions,
): () => void {
  if (terminal === null || json || gateway.settings.production) return () => {}
  const hasDocs = async (): Promise<boolean> => (await gateway.inject('/docs')).status === 200
  const stop = followKeys(terminal.input, {
    console: () => {
      if (gateway.settings.uiEnabled) openPage(`${control ?? url}/console`, line => show.note(line))
      else show.note('the console is disabled: start with FN_UI_ENABLED=1')
    },
    docs: () => void openDocs(url, hasDocs(), line => show.note(line)).catch(() => {}),
    reload: () => void gateway.reload().catch(error => show.note(`reload failed: ${output.clean(String(error))}`)),
    routes: () => {
      for (const line of toRouteLines(gateway.catalog())) show.note(output.clean(line))
    },
    clear: () => output.clear(),
  })
  show.note(KEY_HELP)
  return stop
}
