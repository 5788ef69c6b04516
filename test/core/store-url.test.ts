import t from 'tap'
import { parseStoreUrl, toShownUrl } from '../../lib/core/store-url.ts'

const EMPTY = { username: '', password: '', db: 0, group: '', sentinelUsername: '', sentinelPassword: '' }

t.test('[fleet/fleet-store.7] URLs of a server, of Sentinels and of a Cluster', async t => {
  const cases: Record<string, object> = {
    'redis://host': { kind: 'server', isTls: false, hosts: [{ host: 'host', port: 6379 }] },
    'REDISS://me:p%40ss@[::1]:6380/2': {
      ...{ kind: 'server', isTls: true, hosts: [{ host: '::1', port: 6380 }] },
      ...{ username: 'me', password: 'p@ss', db: 2 },
    },
    // As Node's URL parser: the last @ ends the password.
    'redis://:p@s:s@host/': { kind: 'server', isTls: false, hosts: [{ host: 'host', port: 6379 }], password: 'p@s:s' },
    'redis+sentinel://:x@h1,h2:7/main.group/3?sentinel_username=watch&sentinel_password=w%26w': {
      ...{ kind: 'sentinel', isTls: false, group: 'main.group', password: 'x', db: 3 },
      hosts: [
        { host: 'h1', port: 26379 },
        { host: 'h2', port: 7 },
      ],
      ...{ sentinelUsername: 'watch', sentinelPassword: 'w&w' },
    },
    'rediss+sentinel://h1/mymaster': {
      ...{ kind: 'sentinel', isTls: true, hosts: [{ host: 'h1', port: 26379 }], group: 'mymaster' },
    },
    'redis+cluster://user:x@h1:7000,h2': {
      ...{ kind: 'cluster', isTls: false, username: 'user', password: 'x' },
      hosts: [
        { host: 'h1', port: 7000 },
        { host: 'h2', port: 6379 },
      ],
    },
  }
  for (const [url, expected] of Object.entries(cases)) t.same(parseStoreUrl(url), { ...EMPTY, ...expected }, url)
})

t.test('[fleet/fleet-store.7] a wrong URL is an error that names the rule, and shows no part of it', async t => {
  const cases: Record<string, RegExp> = {
    secret: /^a URL such as redis:\/\/host/,
    'http://:secret@host': /^a URL such as/,
    'redis+proxy://:secret@host': /^a URL such as/,
    'redis://:secret@': /with a host, and with \/ \? # and @ in its password written as %2F/,
    'redis://:sec/ret@host': /^a URL/,
    'redis://:secret@host/name': /whose database is a number/,
    'redis://:secret@host/1/2': /one database number at most/,
    'redis://:secret@h1,h2': /one host; several need redis\+sentinel:\/\/ or redis\+cluster/,
    'redis://:secret@host:0': /whose hosts are host or host:port/,
    'redis://:secret@host:65536': /whose hosts are host or host:port/,
    'redis+cluster://:secret@h1,,h2': /whose hosts are host or host:port/,
    'redis+cluster://:secret@h1/0': /without a database number/,
    'redis+sentinel://:secret@h1': /ends with the name of the master group, such as/,
    'redis+sentinel://:secret@h1/a b': /ends with the name of the master group/,
    'redis+sentinel://:secret@h1/group/name': /whose database is a number/,
    'redis+sentinel://h1/group?password=secret': /without a query, apart from sentinel_username/,
    'redis://host?sentinel_password=secret': /without a query/,
    'redis://:secret%zz@host': /in which % begins a character/,
  }
  for (const [url, expected] of Object.entries(cases)) {
    let message = ''
    try {
      parseStoreUrl(url)
    } catch (error) {
      message = (error as Error).message
    }
    t.match(message, expected, url)
    t.notMatch(message, /secret/)
  }
})

t.test('[fleet/fleet-store.2] passwords are not shown', async t => {
  t.equal(toShownUrl('rediss://a:b@host:1/2'), 'rediss://host:1/2')
  t.equal(toShownUrl('redis+cluster://:b@h1:1,h2'), 'redis+cluster://h1:1,h2')
  const sentinels = 'redis+sentinel://a:b@h1,h2/main/0?sentinel_password=planted'
  t.equal(toShownUrl(sentinels), 'redis+sentinel://h1,h2/main/0')
})
