import { Writable } from 'node:stream'
import { Command } from 'commander'
import t from 'tap'
import { ApiClient } from '../../bin/api-client.ts'
import { toRelativeTime } from '../../bin/columns.ts'
import { createOutput } from '../../bin/output.ts'
import { addSchedule, listSchedules, runSchedule, showNext } from '../../bin/schedule-command.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

const HANDLER =
  'exports.handler = e => { if (e.query.bad) throw new Error("bad\\u001b[2J"); return { status: 200, headers: {}, body: "" } }'
const of = (schedule: object): string => JSON.stringify({ schedule })
const TREE = {
  'report/handler.js': HANDLER,
  'report/fn.config.json': JSON.stringify({
    private: true,
    schedule: { cron: '0 9 * * MON-FRI', timezone: 'Asia/Kathmandu' },
  }),
  'bad/handler.js': HANDLER,
  'bad/fn.config.json': of({ every_seconds: 86_400, query: { bad: 1 } }),
  'off/handler.js': HANDLER,
  'off/fn.config.json': of({ every_seconds: 60, enabled: false }),
  'wrong/handler.js': HANDLER,
  'wrong/fn.config.json': of({ cron: 'now' }),
}

function makeOutput() {
  const texts = ['', '']
  const [stdout, stderr] = [0, 1].map(index =>
    Object.assign(
      new Writable({
        write(chunk, _encoding, done) {
          texts[index] += String(chunk)
          done()
        },
      }),
      { isTTY: false },
    ),
  ) as unknown as [NodeJS.WriteStream, NodeJS.WriteStream]
  const take = (): string[] => texts.splice(0, 2, '', '')
  return { output: createOutput(stdout, stderr, { NO_COLOR: '1' }), take }
}

t.test('[config/function-config.23] a private function has no route; schedules, jobs and invoke call it', async t => {
  const { url } = await serveTree(t, TREE, { runtimes: ['node'], consoleWriteEnabled: true })
  const api = new ApiClient({ url, token: null })
  t.equal((await fetch(`${url}/report`)).status, 404)
  t.match(await api.json('POST', '/_fn/schedules/run', { json: { name: 'report' } }), { status: 200 })
  t.match(await api.json('POST', '/_fn/invoke', { json: { name: 'report', method: 'GET' } }), {
    status: 200,
  })
  let job = (await api.json('POST', '/_fn/jobs', { json: { name: 'report' } })) as { id: string; status: string }
  while (/queued|running/.test(job.status)) job = (await api.json('GET', `/_fn/jobs/${job.id}`)) as typeof job
  t.match(job, { status: 'done', result_status: 200 })
  const { paths } = (await api.json('GET', '/openapi.json')) as { paths: object }
  t.notOk(Object.keys(paths).some(path => path.includes('report')))
})

t.test('[bin/schedule.1] times relative to now', async t => {
  const now = 1_000_000_000
  const texts = [0, 400, 5000, 119_000, 120_000, 3_600_000, 7_200_000, 172_800_000].map(ms =>
    toRelativeTime(now + ms, now),
  )
  t.same(texts, ['now', 'now', 'in 5 s', 'in 119 s', 'in 2 min', 'in 60 min', 'in 2 h', 'in 2 d'])
  t.equal(toRelativeTime(now - 5000, now), '5 s ago')
})

t.test('[bin/schedule.1, bin/schedule.2, bin/schedule.3] every word against a running gateway', async t => {
  const { url } = await serveTree(t, TREE, { runtimes: ['node'], consoleWriteEnabled: true })
  const api = new ApiClient({ url, token: null })
  const { output, take } = makeOutput()

  t.equal(await runSchedule(api, 'report', {}, output), 0)
  t.match(take(), [/^200 in \d+\.\d ms\n$/, ''])
  t.equal(await runSchedule(api, 'bad', { runtime: 'node' }, output), 1)
  const [said, noted] = take() as [string, string]
  t.match(said, /^500 in/)
  t.match(noted, 'bad')
  t.notOk(noted.includes('\u001b'))

  await listSchedules(api, {}, output)
  const [list] = take() as [string]
  const lines = list.trimEnd().split('\n')
  t.match(lines, [
    /^NAME +RULE +NEXT +LAST$/,
    /^bad {5}every 86400 s +in \d+ (h|min|s), \S+ +500, (now|\d+ s ago), .*bad/,
    /^off {5}every 60 s +off +not run yet$/,
    /^report {2}0 9 \* \* MON-FRI \(Asia\/Kathmandu\) {2}in \d+ (d|h|min|s), \d{4}-\d\d-\d\dT09:00:00\+05:45 +200, (now|\d+ s ago)$/,
    /^wrong {3}wrong +never +wrong\/fn\.config\.json: schedule\.cron must be/,
  ])
  t.notOk(list.includes('\u001b'))
  await listSchedules(api, { json: true }, output)
  t.equal(JSON.parse(take()[0]!).schedules.length, 4)

  await showNext(api, 'report', { count: '3' }, output)
  t.match(take()[0]!.trimEnd().split('\n'), Array(3).fill(/^\d{4}-\d\d-\d\dT09:00:00\+05:45$/))
  await showNext(api, 'report', { json: true }, output)
  t.equal(JSON.parse(take()[0]!).next.length, 5)
  await showNext(api, 'off', {}, output)
  t.match(take(), ['', /switched off/])

  await t.rejects(showNext(api, 'report', { count: 'x' }, output), { exitCode: 2, message: /--count/ })
  await t.rejects(runSchedule(api, 'off', {}, output), {
    message: /409: the schedule of node\/off@default is switched off/,
  })
  await t.rejects(showNext(api, 'none', {}, output), { message: /404/ })

  const program = new Command().exitOverride().enablePositionalOptions()
  addSchedule(program, output)
  const type = (...words: string[]) => program.parseAsync(['schedule', ...words, '--url', url], { from: 'user' })
  await type('next', 'report', '-n', '2')
  t.equal(take()[0]!.split('\n').length, 3)
  await type('ls')
  t.match(take()[0], /^NAME [\s\S]*\nwrong /)
  await type('run', 'report', '--json')
  t.match(JSON.parse(take()[0]!), { key: 'node/report@default', status: 200 })
  process.exitCode = 0
})
