import t from 'tap'
import { EDGE_LOOKUPS, systemResolve, UpstreamAddresses } from '../../lib/edge/addresses.ts'

t.test('[edge/passthrough.27] look-ups are few, and one for a name', async t => {
  const open = new Map<string, (() => void)[]>()
  const addresses = new UpstreamAddresses(
    () => [],
    name =>
      new Promise((resolve, reject) => {
        const end = name.startsWith('bad')
          ? () => reject(new Error('no'))
          : () => resolve([{ address: `8.8.8.${name.at(-1)}`, family: 4 }])
        open.set(name, [...(open.get(name) ?? []), end])
      }),
  )
  const names = ['bad-1', ...Array.from({ length: EDGE_LOOKUPS + 2 }, (_, index) => `name-${index}`)]
  const find = (hostname: string) =>
    addresses.of({ hostname, isTls: false, port: 80, host: hostname, path: '/', spellings: [] }, false).then(
      list => list[0]!.address,
      error => error.message,
    )
  const results = names.map(find)
  const same = find('name-0')
  t.equal(open.size, EDGE_LOOKUPS)
  for (const name of names) {
    open.get(name)![0]!()
    await Promise.all([results[names.indexOf(name)]])
    await new Promise(resolve => setImmediate(resolve))
  }
  t.same(await Promise.all(results), [
    'edge proxy failed: proxy request failed: name not resolved',
    ...names.slice(1).map(name => `8.8.8.${name.at(-1)}`),
  ])
  t.equal(await same, '8.8.8.0')
  t.equal(open.get('name-0')!.length, 1)
  void find('name-0')
  t.equal(open.get('name-0')!.length, 2, 'looked up again')
})

t.test('[edge/passthrough.8] every address of a name, as the system has them', async t => {
  const addresses = await systemResolve('localhost')
  t.ok(addresses.length > 0)
  for (const { address, family } of addresses) t.match(`${family} ${address}`, /^(4 127\.|6 ::1)/)
  await t.rejects(systemResolve('no-such-name.invalid'))
})
