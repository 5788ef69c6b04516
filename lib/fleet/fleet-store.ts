/**
 * The connection to the Redis or Valkey server that the gateways of a fleet share. Loaded only where `FN_STORE_URL` is set.
 * Spec: page fleet/fleet-store.
 *
 * A command fails within COMMAND_MS while the server is away, and the connection comes back by itself: no call of a function waits for it.
 */

import type { Socket } from 'node:net'
import type { Redis, RedisOptions } from 'ioredis'
import { GatewayError, type Warning } from '../core/errors.ts'

/** Milliseconds for one command, and for the first connection. */
const COMMAND_MS = 1500
const CONNECT_MS = 5000
/** Milliseconds between attempts to connect again: the first and the longest wait. */
const RECONNECT_MS = { first: 50, longest: 1000 }
/** Milliseconds until a server that answers but cannot serve a fleet is examined again, over a new connection: another one may have taken its place. */
const EXAMINE_MS = 1000
/** Milliseconds for which a refusal of the same kind, such as OOM, is not logged again. */
const REFUSED_MS = 60_000
/** Seconds after which a refused client may ask again. */
const RETRY_AFTER_SECONDS = '2'
const OLDEST_SERVER = [6, 2] as const
const PLACE = 'FN_STORE_URL'
const IS_REPLICA = 'it is a replica, which takes no writes'

export interface StoreOptions {
  url: string
  /** Names the keys of one fleet among those of others. */
  prefix: string
  /** False: the gateway starts without the server, and takes it when it is there. */
  isRequiredAtStart: boolean
  onLog: (level: 'info' | 'warn', message: string) => void
}

/** A package that only fleets need. @throws GatewayError with the command that installs it */
export async function importOptional<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new GatewayError('RUNTIME_DOWN', `FN_STORE_URL needs the package ${name}: npm install bullmq@6 ioredis@5`)
  }
}

/** Connects once and looks at the server, for `fngw doctor`. @throws GatewayError when a package is missing */
export async function examineStore(
  url: string,
  prefix: string,
): Promise<Pick<Store, 'problem' | 'version' | 'warnings'>> {
  const store = await Store.open({ url, prefix, isRequiredAtStart: false, onLog: () => {} })
  store.close()
  return store
}

export class Store {
  readonly redis: Redis
  readonly #options: StoreOptions
  readonly #further: Redis[] = []
  #listener: Redis | null = null
  /** By channel. */
  readonly #listeners = new Map<string, (text: string) => void>()
  /** Kept in one slot of a cluster, as scripts with several keys need. */
  readonly prefix: string
  warnings: readonly Warning[] = []
  /** Why the server cannot be used; null while it can. */
  problem: string | null = 'not connected yet'
  /** Of the server. */
  version = ''
  /** That it is away was logged. */
  #isReported = false
  #again: NodeJS.Timeout | undefined
  /** The last refusal that was logged; monotonic ms. */
  #refused = { code: '', at: 0 }
  /** Takes the outcome of the first attempt to connect. */
  #onOutcome: ((problem: string | null) => void) | null = null

  private constructor(redis: Redis, options: StoreOptions) {
    this.redis = redis
    this.#options = options
    this.prefix = `{${options.prefix}}`
    writeByTurns(redis)
    redis.on('ready', () => void this.#handleReady())
    redis.on('error', error => this.#handleGone(toReason(error)))
    redis.on('close', () => this.#handleGone('the connection was closed'))
  }

  /** @throws GatewayError that names the server, the reason and the remedy, unless the gateway may start without it */
  static async open(options: StoreOptions): Promise<Store> {
    const { Redis } = await importOptional('ioredis', () => import('ioredis'))
    const store = new Store(new Redis(options.url, toRedisOptions()), options)
    const problem = await store.#firstAnswer()
    if (problem === null || !options.isRequiredAtStart) return store
    store.close()
    const remedy = 'correct the URL or start the server; FN_STORE_REQUIRED=0 starts the gateway without it'
    const message = `the store ${toShownUrl(options.url)} cannot be used: ${problem} (${remedy})`
    throw new GatewayError('RUNTIME_DOWN', message)
  }

  /** A key of this fleet. */
  key(...parts: readonly (string | number)[]): string {
    return [this.prefix, ...parts].join(':')
  }

  /** A further connection, whose commands may wait on the server and are never given up. */
  connectBlocking(): Redis {
    const waiting = {
      maxRetriesPerRequest: null,
      enableOfflineQueue: true,
      lazyConnect: false,
      commandTimeout: undefined,
    }
    const connection = this.redis.duplicate(waiting)
    writeByTurns(connection)
    // The main connection reports it.
    connection.on('error', () => {})
    this.#further.push(connection)
    return connection
  }

  /** Takes the messages of a channel until `ignore`. Resolves when it does, which waits for a server that is away. */
  async listen(channel: string, onMessage: (text: string) => void): Promise<void> {
    this.#listeners.set(channel, onMessage)
    if (this.#listener === null) {
      this.#listener = this.connectBlocking()
      this.#listener.on('message', (from: string, text: string) => this.#listeners.get(from)?.(text))
    }
    await this.#listener.subscribe(channel).catch(() => {})
  }

  ignore(channel: string): void {
    this.#listeners.delete(channel)
  }

  /** @throws GatewayError RUNTIME_DOWN with `Retry-After` when the server does not answer */
  async ask<T>(work: (redis: Redis) => Promise<T>): Promise<T> {
    try {
      return await work(this.redis)
    } catch (error) {
      if (error instanceof GatewayError) throw error
      // The connection is made again: by `reconnectOnError`.
      if (isReadOnly(error as Error)) this.#handleGone(IS_REPLICA)
      const headers = { 'Retry-After': RETRY_AFTER_SECONDS }
      const isRefusal = (error as Error).name === 'ReplyError'
      const message = `the store ${isRefusal ? 'refuses a command' : 'does not answer'}: ${toReason(error as Error)}`
      if (isRefusal) this.#logRefusal(message, (error as Error).message.split(' ', 1)[0]!)
      throw new GatewayError('RUNTIME_DOWN', message, { headers, cause: error })
    }
  }

  close(): void {
    clearTimeout(this.#again)
    this.redis.removeAllListeners('close')
    for (const connection of [this.redis, ...this.#further]) connection.disconnect()
  }

  /** @returns null, or why the server cannot be used */
  #firstAnswer(): Promise<string | null> {
    return new Promise(resolve => {
      const timer = setTimeout(() => this.#onOutcome?.(`no answer within ${CONNECT_MS / 1000} s`), CONNECT_MS)
      this.#onOutcome = problem => {
        this.#onOutcome = null
        clearTimeout(timer)
        resolve(problem)
      }
      this.redis.connect().catch(() => {})
    })
  }

  /** @returns null, or why this server cannot serve a fleet */
  async #examine(): Promise<string | null> {
    const info = await this.redis.info('server')
    const version = /^redis_version:(\d+)\.(\d+)/m.exec(info)
    this.version = version?.[0].slice('redis_version:'.length) ?? 'unknown'
    const [major, minor] = [Number(version?.[1] ?? 0), Number(version?.[2] ?? 0)]
    if (major < OLDEST_SERVER[0] || (major === OLDEST_SERVER[0] && minor < OLDEST_SERVER[1]))
      return `its version is ${this.version}, at least ${OLDEST_SERVER.join('.')} is needed`
    const mode = /^redis_mode:(cluster|sentinel)/m.exec(info)?.[1]
    if (mode !== undefined) return `it is a ${mode}, and a single server is needed`
    if (/^role:slave/m.test(await this.redis.info('replication'))) return IS_REPLICA
    const known = new Set(this.warnings.map(({ code }) => code))
    this.warnings = await this.#findLosses()
    for (const { code, message, hint } of this.warnings)
      if (!known.has(code)) this.#options.onLog('warn', `${message} (${hint})`)
    return null
  }

  /** Settings with which the server would lose what was acknowledged. A managed server may not show them. */
  async #findLosses(): Promise<Warning[]> {
    const read = async (name: string): Promise<string | null> => {
      const pair = await this.redis.config('GET', name).catch(() => null)
      return Array.isArray(pair) ? String(pair[1] ?? '') : null
    }
    const [policy, appends, saves] = [await read('maxmemory-policy'), await read('appendonly'), await read('save')]
    const warnings: Warning[] = []
    if (policy !== null && policy !== 'noeviction')
      warnings.push({
        code: 'STORE_EVICTS',
        path: PLACE,
        message: `the store deletes jobs when its memory is full: maxmemory-policy is ${policy}`,
        hint: 'Set maxmemory-policy noeviction in the configuration of the server.',
      })
    if (appends === 'no' && saves === '')
      warnings.push({
        code: 'STORE_NOT_PERSISTENT',
        path: PLACE,
        message: 'the store keeps nothing over its own restart: appendonly is no, and save is empty',
        hint: 'Set appendonly yes in the configuration of the server.',
      })
    return warnings
  }

  /** Each time: another server may stand behind the URL now. */
  async #handleReady(): Promise<void> {
    clearTimeout(this.#again)
    const problem = await this.#examine().catch(error => toReason(error as Error))
    if (problem !== null) {
      this.#again = setTimeout(() => this.redis.disconnect(true), EXAMINE_MS).unref()
      return this.#handleGone(problem)
    }
    if (this.#isReported) this.#options.onLog('info', 'the store is back')
    this.#isReported = false
    this.problem = null
    this.#onOutcome?.(null)
  }

  /** A server that is full, for example: most commands are sent without a request that would fail. */
  #logRefusal(message: string, code: string): void {
    const now = performance.now()
    if (this.problem !== null || (code === this.#refused.code && now - this.#refused.at < REFUSED_MS)) return
    this.#refused = { code, at: now }
    this.#options.onLog('warn', message)
  }

  #handleGone(reason: string): void {
    this.problem = reason
    if (this.#onOutcome !== null) {
      this.#onOutcome(reason)
      return
    }
    if (!this.#isReported) this.#options.onLog('warn', `the store is away, jobs and schedules wait: ${reason}`)
    this.#isReported = true
  }
}

/** The commands of one turn of the event loop leave in one write: a write costs as much as making the command. */
function writeByTurns(redis: Redis): void {
  redis.on('connect', () => {
    const { stream } = redis as unknown as { stream: Socket }
    const write = stream.write.bind(stream) as (...words: unknown[]) => boolean
    stream.write = (...words: unknown[]): boolean => {
      if (stream.writableCorked === 0) {
        stream.cork()
        setImmediate(() => stream.uncork())
      }
      return write(...words)
    }
  })
}

function toRedisOptions(): RedisOptions {
  return {
    lazyConnect: true,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    connectTimeout: CONNECT_MS,
    commandTimeout: COMMAND_MS,
    keepAlive: 5000,
    // After a failover the address may be that of another server.
    reconnectOnError: isReadOnly,
    retryStrategy: attempt => Math.min(RECONNECT_MS.longest, RECONNECT_MS.first * 2 ** Math.min(attempt, 10)),
  }
}

function isReadOnly({ message }: Error): boolean {
  // A script of an older server names itself first.
  return /(?:^|-)READONLY /.test(message)
}

function toReason(error: Error & { code?: string }): string {
  // Several addresses were tried.
  const { message } = error instanceof AggregateError && error.errors.length > 0 ? (error.errors[0] as Error) : error
  if (/WRONGPASS|NOAUTH|invalid username-password/.test(message)) return 'the user name or the password is wrong'
  if (/Command timed out/.test(message)) return `no answer within ${COMMAND_MS / 1000} s`
  if (/isn't writeable|Connection is closed/.test(message)) return 'it is not connected'
  return message.replace(/ script: [0-9a-f]{40}, on @user_script:\d+\.?$/, '')
}

/** Without the password. */
export function toShownUrl(url: string): string {
  const { protocol, host, pathname } = new URL(url)
  return `${protocol}//${host}${pathname}`
}
