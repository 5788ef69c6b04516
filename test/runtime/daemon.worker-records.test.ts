import t from 'tap'
import { type WorkerRecord, WorkerRecords } from '../../lib/runtime/daemon.ts'

const FACTS = { key: 'node/hello@default', pid: 7, uid: null }

function toExit(code: number) {
  return { code, signal: null, reason: `exited with code ${code}` }
}

/** What everybody who holds a record has heard. */
function listen(...records: WorkerRecord[]): (number | null)[] {
  const heard: (number | null)[] = []
  for (const record of records) void record.ended.then(({ code }) => heard.push(code))
  return heard
}

t.test('[runtime/daemon.21] an end is told once to everybody who holds the worker', async t => {
  const records = new WorkerRecords()
  const first = records.add('w1', FACTS)
  const again = records.add('w1', { ...FACTS, pid: 8 })
  t.equal(again, first, 'one id for two starts is one worker')
  t.equal(records.get('w1')?.pid, 8)
  const heard = listen(first, again)
  records.end('w1', toExit(3))
  records.end('w1', toExit(4))
  t.equal(records.get('w1'), undefined)
  await Promise.resolve()
  t.same(heard, [3, 3])
  const late = listen(first)
  t.same(late, [], 'not from inside the call')
  await Promise.resolve()
  t.same(late, [3])
})

t.test('[runtime/daemon.21] an end that comes before the answer to a start belongs to that start', async t => {
  const records = new WorkerRecords()
  await records.during(async () => {
    records.end('w1', toExit(1))
    const record = records.add('w1', FACTS)
    t.same(record.exit, toExit(1))
    t.equal(records.get('w1'), undefined, 'it is none that lives')
    const heard = listen(record)
    await Promise.resolve()
    t.same(heard, [1])
    t.equal(records.add('w1', FACTS).exit, null, 'an end is of one start')
  })
})

t.test('[runtime/daemon.21] ends of workers that nobody asked for are not kept', async t => {
  const records = new WorkerRecords()
  records.end('w1', toExit(1))
  let finish = () => {}
  const open = records.during(() => new Promise<void>(resolve => (finish = resolve)))
  await records.during(async () => {
    t.equal(records.add('w1', FACTS).exit, null, 'no start was open then')
    records.end('w2', toExit(2))
  })
  t.same(records.add('w2', FACTS).exit, toExit(2), 'another start is still open')
  for (let i = 0; i < 100; i++) records.end(`flood${i}`, toExit(i))
  t.same(records.add('flood63', FACTS).exit, toExit(63))
  t.equal(records.add('flood64', FACTS).exit, null, '64 at most')
  records.end('w3', toExit(3))
  finish()
  await open
  t.equal(records.add('w3', FACTS).exit, null, 'forgotten with the last open start')
  await t.rejects(
    records.during(async () => {
      records.end('w4', toExit(4))
      throw new Error('refused')
    }),
    { message: 'refused' },
  )
  t.equal(records.add('w4', FACTS).exit, null, 'a start that is refused is over too')
})

t.test('[runtime/daemon.21] all that live end with their daemon, each killed first', async t => {
  const records = new WorkerRecords()
  const steps: string[] = []
  for (const id of ['w1', 'w2']) {
    const record = records.add(id, { ...FACTS, pid: Number(id[1]) })
    void record.ended.then(({ reason }) => steps.push(`${id} ${reason}`))
  }
  records.end('w2', toExit(0))
  records.endAll({ code: null, signal: null, reason: 'daemon stopped' }, ({ pid }) => steps.push(`kill ${pid}`))
  await Promise.resolve()
  t.same(steps, ['kill 1', 'w2 exited with code 0', 'w1 daemon stopped'])
})
