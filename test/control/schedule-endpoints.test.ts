import t from 'tap'
import { makeControlBed } from '../helpers/control-bed.ts'

const HANDLER = 'exports.handler = e => ({ status: Number(e.query.status ?? 200), headers: {}, body: "" })'

const TREE = {
  'a/handler.js': HANDLER,
  'a/fn.config.json': {
    json: {
      schedule: {
        cron: '0 9 * * MON-FRI',
        timezone: 'Asia/Kathmandu',
        headers: { authorization: 'hush-hush' },
        retry: true,
      },
    },
  },
  'fails/handler.js': HANDLER,
  'fails/fn.config.json': { json: { schedule: { every_seconds: 86400, query: { status: 418 } } } },
  'off/handler.js': HANDLER,
  'off/fn.config.json': { json: { schedule: { every_seconds: 60, enabled: false } } },
  'wrong/handler.js': HANDLER,
  'wrong/fn.config.json': { json: { schedule: { every_seconds: 'often' } } },
  'plain/handler.js': HANDLER,
  'twice/handler.js': HANDLER,
  'twice/handler.lua': 'function handler() return 1 end',
}

const TIME = /^\d{4}-\d\d-\d\dT09:00:00\+05:45$/

t.test('[control/schedules.1, control/schedules.2] rows', async t => {
  const { say, ask } = await makeControlBed(t, TREE)
  const [status, body] = await say('GET', '/_fn/schedules')
  t.equal(status, 200)
  const state = { next: Number, last: null, last_status: null, last_error: '' }
  t.match(body, {
    ts: Number,
    keep_warm: [],
    schedules: [
      {
        runtime: 'node',
        name: 'a',
        version: 'default',
        key: 'node/a@default',
        schedule: {
          enabled: true,
          cron: '0 9 * * MON-FRI',
          timezone: 'Asia/Kathmandu',
          method: 'GET',
          retry: { max_attempts: 3, base_delay_seconds: 1, max_delay_seconds: 30, jitter: 0.2 },
        },
        next_at: TIME,
        running: false,
        state,
        ...state,
      },
      { name: 'fails', schedule: { every_seconds: 86400 } },
      { name: 'off', schedule: { enabled: false }, next: null, next_at: null, last_error: '' },
      {
        name: 'wrong',
        schedule: null,
        next: null,
        last_error: /wrong\/fn\.config\.json: schedule\.every_seconds must be an integer/,
      },
    ],
  })
  t.equal((body.schedules as unknown[]).length, 4)
  t.notOk((await ask('GET', '/_fn/schedules')).text().includes('hush-hush'))
})

t.test('[control/schedules.3] due times to come, and a run by hand', async t => {
  const { say } = await makeControlBed(t, TREE)
  const [, preview] = await say('GET', '/_fn/schedules/next?name=a&count=7')
  const { key, timezone, next } = preview as { key: string; timezone: string; next: { at: number; local: string }[] }
  t.same([key, timezone, next.length], ['node/a@default', 'Asia/Kathmandu', 7])
  for (const { at, local } of next) {
    t.match(local, TIME)
    t.equal(Date.parse(local), at * 1000)
    t.notOk([0, 6].includes(new Date(`${local.slice(0, 10)}T12:00:00Z`).getUTCDay()), local)
  }
  t.equal((await say('GET', '/_fn/schedules/next?name=a'))[1].next?.toString().split(',').length, 5)
  t.match(await say('GET', '/_fn/schedules/next?name=off'), [200, { next: [] }])
  t.match(await say('POST', '/_fn/schedules/run', { name: 'a' }), [
    200,
    {
      key: 'node/a@default',
      status: 200,
      error: '',
      latency_ms: Number,
      schedule: { name: 'a', last_status: 200, next_at: TIME },
    },
  ])
  t.match(await say('POST', '/_fn/schedules/run', { name: 'fails', runtime: 'node', version: null }), [
    200,
    { status: 418, error: 'HTTP 418', schedule: { last_error: 'HTTP 418' } },
  ])
})

t.test('[control/schedules.4] what is refused', async t => {
  const { say } = await makeControlBed(t, TREE)
  const cases: [method: string, url: string, body: unknown, status: number, error: RegExp][] = [
    ['POST', 'run', { name: 'none' }, 404, /unknown function/],
    ['POST', 'run', { name: 'plain' }, 404, /node\/plain@default has no schedule/],
    ['POST', 'run', { name: 'off' }, 409, /switched off/],
    ['POST', 'run', { name: 'wrong' }, 409, /every_seconds must be/],
    ['POST', 'run', {}, 400, /^name is missing$/],
    ['POST', 'run', { name: 5 }, 400, /name .* got 5/],
    ['POST', 'run', { name: 'a', runtime: 'cobol' }, 400, /runtime must be one of/],
    ['POST', 'run', { name: 'a', version: '../x' }, 400, /version must be/],
    ['POST', 'run', { name: 'a', nmae: 1 }, 400, /nmae is not a known key, did you mean name\?/],
    ['POST', 'run', [], 400, /JSON object/],
    ['POST', 'run?name=a', { name: 'a' }, 400, /name/],
    ['GET', 'next', undefined, 400, /name is missing/],
    ['GET', 'next?name=plain', undefined, 404, /no schedule/],
    ['GET', 'next?name=wrong', undefined, 409, /not used/],
    ['GET', 'next?name=a&count=0', undefined, 400, /count must be an integer from 1 to 100/],
  ]
  for (const [method, url, body, status, error] of cases) {
    const answer = await say(method, `/_fn/schedules/${url}`, body)
    t.match(answer, [status, { error }], `${url} ${JSON.stringify(body)}`)
  }
})

t.test('[control/schedules.5] pings', async t => {
  const { say } = await makeControlBed(t, {
    'w/handler.js': HANDLER,
    'w/fn.config.json': { json: { keep_warm: { enabled: true } } },
  })
  t.match(await say('GET', '/_fn/schedules'), [
    200,
    { schedules: [], keep_warm: [{ key: 'node/w@default', keep_warm: { min_warm: 1 }, state: {} }] },
  ])
})
