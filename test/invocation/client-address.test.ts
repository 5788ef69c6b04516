import t from 'tap'
import { TrustedProxies, toPlainAddress } from '../../lib/invocation/client-address.ts'

t.test('[http/public.16] the client behind trusted proxies', async t => {
  const proxies = new TrustedProxies(['10.0.0.0/8', 'fd00::/8', '192.0.2.1', 'nonsense', '1.2.3.4/99'])
  for (const [socket, forwardedFor, expected] of [
    ['10.0.0.1', '203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '1.1.1.1, 203.0.113.9, 10.9.9.9', '203.0.113.9'],
    ['10.0.0.1', '10.0.0.2, 10.0.0.3', '10.0.0.2'],
    ['10.0.0.1', '1.1.1.1, unknown, 10.0.0.3', '10.0.0.3'],
    ['10.0.0.1', '203.0.113.9:4711', '203.0.113.9'],
    ['10.0.0.1', '[2001:db8::1]:4711', '2001:db8::1'],
    ['10.0.0.1', '::ffff:203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '', '10.0.0.1'],
    ['10.0.0.1', null, '10.0.0.1'],
    ['fd00::5', '2001:db8::2', '2001:db8::2'],
    ['192.0.2.1', '203.0.113.9', '203.0.113.9'],
    ['203.0.113.1', '127.0.0.1', '203.0.113.1'],
    ['1.2.3.4', '127.0.0.1', '1.2.3.4'],
    ['', '127.0.0.1', ''],
  ] as const)
    t.equal(proxies.clientAddress(socket, forwardedFor), expected, `${socket} ${forwardedFor}`)
  t.equal(new TrustedProxies([]).isEmpty, true)
  t.equal(new TrustedProxies([]).isTrusted('127.0.0.1'), false)
  t.equal(proxies.isEmpty, false)
})

t.test('[invocation/event.6] plain addresses', async t => {
  for (const [address, expected] of [
    ['::ffff:127.0.0.1', '127.0.0.1'],
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['::ffff:7f00:1', '::ffff:7f00:1'],
    [undefined, ''],
  ] as const)
    t.equal(toPlainAddress(address), expected)
})
