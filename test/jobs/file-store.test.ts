import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import t from 'tap'
import { type Job, readWhole } from '../../lib/jobs/job.ts'
import { LOG_HEADER, toLine } from '../../lib/jobs/file-store.ts'
import { asNobody } from '../helpers/as-nobody.ts'
import { makeJob, makeRequest, makeStore } from '../helpers/jobs-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const ids = (jobs: readonly Job[]): string[] => jobs.map(({ seq, state }) => `${seq} ${state}`)

t.test('[jobs/file-store.1] steps are read back as they were, and requests with them', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root)
  t.same(await store.open(), { jobs: [], warnings: [] })
  const [first, second, third] = [1, 2, 3].map(seq => makeJob({ seq }))
  await store.save([{ job: second!, request: makeRequest({ path: '/second' }) }])
  await store.save([
    { job: first!, request: makeRequest() },
    { job: third!, request: makeRequest() },
  ])
  await store.save([{ job: { ...second!, state: 'running', attempt: 1 } }, { gone: third!.id }])
  await store.save([{ job: { ...third!, state: 'done' } }])
  const request = JSON.parse(String(await readWhole((await store.read(second!.id, 'request'))!)))
  t.same(request, makeRequest({ path: '/second' }))
  t.equal(await store.read(third!.id, 'request'), null)
  await store.close()
  await t.rejects(store.save([{ job: first! }]), { message: /closed/ })
  const again = makeStore(tree.root)
  // The same process: the lock of a store that is closed is the gateway's to give back.
  tree.remove('.svc/gateway.lock')
  const { jobs, warnings } = await again.open()
  t.same(warnings, [], 'a step of a job that was deleted meanwhile is no damage')
  t.same(ids(jobs), ['1 queued', '2 running'])
  t.same(jobs[0], first)
  await again.close()
})

t.test(
  '[jobs/file-store.8] a folder that is deleted or moved is written again, before the next step is acknowledged',
  async t => {
    const tree = makeTree()
    t.teardown(tree.cleanup)
    const store = makeStore(tree.root)
    await store.open()
    const [first, second, third] = [1, 2, 3].map(seq => makeJob({ seq }))
    await store.save([{ job: first!, request: makeRequest({ path: '/first' }) }])
    /** What a gateway that starts now would find. */
    const found = async () => {
      tree.write({ 'copy/.svc/jobs/log': readFileSync(tree.path('.svc/jobs/log'), 'utf8') })
      const other = makeStore(tree.path('copy'))
      const { jobs } = await other.open()
      await other.close()
      tree.remove('copy')
      return ids(jobs)
    }
    tree.remove('.svc')
    await store.save([{ job: second!, request: makeRequest() }])
    t.same(await found(), ['1 queued', '2 queued'])
    renameSync(tree.path('.svc'), tree.path('.moved'))
    const body = await store.write(third!.id, 'body')
    await body.write(Buffer.from('x'))
    await body.end()
    await Promise.all([
      store.save([{ job: { ...first!, state: 'running', attempt: 1 } }]),
      store.save([{ job: third!, request: makeRequest({ hasBodyPart: true }) }]),
    ])
    t.same(await found(), ['1 running', '2 queued', '3 queued'])
    t.match(String(await readWhole((await store.read(first!.id, 'request'))!)), /first/)
    t.equal(String(await readWhole((await store.read(third!.id, 'body'))!)), 'x')
    await store.close()
  },
)

t.test('[jobs/file-store.8] another gateway that took the folder meanwhile keeps it', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root)
  await store.open()
  await store.save([{ job: makeJob({ seq: 1 }), request: makeRequest() }])
  tree.remove('.svc')
  const other = makeStore(tree.root)
  await other.open()
  await t.rejects(store.save([{ job: makeJob({ seq: 2 }), request: makeRequest() }]), {
    message: /kept by the gateway/,
  })
  await store.save([{ job: makeJob({ seq: 1, state: 'done' }) }])
  t.equal(readFileSync(tree.path('.svc/jobs/log'), 'utf8'), LOG_HEADER)
  await store.close()
  await other.close()
})

t.test('[jobs/jobs.15] a root that another one keeps is not opened', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const one = makeStore(tree.root)
  await one.open()
  await t.rejects(makeStore(tree.root).open(), {
    message: new RegExp(`kept by the gateway with process ${process.pid} on `),
  })
  await one.close()
})

t.test('[jobs/file-store.3] a damaged line is left out, and the log kept aside', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const entry = (seq: number) => toLine(JSON.stringify({ job: makeJob({ seq }), request: makeRequest() })).toString()
  const damaged = LOG_HEADER + entry(1) + entry(2).replace('queued', 'QUEUED') + entry(3) + toLine('{"x":1}') + entry(4)
  tree.write({ '.svc/jobs/log': damaged })
  const store = makeStore(tree.root)
  const { jobs, warnings } = await store.open()
  t.same(ids(jobs), ['1 queued', '3 queued', '4 queued'])
  t.match(warnings, [{ code: 'JOBS_SET_ASIDE', message: /^2 lines of \.svc\/jobs\/log were damaged/ }])
  const aside = readdirSync(tree.path('.svc/jobs')).filter(name => name.startsWith('log.set-aside-'))
  t.equal(readFileSync(tree.path(`.svc/jobs/${aside}`), 'utf8'), damaged)
  await store.save([{ job: makeJob({ seq: 5 }), request: makeRequest() }])
  await store.close()
  tree.remove('.svc/gateway.lock')
  const again = makeStore(tree.root)
  const second = await again.open()
  t.same([ids(second.jobs).length, second.warnings], [4, []], 'told once')
  await again.close()
})

t.test('[jobs/file-store.3] what is no log of this version is moved aside as it is', async t => {
  const makers: [string, (path: string) => void][] = [
    ['a text', path => writeFileSync(path, 'notes')],
    ['a folder', path => mkdirSync(`${path}/x`, { recursive: true })],
    ['a link', path => symlinkSync('/etc/hostname', path)],
  ]
  for (const [title, make] of makers) {
    const tree = makeTree({ '.svc/jobs/': '' })
    t.teardown(tree.cleanup)
    make(tree.path('.svc/jobs/log'))
    const store = makeStore(tree.root)
    const { jobs, warnings } = await store.open()
    t.same(jobs, [], title)
    t.match(warnings, [{ code: 'JOBS_SET_ASIDE', message: /could not be used/ }], title)
    t.equal(readdirSync(tree.path('.svc/jobs')).filter(name => name.startsWith('log.set-aside-')).length, 1, title)
    await store.save([{ job: makeJob(), request: makeRequest() }])
    await store.close()
  }
  const tree = makeTree({ 'outside/': '' })
  t.teardown(tree.cleanup)
  mkdirSync(tree.path('.svc'))
  symlinkSync(tree.path('outside'), tree.path('.svc/jobs'))
  await t.rejects(makeStore(tree.root).open(), { message: /\.svc\/jobs is a symbolic link/ })
  t.same(readdirSync(tree.path('outside')), [])
})

t.test('[jobs/file-store.9] the log of a newer version is refused and stays as it is', async t => {
  const tree = makeTree({ '.svc/jobs/log': 'fngw-jobs 9\n{}' })
  t.teardown(tree.cleanup)
  await t.rejects(makeStore(tree.root).open(), {
    message: /has format 9 of a newer fngw, this one reads format 1: start the newer/,
  })
  t.same(
    [readFileSync(tree.path('.svc/jobs/log'), 'utf8'), readdirSync(tree.path('.svc/jobs'))],
    ['fngw-jobs 9\n{}', ['log']],
  )
})

t.test('[jobs/file-store.4] a log that is mostly outdated is written anew while steps go on', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root, undefined, 4096)
  await store.open()
  const jobs = Array.from({ length: 20 }, (_, index) => makeJob({ seq: index + 1 }))
  for (const job of jobs) await store.save([{ job, request: makeRequest({ path: `/${job.seq}` }) }])
  let smallest = Number.POSITIVE_INFINITY
  let largest = 0
  for (let round = 1; round <= 60; round++) {
    const steps = jobs.map(job => store.save([{ job: { ...job, attempt: round } }]))
    const reads = jobs.map(async ({ id, seq }) => {
      const { path } = JSON.parse(String(await readWhole((await store.read(id, 'request'))!))) as { path: string }
      if (path !== `/${seq}`) t.equal(path, `/${seq}`)
    })
    await Promise.all([...steps, ...reads])
    const { length } = readFileSync(tree.path('.svc/jobs/log'))
    smallest = Math.min(smallest, length)
    largest = Math.max(largest, length)
  }
  t.ok(largest < 60_000, `it stays small: ${largest}`)
  await store.close()
  t.notOk(existsSync(tree.path('.svc/jobs/log.new')))
  tree.remove('.svc/gateway.lock')
  const again = makeStore(tree.root)
  const { jobs: read, warnings } = await again.open()
  t.same(warnings, [])
  t.same(
    read.map(({ seq, attempt }) => [seq, attempt]),
    jobs.map(({ seq }) => [seq, 60]),
  )
  await again.close()
})

t.test('[jobs/file-store.4] a log that is rewritten in several batches keeps every job and request', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root, undefined, 4096)
  await store.open()
  const jobs = Array.from({ length: 10 }, (_, index) => makeJob({ seq: index + 1 }))
  const body = 'x'.repeat(1024 * 1024)
  const requests = jobs.map(({ seq }) => makeRequest({ path: `/${seq}`, body }))
  await store.save(jobs.map((job, index) => ({ job, request: requests[index]! })))
  // Damage makes the next start rewrite the log.
  await store.close()
  const log = readFileSync(tree.path('.svc/jobs/log'))
  const end = log.indexOf('\n', LOG_HEADER.length) + 1
  writeFileSync(
    tree.path('.svc/jobs/log'),
    Buffer.concat([log.subarray(0, end), Buffer.from('damaged\n'), log.subarray(end)]),
  )
  tree.remove('.svc/gateway.lock')
  const again = makeStore(tree.root)
  t.match((await again.open()).warnings, [{ code: 'JOBS_SET_ASIDE' }])
  const check = async (one: typeof again) => {
    for (const { id, seq } of jobs) {
      const { path, body: kept } = JSON.parse(String(await readWhole((await one.read(id, 'request'))!)))
      t.same([path, kept.length], [`/${seq}`, body.length])
    }
  }
  await check(again)
  await again.save([{ job: { ...jobs[0]!, attempt: 1 } }])
  await again.close()
  tree.remove('.svc/gateway.lock')
  const last = makeStore(tree.root)
  const { jobs: read, warnings } = await last.open()
  t.same([warnings, read.map(({ attempt }) => attempt)], [[], [1, ...Array<number>(9).fill(0)]])
  await check(last)
  await last.close()
})

t.test('[jobs/file-store.4] a draft that a kill left is dropped, and the old log counts', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const line = toLine(JSON.stringify({ job: makeJob(), request: makeRequest() })).toString()
  tree.write({ '.svc/jobs/log': LOG_HEADER + line, '.svc/jobs/log.new': LOG_HEADER })
  const store = makeStore(tree.root)
  t.same(ids((await store.open()).jobs), ['1 queued'])
  t.notOk(existsSync(tree.path('.svc/jobs/log.new')))
  await store.close()
})

t.test('[jobs/file-store.6] parts follow their jobs', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root)
  await store.open()
  const job = makeJob()
  await store.save([{ job, request: makeRequest() }])
  const writer = await store.write(job.id, 'result')
  await writer.write(Buffer.from('x'))
  await writer.end()
  t.equal(String(await readWhole((await store.read(job.id, 'result'))!)), 'x')
  await store.save([{ gone: job.id }])
  t.equal(await store.read(job.id, 'result'), null)
  t.throws(() => store.write('../x', 'result'), TypeError)
  await store.close()
  writeFileSync(tree.path(`.svc/jobs/results/${job.id}`), 'of no job')
  tree.remove('.svc/gateway.lock')
  const again = makeStore(tree.root)
  await again.open()
  t.same(readdirSync(tree.path('.svc/jobs/results')), [])
  await again.close()
})

t.test('[jobs/jobs.14] a folder that cannot be written is told', async t => {
  const tree = makeTree({ '.svc/': '' })
  t.teardown(tree.cleanup)
  chmodSync(tree.root, 0o755)
  chmodSync(tree.path('.svc'), 0o555)
  t.teardown(() => chmodSync(tree.path('.svc'), 0o700))
  await t.rejects(
    asNobody(() => makeStore(tree.root).open()),
    { code: 'EACCES' },
  )
})
