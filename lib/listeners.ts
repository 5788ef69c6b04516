/** The sockets of a gateway: one for everybody, and one of its own for the control plane where that is asked for. Spec: §1. */

import { GatewayError } from './core/errors.ts'
import type { HttpHandler } from './http/public.ts'
import { HttpServer, type Listening, type ServerOptions } from './http/server.ts'

interface ListenersOptions extends Omit<ServerOptions, 'handle' | 'portFlag'> {
  public: HttpHandler
  /** Serves the control plane alone; null where it shares the public socket. */
  control: HttpHandler | null
}

export interface GatewayListening extends Listening {
  /** The control plane's own socket; null when it has none. */
  control: Listening | null
}

export class Listeners {
  readonly #options: ListenersOptions
  #public: HttpServer | null = null
  #control: HttpServer | null = null
  #publicAt: Listening | null = null
  #controlAt: Listening | null = null

  constructor(options: ListenersOptions) {
    this.#options = options
  }

  /** Every socket that is listened on now. */
  get all(): readonly Listening[] {
    return [this.#publicAt, this.#controlAt].flatMap(listening => listening ?? [])
  }

  /**
   * Listens for everybody, and on `controlPort` of the same host for the control plane.
   * @throws ListenError; then another port may be tried, and the control plane's socket is kept
   */
  async listen(port: number, host: string, controlPort: number | null): Promise<GatewayListening> {
    const { public: handle, control, ...options } = this.#options
    if (this.#public !== null) throw new GatewayError('INTERNAL', 'gateway is already listening')
    const server = new HttpServer({ ...options, handle, portFlag: '--port' })
    this.#public = server
    try {
      if (control !== null && controlPort !== null && this.#control === null) {
        const own = new HttpServer({ ...options, handle: control, portFlag: '--control-port' })
        this.#controlAt = await own.listen(controlPort, host)
        this.#control = own
      }
      this.#publicAt = await server.listen(port, host)
    } catch (error) {
      this.#public = null
      throw error
    }
    return { ...this.#publicAt, control: this.#controlAt }
  }

  /** As HttpServer.close, for both. */
  async close(timeoutMs: number): Promise<void> {
    await Promise.all([this.#public?.close(timeoutMs), this.#control?.close(timeoutMs)])
  }
}
