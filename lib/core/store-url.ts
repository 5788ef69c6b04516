/**
 * The URL of the Redis or Valkey server that the gateways of a fleet share. Spec: page fleet/fleet-store.
 *
 *   redis[s]://[user:password@]host[:6379][/database]
 *   redis[s]+sentinel://[user:password@]host[:26379],.../group[/database][?sentinel_username=...&sentinel_password=...]
 *   redis[s]+cluster://[user:password@]host[:6379],...
 *
 * Node's URL parser refuses several hosts.
 */

const FORM =
  /^(rediss?)(?:\+(sentinel|cluster))?:\/\/(?:([^/?#]*)@)?([^/?#@]*)(?:\/([^/?#]*))?(?:\/([^/?#]*))?\/?(?:\?([^#]*))?$/i
const HOST = /^(?:\[([\da-f:.]+)\]|([\w.-]+))(?::(\d{1,5}))?$/i
const PORTS = { server: 6379, sentinel: 26379, cluster: 6379 } as const
const SENTINEL_USER = 'sentinel_username'
const SENTINEL_PASSWORD = 'sentinel_password'

export interface StoreUrl {
  kind: 'server' | 'sentinel' | 'cluster'
  isTls: boolean
  /** One server, Sentinels, or nodes of a Cluster. */
  hosts: { host: string; port: number }[]
  /** Of the server, empty when it needs none. */
  username: string
  password: string
  /** Database number. */
  db: number
  /** Name that the Sentinels have for the master; empty without Sentinels. */
  group: string
  sentinelUsername: string
  sentinelPassword: string
}

/** @throws Error with a message that continues "must be" and contains no part of the URL, which holds passwords */
export function parseStoreUrl(text: string): StoreUrl {
  const [, scheme = '', suffix, user = '', hosts = '', first = '', second = '', query] = FORM.exec(text) ?? []
  if (scheme === '') throw new Error('a URL such as redis://host:6379/0 or rediss://user:password@host:6380')
  const kind = (suffix?.toLowerCase() as 'sentinel' | 'cluster' | undefined) ?? 'server'
  if (hosts === '')
    throw new Error('a URL with a host, and with / ? # and @ in its password written as %2F %3F %23 %40')
  const [group, database] = kind === 'sentinel' ? [decode(first), second] : ['', first]
  if (kind === 'sentinel' && !/^[\w.-]+$/.test(group))
    throw new Error('a URL that ends with the name of the master group, such as redis+sentinel://host:26379/mymaster')
  if (kind !== 'sentinel' && second !== '') throw new Error('a URL with one database number at most')
  if (kind === 'cluster' && database !== '')
    throw new Error('a URL without a database number: a Redis Cluster has only one')
  if (!/^\d{0,4}$/.test(database)) throw new Error('a URL whose database is a number, such as redis://host:6379/0')
  const colon = user.indexOf(':')
  const sentinel = parseQuery(query ?? '', kind)
  const all = hosts.split(',').map(host => parseHost(host, PORTS[kind]))
  if (kind === 'server' && all.length > 1)
    throw new Error('a URL with one host; several need redis+sentinel:// or redis+cluster://')
  return {
    kind,
    isTls: scheme.toLowerCase() === 'rediss',
    hosts: all,
    username: decode(colon === -1 ? user : user.slice(0, colon)),
    password: colon === -1 ? '' : decode(user.slice(colon + 1)),
    db: Number(database),
    group,
    sentinelUsername: sentinel.get(SENTINEL_USER) ?? '',
    sentinelPassword: sentinel.get(SENTINEL_PASSWORD) ?? '',
  }
}

/** Without users and passwords. @param text - that `parseStoreUrl` takes */
export function toShownUrl(text: string): string {
  const [, scheme, suffix, , hosts, ...path] = FORM.exec(text)!
  const parts = path.slice(0, 2).filter(part => part !== undefined && part !== '')
  return `${[scheme, suffix].filter(Boolean).join('+')}://${[hosts, ...parts].join('/')}`
}

function parseHost(text: string, defaultPort: number): { host: string; port: number } {
  const [, address, name, digits] = HOST.exec(text) ?? []
  const host = address ?? name
  const port = digits === undefined ? defaultPort : Number(digits)
  if (host === undefined || port < 1 || port > 65_535)
    throw new Error('a URL whose hosts are host or host:port, separated by commas')
  return { host, port }
}

function parseQuery(query: string, kind: StoreUrl['kind']): URLSearchParams {
  const values = new URLSearchParams(query)
  for (const name of values.keys())
    if (kind !== 'sentinel' || (name !== SENTINEL_USER && name !== SENTINEL_PASSWORD))
      throw new Error(
        `a URL without a query, apart from ${SENTINEL_USER} and ${SENTINEL_PASSWORD} of redis+sentinel://`,
      )
  return values
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new Error('a URL in which % begins a character such as %40')
  }
}
