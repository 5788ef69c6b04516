import { appendFileSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { ForeignLogError, LineLog, LOG_HEADER, type LinePlace, toLine } from '../../lib/jobs/file-store.ts'
import { makeTree } from '../helpers/tree.ts'

async function readAll(path: string): Promise<{ lines: string[]; places: LinePlace[]; damaged: number; log: LineLog }> {
  const lines: string[] = []
  const places: LinePlace[] = []
  const { log, damaged } = await LineLog.open(path, (json, place) => {
    lines.push(json)
    places.push(place)
    return true
  })
  return { lines, places, damaged, log }
}

t.test(
  '[jobs/file-store.1] lines that come while others are written are one write, and are found where they were said to be',
  async t => {
    const tree = makeTree()
    t.teardown(tree.cleanup)
    const path = tree.path('log')
    const { log, lines } = await readAll(path)
    t.same(lines, [])
    const told: LinePlace[] = []
    const texts = Array.from({ length: 200 }, (_, index) => JSON.stringify({ index, text: 'ü'.repeat(index) }))
    await Promise.all(texts.map(text => log.append([toLine(text)], places => told.push(...places))))
    t.same(await Promise.all(told.map(place => log.read(place))), texts)
    await log.close()
    const again = await readAll(path)
    t.same(again.lines, texts)
    t.same(again.places, told)
    t.equal(again.damaged, 0)
    t.equal(again.log.size, readFileSync(path).length)
    await again.log.close()
  },
)

t.test('[jobs/file-store.2] cut at any byte, whole lines are read and the torn end is written over', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const whole = Buffer.concat([Buffer.from(LOG_HEADER), toLine('{"a":1}'), toLine('{"b":2}')])
  const ends = [LOG_HEADER.length + toLine('{"a":1}').length, whole.length]
  for (let length = 0; length <= whole.length; length++) {
    const path = tree.path(`log-${length}`)
    writeFileSync(path, whole.subarray(0, length))
    const { log, lines, damaged } = await readAll(path)
    const wanted = ends.filter(end => end <= length).length
    if (lines.length !== wanted || damaged !== 0) t.same([lines.length, damaged], [wanted, 0], `cut at ${length}`)
    await log.append([toLine('{"c":3}')], () => {})
    await log.close()
    const again = await readAll(path)
    if (again.lines.at(-1) !== '{"c":3}' || again.lines.length !== wanted + 1)
      t.same(again.lines, [], `cut at ${length}`)
    await again.log.close()
  }
  t.ok(whole.length > 0)
})

t.test('[jobs/file-store.3] damaged lines are counted when good ones follow', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const path = tree.path('log')
  const bad = ['xxxxxxxx {"a":1}\n', '\n', '00000000 {}\n', `${'\0'.repeat(300_000)}\n`]
  writeFileSync(path, LOG_HEADER + bad.join('') + toLine('{"b":2}').toString('latin1'))
  appendFileSync(path, 'torn')
  const { log, lines, damaged } = await readAll(path)
  t.same([lines, damaged], [['{"b":2}'], bad.length])
  await log.close()
})

t.test(
  '[jobs/file-store.3, jobs/file-store.9] a file of something else or of a newer version is refused as it is',
  async t => {
    const tree = makeTree({ text: 'hello', newer: 'fngw-jobs 2\nabc', short: 'x' })
    t.teardown(tree.cleanup)
    for (const name of ['text', 'newer', 'short']) {
      const before = readFileSync(tree.path(name))
      const error = await LineLog.open(tree.path(name), () => true).then(
        () => null,
        (thrown: unknown) => thrown,
      )
      t.equal(error instanceof ForeignLogError, name !== 'newer')
      t.same(readFileSync(tree.path(name)), before, 'as it was')
    }
    await t.rejects(
      LineLog.open(tree.path('newer'), () => true),
      { message: /format 2 of a newer fngw/ },
    )
  },
)

t.test('[jobs/file-store.1] what shortens the file under it is told', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const { log } = await readAll(tree.path('log'))
  let place: LinePlace | null = null
  await log.append([toLine('{"a":1}')], places => {
    place = places[0]!
  })
  truncateSync(tree.path('log'), 3)
  await t.rejects(log.read(place!), { message: /became shorter/ })
  await log.close()
})

t.test(
  '[jobs/file-store.1] a write that the disk refuses rejects all that waited for it and leaves nothing',
  async t => {
    const tree = makeTree()
    t.teardown(tree.cleanup)
    const { log } = await readAll(tree.path('log'))
    const size = log.size
    // The handle ends under it: every further write fails, as on a disk that is gone.
    await log.close()
    const outcomes = await Promise.allSettled([1, 2].map(() => log.append([toLine('{}')], () => t.fail('not kept'))))
    t.same(
      outcomes.map(({ status }) => status),
      ['rejected', 'rejected'],
    )
    t.equal(log.size, size)
  },
)

t.test(
  '[jobs/file-store.3] a line that is too long, as a hole is, is left out and the lines behind it are read',
  async t => {
    const tree = makeTree()
    t.teardown(tree.cleanup)
    const path = tree.path('log')
    writeFileSync(path, Buffer.concat([Buffer.from(LOG_HEADER), toLine('{"a":1}')]))
    truncateSync(path, 65 * 1024 * 1024)
    appendFileSync(path, Buffer.concat([Buffer.from('\n'), toLine('{"b":2}')]))
    const { log, lines, places, damaged } = await readAll(path)
    t.same([lines, damaged], [['{"a":1}', '{"b":2}'], 1])
    t.equal(await log.read(places[1]!), '{"b":2}')
    await log.close()
  },
)
