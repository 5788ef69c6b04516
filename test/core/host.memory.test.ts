import { spawn } from 'node:child_process'
import { once } from 'node:events'
import t from 'tap'
import { readMemoryOf } from '../../lib/core/host.ts'

t.test(
  '[control/workers.3] memory of processes that are there',
  { skip: process.platform !== 'linux' && 'reads /proc' },
  async t => {
    const memory = await readMemoryOf([process.pid, 2 ** 30, process.ppid])
    const own = memory.get(process.pid)!
    const rss = process.memoryUsage().rss
    t.ok(own > rss / 2 && own < rss * 2, `${own} for ${rss}`)
    t.notOk(memory.has(2 ** 30), 'nobody')
    t.equal((await readMemoryOf([])).size, 0)
  },
)

t.test(
  '[control/workers.3] many processes are no trouble',
  { skip: process.platform !== 'linux' && 'reads /proc' },
  async t => {
    const many = await readMemoryOf(Array.from({ length: 100_000 }, (_, i) => (i === 40 ? process.pid : 2 ** 30 + i)))
    t.same([...many.keys()], [process.pid])
  },
)

t.test(
  '[control/workers.3] a process with those that it started',
  { skip: process.platform !== 'linux' && 'reads /proc' },
  async t => {
    const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
    t.teardown(() => child.kill('SIGKILL'))
    await once(child, 'spawn')
    const [alone, both] = [await readMemoryOf([process.pid]), await readMemoryOf([process.pid], true)]
    const childs = (await readMemoryOf([child.pid!])).get(child.pid!)!
    const more = both.get(process.pid)! - alone.get(process.pid)!
    t.ok(childs > 0 && more > childs / 2, `${more} more, ${childs} of the child`)
  },
)
