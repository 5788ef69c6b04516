import t from 'tap'
import { type AddressKind, classifyAddress, toCanonicalAddress, UpstreamAddresses } from '../../lib/edge/addresses.ts'

t.test('[edge/passthrough.9] the kind of every special range, its edges and its neighbours', async t => {
  const table: Record<AddressKind, string> = {
    public: `1.0.0.0 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 169.253.255.255
      169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.88.98.255 192.167.255.255 192.169.0.0 198.17.255.255
      198.20.0.0 198.51.99.255 203.0.112.255 203.0.114.0 223.255.255.255
      2001:200:: 2003:: 2606:4700::1111 2a00:1450:4001::200e 64:ff9b::808:808 64:ff9b::8.8.8.8`,
    private: `10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.201 100.127.255.255 127.0.0.0 127.0.0.1 127.255.255.255
      172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.255 192.0.2.1 192.88.99.1 192.168.0.0 192.168.255.255 198.18.0.0
      198.19.255.255 198.51.100.7 203.0.113.9
      ::1 0:0:0:0:0:0:0:1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:8.8.8.8 ::FFFF:10.0.0.1 64:ff9b::7f00:1 64:ff9b::a00:1
      64:ff9b::192.168.1.1 fc00:: fd00::1 fdff:ffff:: 2001:db8::1 2001:2::1 2001:10::1 3fff::1 4000:: 100:: 5f00::1`,
    never: `0.0.0.0 0.1.2.3 0.255.255.255 169.254.0.0 169.254.169.254 169.254.170.2 100.100.100.200 192.0.0.192 224.0.0.1
      239.255.255.255 240.0.0.1 255.255.255.255
      :: ::ffff:0.0.0.0 ::ffff:169.254.169.254 ::ffff:a9fe:a9fe 64:ff9b::a9fe:a9fe 64:ff9b:1::1 ::7f00:1 ::127.0.0.1
      ::ffff:0:127.0.0.1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2002:7f00:1:: 2002:808:808:: fe80::1 fe80::1%eth0
      febf:: fec0::1 ff02::1 fd00:ec2::254 fd20:ce::254
      localhost 127.1 0x7f.0.0.1 1.2.3 [::1] example.com`,
  }
  for (const [kind, addresses] of Object.entries(table))
    for (const address of addresses.split(/\s+/)) t.equal(classifyAddress(address), kind, address)
  t.equal(classifyAddress(''), 'never')
})

t.test('[edge/passthrough.9] one text for each address', async t => {
  const rows: Record<string, string> = {
    '10.0.0.1': '10.0.0.1',
    '::ffff:10.0.0.1': '10.0.0.1',
    '::FFFF:0a00:0001': '10.0.0.1',
    '0:0:0:0:0:0:0:0': '::',
    '2001:DB8::00a:0': '2001:db8::a:0',
    '2001:db8:0:0:0:0:a:0': '2001:db8::a:0',
    '1:2:3:4:5:6:7:8': '1:2:3:4:5:6:7:8',
    '64:ff9b::1.2.3.4': '64:ff9b::102:304',
    'fe80::1%eth0': 'fe80::1',
  }
  for (const [address, canonical] of Object.entries(rows)) t.equal(toCanonicalAddress(address), canonical, address)
})

/** `allowed`, or why a target may not be reached. */
async function check(address: string, port: number, allowPrivate: boolean, given: UpstreamAddresses): Promise<string> {
  const to = { hostname: address, isTls: false, port, host: address, path: '/_fn', spellings: [['a', '_fn']] }
  return given.of(to, allowPrivate).then(
    () => 'allowed',
    error => error.message.replace('edge proxy failed: proxy denied: ', ''),
  )
}

const never = () => Promise.reject(new Error('looked up'))

t.test('[edge/passthrough.10, edge/passthrough.13] this machine and this gateway', async t => {
  const interfaces = ['127.0.0.1', '::1', '192.168.1.5', '2606:4700::5', 'fe80::1']
  const own = new UpstreamAddresses(
    () => [],
    never,
    () => interfaces,
  )
  t.equal(await check('2606:4700:0::5', 80, false, own), 'private host not allowed')
  t.equal(await check('2606:4700::6', 80, false, own), 'allowed')

  const rows: [string, string, number, boolean][] = [
    ['127.0.0.1', '127.0.0.1', 80, true],
    ['127.0.0.1', '127.0.0.1', 81, false],
    ['127.0.0.1', '127.0.0.2', 80, false],
    ['127.0.0.1', '::ffff:127.0.0.1', 80, true],
    ['0.0.0.0', '127.9.9.9', 80, true],
    ['0.0.0.0', '192.168.1.5', 80, true],
    ['0.0.0.0', '::ffff:192.168.1.5', 80, true],
    ['0.0.0.0', '192.168.1.6', 80, false],
    ['::', '::1', 80, true],
    ['::', '127.0.0.1', 80, true],
    ['::', '2606:4700::5', 80, true],
    ['::', '2606:4700::6', 80, false],
    ['2606:4700::5', '2606:4700:0:0::5', 80, true],
  ]
  for (const [host, address, port, isOwn] of rows) {
    const addresses = new UpstreamAddresses(
      () => [{ host, port: 80 }],
      never,
      () => interfaces,
    )
    const expected = isOwn ? 'control-plane path not allowed' : 'allowed'
    t.equal(await check(address, port, true, addresses), expected, `${host}:80 from ${address}:${port}`)
  }
})

t.test('[edge/passthrough.9] an address is judged the same each time, of however many', async t => {
  const addresses = new UpstreamAddresses(
    () => [],
    never,
    () => [],
  )
  const all = Array.from({ length: 2100 }, (_, at) => `${[8, 10, 169][at % 3]}.254.${at >> 8}.${at & 255}`)
  for (const address of [...all, ...all.reverse()]) {
    const kind = classifyAddress(address)
    const expected = [kind === 'public' ? 'allowed' : 'private host not allowed']
    expected.push(kind === 'never' ? 'special address not allowed' : 'allowed')
    const found = [await check(address, 80, false, addresses), await check(address, 80, true, addresses)]
    if (found.join() !== expected.join()) t.fail(`${address}: ${found}`)
  }
})
