/**
 * The connection to the Redis or Valkey server that the gateways of a fleet share: one server, the master that Sentinels name, or a
 * Cluster. Loaded only where `FN_STORE_URL` is set. Spec: page fleet/fleet-store.
 *
 * A command fails within COMMAND_MS while the server is away, and the connection comes back by itself: no call of a function waits for it.
 */

import { once } from 'node:events'
import net, { type Socket } from 'node:net'
import tls from 'node:tls'
import type { Cluster, ClusterOptions, Redis, RedisOptions } from 'ioredis'
import { GatewayError, type Warning } from '../core/errors.ts'
import { parseStoreUrl, type StoreUrl, toShownUrl } from '../core/store-url.ts'

/** Milliseconds for one command, and for the first connection. */
const COMMAND_MS = 1500
const CONNECT_MS = 5000
/**
 * Milliseconds without a byte while a command waits, after which a connection is given up: a machine that lost its power sends no end.
 * A command that waits on the server takes up to 10 s.
 */
const SILENT_MS = { command: 4000, waiting: 15_000 }
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
/** ioredis does not pass on the reason that a server gives before it closes a new connection. */
const CLOSED_AT_FIRST =
  'it closes new connections: without a password Redis accepts only local clients (set requirepass)'
const IS_REPLICA = 'it is a replica, which takes no writes'
const UNREACHABLE = 'it is not connected'

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

type Client = Redis | Cluster
type Ioredis = Pick<typeof import('ioredis'), 'Redis' | 'Cluster'>

export class Store {
  /** A Cluster has the same commands. */
  readonly redis: Redis
  readonly #client: Client
  readonly #url: StoreUrl
  readonly #ioredis: Ioredis
  readonly #options: StoreOptions
  readonly #further: Client[] = []
  #listener: Client | null = null
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
  #isExamining = false
  #isClosed = false
  /** Takes the outcome of the first attempt to connect. */
  #onOutcome: ((problem: string | null) => void) | null = null

  private constructor(ioredis: Ioredis, options: StoreOptions) {
    this.#ioredis = ioredis
    this.#options = options
    this.#url = parseStoreUrl(options.url)
    this.prefix = `{${options.prefix}}`
    this.#client = this.#connect(false)
    this.redis = this.#client as Redis
    this.#client.on('ready', () => void this.#handleReady())
    this.#client.on('error', error => this.#handleGone(this.#toReason(error)))
    this.#client.on('close', () =>
      this.#handleGone(this.#onOutcome === null ? 'the connection was closed' : CLOSED_AT_FIRST),
    )
  }

  /** @throws GatewayError that names the server, the reason and the remedy, unless the gateway may start without it */
  static async open(options: StoreOptions): Promise<Store> {
    const store = new Store(await importOptional<Ioredis>('ioredis', () => import('ioredis')), options)
    const problem = await store.#firstAnswer()
    if (problem === null || !options.isRequiredAtStart) return store
    const remedy = 'correct the URL or start the server; FN_STORE_REQUIRED=0 starts the gateway without it'
    const message = `the store ${toShownUrl(options.url)} cannot be used: ${problem} (${remedy})`
    throw new GatewayError('RUNTIME_DOWN', message)
  }

  get isCluster(): boolean {
    return this.#url.kind === 'cluster'
  }

  /** A key of this fleet. */
  key(...parts: readonly (string | number)[]): string {
    return [this.prefix, ...parts].join(':')
  }

  /** A further connection, whose commands may wait on the server and are never given up. */
  connectBlocking(): Redis {
    const connection = this.#connect(true)
    // BullMQ watches its waiting commands itself. The timer of ioredis would run on after the end, and keep the process.
    const duplicate = (connection as Redis).duplicate.bind(connection)
    const duplicateUntimed = (given?: RedisOptions): Redis => duplicate({ ...given, socketTimeout: undefined })
    if (!this.isCluster) Object.assign(connection, { duplicate: duplicateUntimed })
    // The main connection reports it.
    connection.on('error', () => {})
    this.#further.push(connection)
    return connection as Redis
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
      const answer = await work(this.redis)
      // A silent server, or a node of a Cluster, comes back on a connection that was never lost.
      if (this.problem !== null) void this.#handleReady()
      return answer
    } catch (error) {
      if (error instanceof GatewayError) throw error
      // The connection is made again: by `reconnectOnError`.
      if (isReadOnly(error as Error)) this.#handleGone(IS_REPLICA)
      const headers = { 'Retry-After': RETRY_AFTER_SECONDS }
      const isRefusal = (error as Error).name === 'ReplyError'
      const reason = this.#toReason(error as Error)
      const message = `the store ${isRefusal ? 'refuses a command' : 'does not answer'}: ${reason}`
      if (!isRefusal || reason.startsWith('CLUSTERDOWN')) this.#handleGone(reason)
      else this.#logRefusal(message, (error as Error).message.split(' ', 1)[0]!)
      throw new GatewayError('RUNTIME_DOWN', message, { headers, cause: error })
    }
  }

  close(): void {
    clearTimeout(this.#again)
    this.#isClosed = true
    for (const connection of [this.#client, ...this.#further]) connection.disconnect()
  }

  /** @returns null, or why the server cannot be used */
  #firstAnswer(): Promise<string | null> {
    return new Promise(resolve => {
      const isTlsExpected = this.#url.isTls ? ', as from a server that does not use TLS' : ''
      const silence = `no answer within ${CONNECT_MS / 1000} s${isTlsExpected}`
      const timer = setTimeout(() => this.#onOutcome?.(silence), CONNECT_MS)
      this.#onOutcome = problem => {
        this.#onOutcome = null
        clearTimeout(timer)
        if (problem !== null && this.#options.isRequiredAtStart) this.close()
        if (problem !== UNREACHABLE) return resolve(problem)
        this.problem = problem
        void this.#findObstacle().then(obstacle => {
          if (obstacle !== null && this.problem === problem) this.problem = obstacle
          resolve(obstacle ?? problem)
        })
      }
      this.#client.connect().catch(() => {})
    })
  }

  /** Clients of Sentinels and of a Cluster do not say why they reach none. @returns null when the first one is reached */
  async #findObstacle(): Promise<string | null> {
    const { isTls, hosts } = this.#url
    const socket = isTls ? tls.connect(hosts[0]!) : net.connect(hosts[0]!)
    socket.setTimeout(COMMAND_MS, () => socket.destroy(new Error('connect ETIMEDOUT')))
    try {
      await once(socket, isTls ? 'secureConnect' : 'connect')
      return null
    } catch (error) {
      return this.#toReason(error as Error)
    } finally {
      socket.destroy()
    }
  }

  /** @returns null, or why this server cannot serve a fleet */
  async #examine(): Promise<string | null> {
    const servers = 'nodes' in this.#client ? this.#client.nodes('master') : [this.redis]
    for (const server of servers) {
      const problem = this.#findProblem(await server.info())
      if (problem !== null) return problem
    }
    const known = new Set(this.warnings.map(({ code }) => code))
    const losses = (await Promise.all(servers.map(findLosses))).flat()
    this.warnings = losses.filter(({ code }, i) => losses.findIndex(one => one.code === code) === i)
    for (const { code, message, hint } of this.warnings)
      if (!known.has(code)) this.#options.onLog('warn', `${message} (${hint})`)
    return null
  }

  /** @param info - of one server; @returns null, or why it cannot serve a fleet */
  #findProblem(info: string): string | null {
    const version = /^redis_version:(\d+)\.(\d+)/m.exec(info)
    this.version = version?.[0].slice('redis_version:'.length) ?? 'unknown'
    const [major, minor] = [Number(version?.[1] ?? 0), Number(version?.[2] ?? 0)]
    if (major < OLDEST_SERVER[0] || (major === OLDEST_SERVER[0] && minor < OLDEST_SERVER[1]))
      return `its version is ${this.version}, at least ${OLDEST_SERVER.join('.')} is needed`
    const mode = /^redis_mode:(\w+)/m.exec(info)?.[1]
    if (mode === 'sentinel') return this.#toOtherForm('sentinel')
    if (mode === 'cluster' && this.#url.kind !== 'cluster') return this.#toOtherForm('cluster')
    if (/^role:slave/m.test(info)) return IS_REPLICA
    return null
  }

  /** Each time: another server may stand behind the URL now. */
  async #handleReady(): Promise<void> {
    if (this.#isExamining || this.#isClosed) return
    this.#isExamining = true
    const problem = await this.#examine().catch(error => this.#toReason(error as Error))
    this.#isExamining = false
    if (problem !== null) {
      this.#again ??= setTimeout(() => {
        this.#again = undefined
        this.#client.disconnect(true)
      }, EXAMINE_MS).unref()
      return this.#handleGone(problem)
    }
    clearTimeout(this.#again)
    this.#again = undefined
    // It waits for messages and notices nothing where the network was away.
    if (this.problem !== null && this.#listener?.status === 'ready') this.#listener.disconnect(true)
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
    if (this.#isClosed) return
    this.problem = reason
    if (this.#onOutcome !== null) {
      this.#onOutcome(reason)
      return
    }
    if (!this.#isReported) this.#options.onLog('warn', `the store is away, jobs and schedules wait: ${reason}`)
    this.#isReported = true
  }

  /** @param waits - for commands that may wait on the server, and are never given up */
  #connect(waits: boolean): Client {
    const { kind, isTls, hosts, username, password, db, group, sentinelUsername, sentinelPassword } = this.#url
    const client: RedisOptions = {
      ...(isTls && { tls: {} }),
      ...(username !== '' && { username }),
      ...(password !== '' && { password }),
      // With several hosts one that does not answer is nothing special.
      connectTimeout: kind === 'server' ? CONNECT_MS : COMMAND_MS,
      keepAlive: 5000,
      socketTimeout: waits ? SILENT_MS.waiting : SILENT_MS.command,
      ...(!waits && { commandTimeout: COMMAND_MS }),
      // After a failover the address may be that of another server.
      reconnectOnError: isReadOnly,
    }
    const start = { lazyConnect: !waits, enableOfflineQueue: waits }
    if (kind === 'cluster') {
      const options: ClusterOptions = {
        ...start,
        redisOptions: client,
        clusterRetryStrategy: toDelay,
        slotsRefreshTimeout: COMMAND_MS,
        // A certificate is for the name, not for its address.
        dnsLookup: (name, found) => found(null, name),
      }
      const cluster = new this.#ioredis.Cluster(hosts, options)
      return cluster.on('+node', writeByTurns)
    }
    const options: RedisOptions = {
      ...client,
      ...start,
      db,
      maxRetriesPerRequest: waits ? null : 0,
      retryStrategy: toDelay,
    }
    const sentinel: RedisOptions = {
      sentinels: hosts,
      name: group,
      ...(sentinelUsername !== '' && { sentinelUsername }),
      ...(sentinelPassword !== '' && { sentinelPassword }),
      ...(isTls && { sentinelTLS: {}, enableTLSForSentinelMode: true }),
      sentinelCommandTimeout: COMMAND_MS,
      sentinelRetryStrategy: toDelay,
    }
    const redis = new this.#ioredis.Redis({ ...options, ...(kind === 'sentinel' ? sentinel : hosts[0]!) })
    writeByTurns(redis)
    return redis
  }

  /** How the URL of what was found must begin. */
  #toOtherForm(kind: 'sentinel' | 'cluster'): string {
    const scheme = `redis${this.#url.isTls ? 's' : ''}+${kind}`
    const { host, port } = this.#url.hosts[0]!
    const place = `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
    return kind === 'sentinel'
      ? `it is a Sentinel: write ${place}/GROUP with the name of its master group`
      : `it is a node of a Cluster: write ${place}`
  }

  #toReason(error: Error & { code?: string; lastNodeError?: Error }): string {
    // Several addresses, Sentinels or nodes were tried.
    const first = error instanceof AggregateError ? (error.errors[0] as Error | undefined) : error.lastNodeError
    const { message } = first ?? error
    const unreachable = /^All sentinels are unreachable(?:.*Last error: (.*))?/.exec(message)
    if (unreachable !== null) return this.#toSentinelReason(unreachable[1])
    if (/WRONGPASS|NOAUTH|invalid username-password/.test(message)) return 'the user name or the password is wrong'
    if (/Command timed out|Socket timeout|^timeout$/.test(message)) return `no answer within ${COMMAND_MS / 1000} s`
    if (/isn't writeable|Connection is closed|Cluster isn't ready/.test(message)) return UNREACHABLE
    if (/unknown command 'select'/i.test(message)) return this.#toOtherForm('sentinel')
    if (/SELECT is not allowed in cluster mode/.test(message)) return this.#toOtherForm('cluster')
    if (/cluster support disabled|unknown command 'cluster'/i.test(message)) return 'it is not a node of a Cluster'
    if (/wrong version number|packet length too long/.test(message))
      return 'it does not use TLS on this port: write redis:// instead of rediss://'
    if (/altnames/.test(message)) return `its certificate is for another name: ${message}`
    if (/certificate/.test(message)) return `${message}: NODE_EXTRA_CA_CERTS names the file of a private authority`
    if (/ECONNRESET/.test(message) && !this.#url.isTls) return `${message}, as from a server that requires rediss://`
    return message.replace(/ script: [0-9a-f]{40}, on @user_script:\d+\.?$/, '')
  }

  /** @param last - why the last one could not be asked; undefined when each knows no such group */
  #toSentinelReason(last: string | undefined): string {
    if (last === undefined || /No such master/.test(last)) return `no Sentinel knows the group ${this.#url.group}`
    if (/WRONGPASS|NOAUTH/.test(last)) return 'the user name or the password of the Sentinels is wrong'
    if (/unknown command 'sentinel'/i.test(last)) return 'it is not a Sentinel'
    return this.#toReason(new Error(last))
  }
}

/** Settings with which a server would lose what was acknowledged. A managed server may not show them. */
async function findLosses(server: Redis): Promise<Warning[]> {
  const read = async (name: string): Promise<string | null> => {
    const pair = await server.config('GET', name).catch(() => null)
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

function isReadOnly({ message }: Error): boolean {
  // A script of an older server names itself first.
  return /(?:^|-)READONLY /.test(message)
}

function toDelay(attempt: number): number {
  return Math.min(RECONNECT_MS.longest, RECONNECT_MS.first * 2 ** Math.min(attempt, 10))
}
