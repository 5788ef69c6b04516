import { PassThrough } from 'node:stream'
import t from 'tap'
import { followLine, type Outside, parseOutside, readRoutes, toLocalCidrs } from '../../bin/outside.ts'

const OUTSIDE: Outside = { url: 'http://127.0.0.1:9000', control: null, pid: 7, program: 'npx fngw', keys: true }

t.test('[bin/container.5] what it is called outside', async t => {
  t.same(parseOutside(JSON.stringify(OUTSIDE)), OUTSIDE)
  const control = 'http://127.0.0.1:9001'
  t.same(parseOutside(JSON.stringify({ ...OUTSIDE, control, keys: 1 })), { ...OUTSIDE, control, keys: false })
  const wrong = [{}, [], null, { ...OUTSIDE, url: 'here' }, { ...OUTSIDE, pid: '7' }, { ...OUTSIDE, control: 5 }]
  for (const text of ['', '{', ...wrong.map(value => JSON.stringify(value))])
    t.throws(() => parseOutside(text), { message: /--outside .*leave it out/, exitCode: 2 }, text)
})

t.test(
  '[bin/container.5] callers of the own machine are those of the way out, where nobody else comes by it',
  async t => {
    const routes = [
      'Iface\tDestination\tGateway \tFlags',
      'eth0\t00000000\t0100580A\t0003',
      'eth0\t0000580A\t00000000\t0001',
      'cut off',
    ].join('\n')
    const cidrs = (url: string) => toLocalCidrs({ url }, routes)
    for (const url of ['http://127.0.0.1:1', 'http://localhost:1', 'http://127.9.0.1:1', 'http://[::1]:1'])
      t.same(cidrs(url), ['10.88.0.1'], url)
    for (const url of ['http://0.0.0.0:1', 'http://192.168.1.5:1', 'http://[::]:1', 'http://127.evil.example:1'])
      t.same(cidrs(url), [], url)
    t.same(toLocalCidrs(OUTSIDE, ''), [])
    t.type(readRoutes(), 'string')
  },
)

t.test('[bin/container.7, bin/container.9] standard input: keys one at a time, and its end once', async t => {
  const line = new PassThrough()
  let ends = 0
  const input = followLine(line, () => (ends += 1))
  const keys: string[] = []
  const listener = (data: Buffer) => void keys.push(data.toString())
  input.setRawMode(true)
  input.on('data', listener)
  line.write('rl')
  line.write('q')
  await new Promise(setImmediate)
  t.same(keys, ['r', 'l', 'q'])
  input.off('data', listener)
  input.pause()
  line.end('c')
  await new Promise(resolve => line.once('close', resolve))
  t.same([keys.length, ends], [3, 1], 'nobody listens for keys any more, and the end is seen')

  const broken = new PassThrough()
  followLine(broken, () => (ends += 1))
  broken.destroy(new Error('EIO'))
  await new Promise(resolve => broken.once('close', resolve))
  t.equal(ends, 2)
})
