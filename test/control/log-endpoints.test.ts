import { request as httpRequest, type IncomingMessage } from 'node:http'
import t, { type Test } from 'tap'
import { serveTree } from '../helpers/gateway-bed.ts'

const TREE = {
  'hello.js': `exports.handler = event => { console.log('said ' + event.query.say); return 'ok' }\n`,
  'other.js': `exports.handler = () => { console.error('\\u001b[31mred\\nfake line'); return 'ok' }\n`,
  'broken.js': `exports.handler = () => { throw new Error('boom') }\n`,
}

async function setup(t: Test) {
  const bed = await serveTree(t, TREE, { runtimes: ['node'] })
  const get = async (query: string) => {
    const answer = await bed.gateway.inject(`/_fn/logs${query}`)
    return { status: answer.status, headers: answer.headers, text: answer.body.toString() }
  }
  return { ...bed, get }
}

t.test(
  '[control/logs.1, control/logs.2, observe/log-store.18] lines of each log, with the id of their request',
  async t => {
    const { gateway, get } = await setup(t)
    const headers = { 'x-request-id': 'my-id', traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' }
    await gateway.inject({ url: '/hello?say=one', headers })
    await gateway.inject({ url: '/other', headers })
    await gateway.inject({ url: '/broken', headers })
    const runtime = await get('?file=runtime')
    t.equal(runtime.status, 200)
    t.match(runtime.headers, { 'content-type': 'text/plain; charset=utf-8', 'x-content-type-options': 'nosniff' })
    t.match(runtime.headers, { 'cache-control': 'no-store' })
    const start = String.raw`\S+ req=my-id trace=4bf92f3577b34da6a3ce929d0e0e4736 \[node\]`
    t.match(
      runtime.text,
      new RegExp(
        String.raw`^${start} \[fn:hello@default stdout\] said one\n${start} \[fn:other@default stderr\] \\x1b\[31mred\n${start} \[fn:other@default stderr\] fake line\n$`,
      ),
    )
    t.match((await get('')).text, /error req=my-id trace=\w{32} \[node\] \[fn:broken@default\] GET \/broken: /)
    const access = (await get('?file=access')).text
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line))
    t.match(access.slice(0, 3), [
      { req_id: 'my-id', trace_id: '4bf92f3577b34da6a3ce929d0e0e4736', path: '/hello', fn: 'hello' },
      { path: '/other' },
      { path: '/broken', status: 500 },
    ])
  },
)

t.test('[control/logs.3] as JSON, with the fields that were asked for', async t => {
  const { gateway, get } = await setup(t)
  await gateway.inject('/hello?say=one')
  await gateway.inject('/other')
  const all = JSON.parse((await get('?file=runtime&format=json')).text)
  t.match(all, { file: 'runtime', lines: 3, stream: 'all' })
  t.same(Object.keys(all), ['file', 'lines', 'stream', 'data'])
  t.equal(all.data.length, 3)
  const chosen = JSON.parse(
    (await get('?file=runtime&format=json&fn=hello&runtime=node&version=default&stream=stdout')).text,
  )
  t.same(Object.keys(chosen), ['file', 'lines', 'runtime', 'fn', 'version', 'stream', 'data'])
  t.match(chosen, { lines: 1, fn: 'hello', data: [/said one$/] })
  t.match(JSON.parse((await get('?file=runtime&format=json&stream=stderr')).text), { lines: 2 })
  t.match(JSON.parse((await get('?file=access&format=json&fn=other')).text), { lines: 1, data: [/"path":"\/other"/] })
  t.match(JSON.parse((await get('?file=runtime&format=json&lines=1')).text), { lines: 1, data: [/fake line$/] })
  t.match(JSON.parse((await get('?file=runtime&format=json&lines=0')).text), { lines: 0, data: [] })
  t.match(JSON.parse((await get('?file=runtime&format=json&lines=999999')).text), { lines: 3 })
  t.match(JSON.parse((await get('?format=json&fn=nobody')).text), { file: 'error', lines: 0, data: [] })
})

t.test('[control/logs.9] everything of one request, and what came since', async t => {
  const { gateway, get } = await setup(t)
  for (const id of ['one', 'two'])
    for (const url of ['/hello?say=x', '/broken']) await gateway.inject({ url, headers: { 'x-request-id': id } })
  const of = async (query: string) => JSON.parse((await get(`?format=json&records=1&${query}`)).text)
  const all = await of('file=all&request_id=one')
  t.equal(all.request_id, 'one')
  const files = all.records.map((record: { file: string }) => record.file)
  // A failure has lines for its frames.
  t.same([...new Set(files)].sort(), ['access', 'error', 'runtime'])
  t.equal(files.filter((file: string) => file === 'access').length, 2)
  for (const record of all.records) t.equal(record.request_id, 'one')
  for (const file of ['access', 'runtime', 'error']) {
    const { lines } = await of(`file=${file}&request_id=two`)
    t.equal(lines, files.filter((one: string) => one === file).length, file)
  }
  t.match(await of('file=all&request_id=none'), { lines: 0, records: [] })
  const { time } = all.records.at(-1) as { time: string }
  for (const since of [time, String(Date.parse(time) / 1000)]) {
    const { records, since: told } = await of(`file=access&since=${since}`)
    t.equal(told, time)
    t.ok(records.length >= 2 && records.every((record: { time: string }) => record.time >= time), since)
  }
  t.equal((await of('file=access&since=2999-01-01T00:00:00Z')).lines, 0)
  t.ok((await of('file=access&since=1999-01-01T00:00:00%2B01:00')).lines >= 4)
})

t.test('[control/logs.10] lines in parts, also those that come', async t => {
  const { gateway, url } = await setup(t)
  const headers = { 'x-request-id': 'one', 'user-agent': 'tool/1' }
  const log = await open(`${url}/_fn/logs?file=all&follow=1&format=json&records=1&request_id=one`)
  await gateway.inject({ url: '/hello?say=one', headers })
  await gateway.inject({ url: '/other', headers })
  const text = await log.until('"path":"/other"')
  log.stop()
  const records = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line).record)
  const find = (fields: object) =>
    records.find(record => Object.entries(fields).every(([name, value]) => record[name] === value))
  t.match(find({ file: 'access', path: '/hello' }), {
    ...{ level: 'info', request_id: 'one', runtime: 'node', fn: 'hello', version: 'default', stream: null },
    ...{ text: 'GET /hello 200', method: 'GET', route: '/hello', status: 200, user_agent: 'tool/1', error: null },
    ...{ time: /^\d{4}-.*Z$/, trace_id: /^[0-9a-f]{32}$/, duration_ms: Number, bytes_out: 4, bytes_in: 0, queue_ms: 0 },
  })
  t.match(find({ file: 'runtime', fn: 'hello' }), { level: 'info', stream: 'stdout', text: 'said one' })
  t.match(find({ file: 'runtime', fn: 'other' }), { level: 'warn', stream: 'stderr' })
})

t.test('[control/logs.4] malformed fields are 400 with field, rule and value', async t => {
  const { get } = await setup(t)
  for (const [query, message] of [
    ['?file=secrets', 'query field file must be one of error, access, runtime, all, got "secrets" (string)'],
    ['?file=../../etc/passwd', /^query field file must be one of/],
    ['?lines=many', /^query field lines must be an integer from 0 /],
    ['?lines=-1', /^query field lines must be an integer/],
    ['?lines=1.5', /^query field lines must be an integer/],
    ['?format=xml', 'query field format must be text or json, got "xml" (string)'],
    ['?follow=maybe', /^query field follow must be one of 1, true/],
    ['?runtime=ruby', /^query field runtime must be one of python, node/],
    ['?fn=../x', 'query field fn must be the name of a function, such as hello, got "../x" (string)'],
    ['?fn=/etc/passwd', /^query field fn must be/],
    ['?version=a/b', /^query field version must be/],
    ['?file=runtime&stream=stdin', /^query field stream must be one of all, stdout, stderr/],
    ['?stream=stdout', /^query field stream selects lines of file=runtime only/],
    ['?level=error', /^query field "level" is not known/],
    ['?fn=%ff', /broken percent escape/],
    [
      '?request_id=a%20b',
      'query field request_id must be the id of a request, as X-Request-Id gives it, got "a b" (string)',
    ],
    ['?since=yesterday', /^query field since must be seconds since 1970, or a time such as/],
    ['?since=2026-13-45T00:00:00Z', /^query field since must be/],
    ['?since=-5', /^query field since must be/],
    ['?records=1', /^query field records is for format=json only/],
  ] as const) {
    const { status, text } = await get(query)
    t.equal(status, 400, query)
    t.match(JSON.parse(text).error, message, query)
  }
})

/** An answer that goes on. */
function open(
  url: string,
): Promise<{ message: IncomingMessage; until: (text: string) => Promise<string>; stop: () => void }> {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest(url, { agent: false }, message => {
      let text = ''
      let look = (): void => {}
      message.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
        look()
      })
      resolve({
        message,
        until: wanted =>
          new Promise(found => {
            look = () => text.includes(wanted) && found(text)
            look()
          }),
        stop: () => outgoing.destroy(),
      })
    })
    outgoing.on('error', reject)
    outgoing.end()
  })
}

t.test('[control/logs.5, control/logs.8] a log is followed until the client leaves or the gateway stops', async t => {
  const { gateway, url } = await setup(t)
  await gateway.inject('/hello?say=one')
  await gateway.inject('/hello?say=two')
  const text = await open(`${url}/_fn/logs?file=runtime&follow=1&lines=1&fn=hello`)
  t.match(text.message.headers, { 'content-type': 'text/plain; charset=utf-8', 'x-accel-buffering': 'no' })
  const json = await open(`${url}/_fn/logs?file=runtime&follow&format=json&lines=0`)
  t.equal(json.message.headers['content-type'], 'application/x-ndjson')
  await gateway.inject('/other')
  await gateway.inject('/hello?say=three')
  t.match(
    await text.until('three\n'),
    /^\S+ req=\S+ trace=\S+ \[node\] \[fn:hello@default stdout\] said two\n\S+ .* said three\n$/,
  )
  const rows = (await json.until('three"}\n'))
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line))
  t.match(rows, [{ line: /red$/ }, { line: /fake line$/ }, { line: /said three$/ }])
  text.stop()
  const head = await gateway.inject({ method: 'HEAD', url: '/_fn/logs?follow=1' })
  t.equal(head.status, 200)
  const ended = new Promise(resolve => json.message.once('end', resolve))
  await gateway.close()
  await ended
  t.ok(json.message.complete, 'in good order')
})
