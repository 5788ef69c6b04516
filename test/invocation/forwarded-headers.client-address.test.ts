import t from 'tap'
import { isForwarded, TrustedProxies, toPlainAddress } from '../../lib/invocation/forwarded-headers.ts'

t.test('[http/public.16] the client behind trusted proxies', async t => {
  const proxies = new TrustedProxies(['10.0.0.0/8', 'fd00::/8', '192.0.2.1'])
  for (const [socket, forwardedFor, expected] of [
    ['10.0.0.1', '203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '1.1.1.1, 203.0.113.9, 10.9.9.9', '203.0.113.9'],
    ['10.0.0.1', '10.0.0.2, 10.0.0.3', '10.0.0.2'],
    ['10.0.0.1', '1.1.1.1, unknown, 10.0.0.3', ''],
    ['10.0.0.1', '203.0.113.9:4711', '203.0.113.9'],
    ['10.0.0.1', '[2001:db8::1]:4711', '2001:db8::1'],
    ['10.0.0.1', '::ffff:203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '', ''],
    ['10.0.0.1', 'unknown', ''],
    ['10.0.0.1', '203.0.113.9, unknown', ''],
    ['10.0.0.1', 'unknown, 203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '_hidden', ''],
    ['10.0.0.1', '127.0.0.1:x', ''],
    ['10.0.0.1', '[::1]x', ''],
    ['10.0.0.1', '[::1', ''],
    ['10.0.0.1', '[2001:db8::1]:80', '2001:db8::1'],
    ['10.0.0.1', '203.0.113.9:80', '203.0.113.9'],
    ['10.0.0.1', null, '10.0.0.1'],
    ['fd00::5', '2001:db8::2', '2001:db8::2'],
    ['192.0.2.1', '203.0.113.9', '203.0.113.9'],
    ['203.0.113.1', '127.0.0.1', '203.0.113.1'],
    ['1.2.3.4', '127.0.0.1', '1.2.3.4'],
    ['', '127.0.0.1', ''],
  ] as const)
    t.equal(
      proxies.clientAddress(socket, forwardedFor === null ? [] : ['X-Forwarded-For', forwardedFor]),
      expected,
      `${socket} ${forwardedFor}`,
    )
  t.equal(new TrustedProxies([]).isEmpty, true)
  t.equal(new TrustedProxies([]).isTrusted('127.0.0.1'), false)
  t.equal(proxies.isEmpty, false)
})

t.test('[http/public.16] headers that contradict each other make the client unknown', async t => {
  const usual = ['X-Forwarded-For', '203.0.113.9'] as const
  for (const [headers, expected] of [
    [[...usual, 'X-Real-IP', '127.0.0.1'], ''],
    [['X-Forwarded-For', '127.0.0.1', 'X-Real-IP', '203.0.113.9'], ''],
    [['X-Forwarded-For', '127.0.0.1', 'Forwarded', 'for=203.0.113.9'], ''],
    [[...usual, 'Forwarded', 'for=127.0.0.1, for="203.0.113.9:80";proto=https'], '203.0.113.9'],
    [['X-Forwarded-For', '2001:db8::1', 'Forwarded', 'proto=http; For="[2001:DB8::1]:80"'], '2001:db8::1'],
    [[...usual, 'Forwarded', 'for=unknown'], ''],
    [[...usual, 'Forwarded', 'by=203.0.113.43'], ''],
    [[...usual, 'X-Real-IP', '::ffff:203.0.113.9'], '203.0.113.9'],
    [[...usual, 'X-Real-IP', '10.0.0.9'], '203.0.113.9'],
    [[...usual, 'True-Client-IP', '9.9.9.9'], ''],
    [[...usual, 'Via', '1.1 squid'], '203.0.113.9'],
  ] as const)
    t.equal(new TrustedProxies(['10.0.0.0/8']).clientAddress('10.0.0.1', headers), expected, headers.join(' '))
  const named = new TrustedProxies(['10.0.0.0/8'], 'x-real-ip')
  for (const [headers, expected] of [
    [['X-Forwarded-For', '127.0.0.1', 'X-Real-IP', '203.0.113.9'], '203.0.113.9'],
    [['X-Forwarded-For', '127.0.0.1'], ''],
    [[], '10.0.0.1'],
  ] as const)
    t.equal(named.clientAddress('10.0.0.1', headers), expected, `named: ${headers.join(' ')}`)
})

t.test('[invocation/event.6] plain addresses', async t => {
  for (const [address, expected] of [
    ['::ffff:127.0.0.1', '127.0.0.1'],
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['::ffff:7f00:1', '127.0.0.1'],
    ['::FFFF:10.0.0.7', '10.0.0.7'],
    ['2001:DB8:0:0::1', '2001:db8::1'],
    ['fe80::1%eth0', 'fe80::1'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['nonsense', 'nonsense'],
    [undefined, ''],
  ] as const)
    t.equal(toPlainAddress(address), expected)
})

t.test('[control/access.4] headers that say that a request was passed on', async t => {
  for (const name of [
    ...['X-Forwarded-For', 'X-Forwarded-Host', 'X-Forwarded-Proto', 'X-Forwarded-Port', 'X-Forwarded-Server'],
    ...['X-Forwarded-Anything', 'Via', 'Forwarded', 'X-Real-IP', 'CF-Connecting-IP', 'True-Client-IP', 'X-Client-IP'],
    ...['X-Cluster-Client-IP', 'X-Original-Forwarded-For'],
  ]) {
    t.equal(isForwarded(['Host', 'h', name, '']), true, name)
    t.equal(isForwarded(['host', name, name.toLowerCase(), 'x']), true, name.toLowerCase())
    t.equal(isForwarded(['Host', name]), false, `${name} as a value`)
  }
  for (const name of ['X-Forwarded', 'Forward', 'X-Viaduct', 'Host']) t.equal(isForwarded([name, 'x']), false, name)
})
