/** Host rules of a route (`invoke.allow_hosts`). Owner: §1, page router/route-table. */

/** One rule or one request host, taken apart. */
export interface HostRule {
  /** Lower case, no trailing dot; IPv6 in brackets. For `*.suffix` the `.suffix`. */
  name: string
  /** Digits, or empty: any port. */
  port: string
  isSuffix: boolean
}

/**
 * Reads a rule: exact name, `host:port`, `*.suffix` (subdomains only), IPv6 with or without brackets.
 * The same reading serves the `Host` header of a request. Case and one trailing dot do not matter.
 */
export function parseHost(text: string): HostRule {
  let name = text.trim().toLowerCase()
  let port = ''
  const isBareIpv6 = !name.startsWith('[') && name.indexOf(':') !== name.lastIndexOf(':')
  if (isBareIpv6) {
    name = `[${name}]`
  } else {
    const colon = name.lastIndexOf(':')
    if (colon > name.lastIndexOf(']')) {
      port = name.slice(colon + 1)
      name = name.slice(0, colon)
    }
  }
  if (name.endsWith('.')) name = name.slice(0, -1)
  const isSuffix = name.startsWith('*.')
  return { name: isSuffix ? name.slice(1) : name, port, isSuffix }
}

/** True when a request host satisfies one of the rules. A rule with a port wants that port in the `Host` header. */
export function matchesHost(rules: readonly HostRule[], host: HostRule): boolean {
  for (const rule of rules) {
    if (rule.port !== '' && rule.port !== host.port) continue
    if (rule.isSuffix ? isBelow(host.name, rule.name) : rule.name === host.name) return true
  }
  return false
}

/** True when some request host satisfies both lists; an empty list is every host. */
export function hostsOverlap(a: readonly HostRule[], b: readonly HostRule[]): boolean {
  if (a.length === 0 || b.length === 0) return true
  return a.some(x => b.some(y => rulesOverlap(x, y)))
}

/** True when every request host that satisfies `b` satisfies `a`, as far as single rules show it. */
export function hostsCover(a: readonly HostRule[], b: readonly HostRule[]): boolean {
  if (a.length === 0) return true
  return b.length > 0 && b.every(y => a.some(x => ruleCovers(x, y)))
}

function rulesOverlap(x: HostRule, y: HostRule): boolean {
  if (x.port !== '' && y.port !== '' && x.port !== y.port) return false
  if (x.isSuffix && y.isSuffix) return x.name.endsWith(y.name) || y.name.endsWith(x.name)
  if (x.isSuffix) return isBelow(y.name, x.name)
  return y.isSuffix ? isBelow(x.name, y.name) : x.name === y.name
}

function ruleCovers(x: HostRule, y: HostRule): boolean {
  if (x.port !== '' && x.port !== y.port) return false
  if (!x.isSuffix) return !y.isSuffix && x.name === y.name
  return y.isSuffix ? y.name.endsWith(x.name) : isBelow(y.name, x.name)
}

/** True for `api.example.com` below `.example.com`; the suffix itself is not below. */
function isBelow(name: string, suffix: string): boolean {
  return name.length > suffix.length && name.endsWith(suffix)
}
