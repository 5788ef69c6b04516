/** The sockets of a gateway: the public one, and a separate one for the control plane where it is set. Spec: §1. */

import type { Settings } from '../config/settings.ts'
import { GatewayError } from '../core/errors.ts'
import type { Lifecycle } from '../core/transitions.ts'
import type { HttpHandler } from '../http/public.ts'
import { HttpServer, type Listening, type ServerOptions, StartGate } from '../http/server.ts'

/** The response to requests that come too late. */
export const STOPPING = new GatewayError('SHUTTING_DOWN', 'gateway is shutting down', {
  headers: { 'Retry-After': '1' },
})

interface ListenersOptions extends Omit<ServerOptions, 'handle' | 'portFlag'> {
  public: HttpHandler
  /** Serves the control plane alone; null where it shares the public socket. */
  control: HttpHandler | null
  lifecycle: Readonly<Lifecycle> & ServerOptions['lifecycle']
}

/** An address for `gateway.listen()`. Absent fields come from the settings. */
export interface ListenAddress {
  /** 0 takes a free port. */
  port?: number
  host?: string
  /** Used instead of `port` and `host`. */
  handed?: HandedSockets
}

/** Listening sockets that a service manager opened, as file descriptors of this process. */
export interface HandedSockets {
  /** For public requests. */
  readonly public: readonly number[]
  /** For the control plane; null without a separate socket. */
  readonly control: number | null
}

/** The addresses that a gateway listens on. */
export interface GatewayListening extends Listening {
  /** The separate socket of the control plane; null without one. */
  control: Listening | null
}

export class Listeners {
  readonly #options: ListenersOptions
  readonly #gate: StartGate
  #public: HttpServer[] = []
  #control: HttpServer | null = null
  #publicAt: Listening[] = []
  #controlAt: Listening | null = null

  constructor(options: ListenersOptions) {
    this.#options = options
    this.#gate = new StartGate(options)
  }

  /** Every socket that is listened on now. */
  get all(): readonly Listening[] {
    return this.#controlAt === null ? this.#publicAt : [...this.#publicAt, this.#controlAt]
  }

  /** Open connections of the public sockets. */
  get connections(): number {
    return this.#public.reduce((sum, server) => sum + server.connections, 0)
  }

  /** Descriptors of the public sockets. */
  get descriptors(): number[] {
    return this.#public.flatMap(server => server.descriptor ?? [])
  }

  /**
   * Listens on the public address, and on that of the control plane where it is separate.
   * @throws ListenError; then another port may be tried, and the control plane's socket is kept
   */
  async listen(
    settings: Pick<Settings, 'port' | 'host' | 'controlPort'>,
    { port = settings.port, host = settings.host, handed }: ListenAddress = {},
  ): Promise<GatewayListening> {
    const { public: handle, control } = this.#options
    const { controlPort } = settings
    if (this.#public.length > 0) throw new GatewayError('INTERNAL', 'gateway is already listening')
    const fds = handed === undefined || handed.public.length === 0 ? [null] : handed.public
    const servers = fds.map(() => this.#toServer(handle, '--port'))
    this.#public = servers
    try {
      if (control !== null && controlPort !== null && this.#control === null) {
        const own = this.#toServer(control, '--control-port')
        this.#controlAt = await listenAt(own, handed?.control ?? null, controlPort, host)
        this.#control = own
      }
      this.#publicAt = await Promise.all(servers.map((server, at) => listenAt(server, fds[at]!, port, host)))
    } catch (error) {
      // Of several sockets that were handed over some may be good.
      this.#public = servers.filter(server => server.isListening)
      throw error
    }
    return { ...this.#publicAt[0]!, control: this.#controlAt }
  }

  #toServer(handle: HttpHandler, portFlag: string): HttpServer {
    return new HttpServer({ ...this.#options, handle: this.#gate.wrap(handle), portFlag })
  }

  /** The gateway serves from now on: requests that waited begin. */
  open(): void {
    this.#gate.open()
  }

  /** As HttpServer.close, for all. */
  async close(timeoutMs: number): Promise<void> {
    this.#gate.refuse(STOPPING)
    await Promise.all([...this.#public, this.#control].map(server => server?.close(timeoutMs)))
  }
}

function listenAt(server: HttpServer, fd: number | null, port: number, host: string): Promise<Listening> {
  return fd === null ? server.listen(port, host) : server.listenOn(fd)
}
