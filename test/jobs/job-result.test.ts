import t from 'tap'
import { openResult, toResultJson } from '../../lib/jobs/job-result.ts'
import { ResultWriter, TextCheck } from '../../lib/jobs/job-runner.ts'
import { makeJob, makeRequest, makeStore } from '../helpers/jobs-bed.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[jobs/file-store.5] text is known as text wherever it is cut', async t => {
  const whole = Buffer.from('aü€😀z\n')
  for (let cut = 0; cut <= whole.length; cut++) {
    for (let second = cut; second <= whole.length; second++) {
      const check = new TextCheck()
      for (const piece of [whole.subarray(0, cut), whole.subarray(cut, second), whole.subarray(second)])
        check.add(piece)
      check.add()
      if (!check.isText) t.fail(`cut at ${cut} and ${second}`)
    }
  }
  for (const bytes of [[0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0x80], [0xf5, 0x80, 0x80, 0x80], [0xc3, 0x28]]) {
    const check = new TextCheck()
    for (const byte of bytes) check.add(Buffer.from([byte]))
    check.add()
    t.notOk(check.isText, `${bytes}`)
  }
  const torn = new TextCheck()
  torn.add(whole.subarray(0, 2))
  t.equal(torn.isText, true)
  torn.add()
  t.equal(torn.isText, false)
})

async function keep(t: Test, pieces: Buffer[], maxBytes = 0) {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root)
  await store.open()
  t.teardown(() => store.close())
  let full = 0
  const job = makeJob({ state: 'done' })
  await store.save([{ job, request: makeRequest() }])
  const writer = new ResultWriter({ open: () => store.write(job.id, 'result'), maxBytes, onFull: () => full++ })
  writer.begin(201, ['X-A', '1', 'Set-Cookie', 'a', 'Set-Cookie', 'b'])
  for (const piece of pieces) await writer.write(piece)
  const kept = await writer.end()
  const { bytes, truncated } = writer
  const result = (await openResult({ ...job, result: { bytes, truncated, latencyMs: 1, ...kept! } }, store))!
  const json: Buffer[] = []
  for await (const piece of toResultJson(result)) json.push(piece)
  return { result, full, json: JSON.parse(Buffer.concat(json).toString()) as Record<string, unknown>, store, job }
}

type Test = { teardown: (fn: () => unknown) => void }

t.test('[jobs/file-store.5, control/jobs-endpoints.2] any bytes of any size come back as they were', async t => {
  const binary = Buffer.from(Array.from({ length: 700_001 }, (_, index) => (index * 7) % 256))
  const text = 'line "1"\n\u2028ü😀'.repeat(50_000)
  const bytes = Buffer.from(text)
  const cases: [string, Buffer[], 'body' | 'body_base64', string][] = [
    ['nothing', [], 'body', ''],
    ['text', [bytes.subarray(0, 100_001), bytes.subarray(100_001)], 'body', text],
    [
      'bytes',
      [binary.subarray(0, 1), binary.subarray(1, 65_538), binary.subarray(65_538)],
      'body_base64',
      binary.toString('base64'),
    ],
  ]
  for (const [title, pieces, field, wanted] of cases) {
    const { json, full } = await keep(t, pieces)
    t.ok(json[field] === wanted, title)
    t.match(json, {
      status: 201,
      truncated: false,
      is_base64: field === 'body_base64',
      headers: { 'x-a': '1', 'set-cookie': ['a', 'b'] },
    })
    t.equal(full, 0)
  }
})

t.test('[jobs/file-store.5] at the limit it is cut, and its maker is told once', async t => {
  const { json, full } = await keep(t, [Buffer.from('abc'), Buffer.from('défg'), Buffer.from('more')], 5)
  t.match(json, { bytes: 5, truncated: true, body: 'abcd\ufffd' })
  t.equal(full, 1)
  const exact = await keep(t, [Buffer.from('abcde')], 5)
  t.match(exact.json, { bytes: 5, truncated: false, body: 'abcde' })
})

t.test('[jobs/file-store.5] without an answer nothing is kept; what is no result is none', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root)
  await store.open()
  t.teardown(() => store.close())
  const job = makeJob({ result: { bytes: 1, isText: true, truncated: false, latencyMs: 1 } })
  const writer = new ResultWriter({ open: () => store.write(job.id, 'result'), maxBytes: 0, onFull: () => {} })
  t.equal(writer.status, null)
  t.equal(await writer.end(), null)
  await writer.discard()
  t.equal(await openResult(job, store), null)
  t.equal(await openResult(makeJob(), store), null)
  for (const text of ['no line', '{"status":"x"}\nbody', 'null\n', '[]\n', '']) {
    tree.write({ [`.svc/jobs/results/${job.id}`]: text })
    t.equal(await openResult(job, store), null, JSON.stringify(text))
  }
})
