import { Readable, Writable } from 'node:stream'
import { Command } from 'commander'
import t from 'tap'
import { ApiClient } from '../../bin/api-client.ts'
import { cancelJob, createJob, type JobCreateFlags, listJobs, showJob, writeResult } from '../../bin/jobs-command.ts'
import { addJobs } from '../../bin/jobs-program.ts'
import { createOutput } from '../../bin/output.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

const TREE = {
  'echo/handler.js':
    'exports.handler = e => ({ status: Number(e.query.status ?? 200), body: JSON.stringify([e.method, e.query, e.headers["x-a"], e.body, e.context.user]) })',
  'bytes/handler.js': 'exports.handler = () => ({ status: 200, body: Buffer.alloc(300000, 255) })',
  'throws/handler.js': 'exports.handler = () => { throw new Error("bad\\u001b[2J") }',
  'slow/handler.js': 'exports.handler = () => new Promise(() => {})',
  'slow/fn.config.json': '{ "name": "slow", "runtime": "node", "timeout_ms": 60000 }',
  'echo/fn.config.json': '{ "name": "echo", "runtime": "node" }',
}

function makeOutput() {
  const lists: Buffer[][] = [[], []]
  const [stdout, stderr] = lists.map(list =>
    Object.assign(
      new Writable({
        write(chunk, _encoding, done) {
          list.push(Buffer.from(chunk))
          done()
        },
      }),
      { isTTY: false },
    ),
  ) as unknown as [NodeJS.WriteStream, NodeJS.WriteStream]
  const take = (list: Buffer[]): Buffer => Buffer.concat(list.splice(0))
  return {
    output: createOutput(stdout, stderr, { NO_COLOR: '1' }),
    out: () => take(lists[0]!),
    err: () => take(lists[1]!).toString(),
  }
}

t.test('[bin/jobs.1, bin/jobs.2, bin/jobs.3, bin/jobs.4] every word against a running gateway', async t => {
  const { url } = await serveTree(t, TREE, { runtimes: ['node'], consoleWriteEnabled: true })
  const api = new ApiClient({ url, token: null })
  const { output, out, err } = makeOutput()
  const create = (name: string, flags: JobCreateFlags, stdin = '') =>
    createJob(api, name, flags, { output, stdin: Readable.from([Buffer.from(stdin)]) })

  await listJobs(api, {}, output)
  t.same([String(out()), err()], ['', 'no jobs\n'])

  const flags = {
    data: '@-',
    query: ['a=1', 'a=2'],
    header: ['X-A: b'],
    context: '{"who":"me"}',
    maxAttempts: '2',
    wait: true,
  }
  t.equal(await create('echo', flags, '{"x":1}'), 0)
  const id = /^(job-\S+) {2}done {6}echo {2}1\/2 {2}200 {2}\S+Z\n$/.exec(String(out()))![1]!
  t.equal(await writeResult(api, id, {}, output), 0)
  t.same(JSON.parse(String(out())), ['POST', { a: ['1', '2'] }, 'b', '{"x":1}', { who: 'me' }])
  await showJob(api, id, output)
  t.match(JSON.parse(String(out())), { id, status: 'done', max_attempts: 2 })

  t.equal(await create('bytes', { wait: true, json: true }), 0)
  const bytes = JSON.parse(String(out())) as { id: string; method: string }
  t.equal(bytes.method, 'GET')
  t.equal(await writeResult(api, bytes.id, {}, output), 0)
  t.ok(out().equals(Buffer.alloc(300_000, 255)), 'the bytes as they are')

  t.equal(await create('throws', { wait: true, retryDelay: '0.01', maxAttempts: '2', backoff: '1.5' }), 1)
  t.match(String(out()), /failed {4}throws {2}2\/2 {2}500 {2}\S+ {2}bad\\x1b\[2J\n$/)
  t.equal(await create('echo', { query: ['status=404'], wait: true }), 0, 'a refusal of the function is its answer')
  const refused = String(out()).split(' ')[0]!
  t.equal(await writeResult(api, refused, {}, output), 1)
  t.equal(err(), 'status 404\n')
  out()

  t.equal(await create('slow', { key: 'k' }), 0)
  const slow = String(out()).trim()
  t.equal(await create('slow', { key: 'k' }), 0)
  t.equal(String(out()).trim(), slow, 'the same key, the same job')
  t.equal(await writeResult(api, slow, {}, output), 1)
  t.match(err(), /^no result yet: the job is (queued|running)\n$/)
  await cancelJob(api, slow, output)
  t.equal(String(out()), `${slow} canceled\n`)
  await cancelJob(api, slow, output)
  t.equal(String(out()), `${slow} deleted\n`)

  t.equal(await create('echo', { delay: '0.3', data: 'later' }), 0)
  const later = String(out()).trim()
  t.equal(await writeResult(api, later, { wait: true }, output), 0, 'waits for a job that has not begun')
  t.match(JSON.parse(String(out())), ['POST', {}, null, 'later'])

  t.equal(await create('echo', { delay: '100', callback: 'http://127.0.0.1:1/' }), 0)
  out()
  await listJobs(api, { limit: '1', state: 'queued' }, output)
  t.match(
    String(out()),
    /^ID +STATE +FUNCTION +ATTEMPT +STATUS +CREATED +ERROR\njob-\S+ {2}queued {2}echo {6}0\/1 {6}- {7}(now|\d+ s ago)\n$/,
  )
  await listJobs(api, { limit: '2' }, output)
  t.match(err(), /^there are more: --cursor \d+\n$/)
  out()
  await listJobs(api, { json: true, fn: 'bytes' }, output)
  t.match(JSON.parse(String(out())), { jobs: [{ name: 'bytes' }], next_cursor: null })

  await t.rejects(create('none', {}), { message: /404: unknown function or version/ })
  await t.rejects(create('echo', { maxAttempts: '99' }), {
    message: /400: max_attempts must be an integer from 1 to 10, got 99/,
  })
  await t.rejects(create('echo', { delay: 'x' }), { message: '--delay must be a number, got "x"' })
  await t.rejects(showJob(api, '../health', output), { message: /404: / })
  await t.rejects(listJobs(api, { state: 'gone' }, output), { message: /400: query field state must be one of/ })
})

t.test('[bin/jobs.1, bin/jobs.2] the words reach the gateway that --url names', async t => {
  const { url } = await serveTree(t, TREE, { runtimes: ['node'], consoleWriteEnabled: true })
  const { output, out } = makeOutput()
  const run = async (...words: string[]): Promise<string> => {
    const program = new Command('fngw').exitOverride().enablePositionalOptions()
    addJobs(program, output)
    await program.parseAsync(['node', 'fngw', 'jobs', ...words, '--url', url])
    return String(out())
  }
  const id = (
    await run('create', 'echo', '--delay', '100', '--version', 'default').catch(() =>
      run('create', 'echo', '--delay', '100'),
    )
  ).trim()
  t.match(id, /^job-/)
  t.match(await run('ls', '--fn', 'echo'), id)
  t.match(await run('show', id), /"status": "queued"/)
  await run('result', id)
  t.equal(process.exitCode, 1)
  process.exitCode = 0
  t.equal(await run('cancel', id), `${id} canceled\n`)
})
