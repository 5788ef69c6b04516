import t from 'tap'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { type GatewayBed, handlerFile, RUNTIMES, serveTree } from '../helpers/gateway-bed.ts'
import { parseAnswers } from '../helpers/raw-http.ts'
import { REFUSED } from '../helpers/refused-requests.ts'
import type { TreeEntry } from '../helpers/tree.ts'

/** Answers `?status=` with `?text=` or the request's body, after `?ms=`. */
const ECHO: Partial<Record<RuntimeName, string>> = {
  node: `export const handler = async e => {
    if (e.query.ms) await new Promise(done => setTimeout(done, Number(e.query.ms)))
    return { status: Number(e.query.status ?? 200), headers: { 'X-Method': e.method }, body: e.query.text ?? e.body ?? '' }
  }\n`,
  python: `import time
def handler(e):
    time.sleep(int(e["query"].get("ms", 0)) / 1000)
    return {"status": int(e["query"].get("status", 200)), "headers": {"X-Method": e["method"]}, "body": e["query"].get("text", e["body"] or "")}
`,
  php: `<?php
function handler($e) {
    usleep(1000 * (int) ($e['query']['ms'] ?? 0));
    return ['status' => (int) ($e['query']['status'] ?? 200), 'headers' => ['X-Method' => $e['method']], 'body' => $e['query']['text'] ?? $e['body'] ?? ''];
}
`,
  lua: `function handler(e)
  local ends = os.clock() + tonumber(e.query.ms or "0") / 1000
  while os.clock() < ends do end
  return { status = tonumber(e.query.status or "200"), headers = { ["X-Method"] = e.method }, body = e.query.text or e.body or "" }
end
`,
}

const CONFIG = { json: { invoke: { methods: ['GET', 'POST'] }, max_body_bytes: 1000 } }

/** `/a` in node, and `/<runtime>` in each. */
function echoTree(): Record<string, TreeEntry> {
  const tree: Record<string, TreeEntry> = { 'a/handler.js': ECHO.node!, 'a/fn.config.json': CONFIG }
  for (const runtime of RUNTIMES) {
    tree[`at-${runtime}/${handlerFile(runtime)}`] = ECHO[runtime]!
    tree[`at-${runtime}/fn.config.json`] = CONFIG
  }
  return tree
}

const TOO_LARGE = '{"error":"payload too large: the limit is 1000 bytes"}'
const paths = RUNTIMES.map(runtime => `/at-${runtime}`)
const get = (target: string, more = ''): string => `GET ${target} HTTP/1.1\r\nHost: h\r\n${more}\r\n`
const post = (target: string, headers: string, body = ''): string =>
  `POST ${target} HTTP/1.1\r\nHost: h\r\n${headers}\r\n\r\n${body}`

let bed: GatewayBed
t.before(async () => {
  bed = await serveTree(t, echoTree())
})

t.test('[http/public.5, http/public.21] HEAD is GET without its body, in every language', async t => {
  for (const path of paths) {
    const target = `${path}?text=hello`
    const got = await fetch(bed.url + target)
    t.equal(await got.text(), 'hello', path)
    const connection = await bed.open()
    connection.write(`HEAD ${target} HTTP/1.1\r\nHost: h\r\n\r\n${get(target, 'Connection: close\r\n')}`)
    await connection.closed()
    const [head, second, ...rest] = connection.text.split(/(?=HTTP\/1\.1 )/)
    t.match(head, /^HTTP\/1\.1 200 OK\r\n/, path)
    t.match(head, /\r\nContent-Length: 5\r\n/, `${path}: the length that GET has`)
    t.match(head, /\r\nX-Method: HEAD\r\n/, `${path}: the handler knows`)
    t.ok(head!.endsWith('\r\n\r\n'), `${path}: no body`)
    t.match(parseAnswers(second ?? '')[0], { status: 200, body: 'hello', headers: { 'x-method': 'GET' } }, path)
    t.same(rest, [], path)
  }
})

t.test('[http/public.5] OPTIONS and every other method: 405 and Allow', async t => {
  for (const path of paths) {
    for (const method of ['OPTIONS', 'PUT', 'DELETE', 'TRACE', 'PROPFIND']) {
      const connection = await bed.open()
      connection.write(`${method} ${path} HTTP/1.1\r\nHost: h\r\n\r\n`)
      const [answer] = await connection.answers(1)
      t.match(answer, { status: 405, headers: { allow: 'GET, HEAD, POST' } }, `${method} ${path}`)
      const { detail, ...body } = JSON.parse(answer!.body) as { error: string; detail: { hint: string } }
      t.same(body, { error: 'method not allowed' })
      t.match(detail, { hint: `claims of this path: GET,POST ${path} is ` })
      connection.socket.destroy()
    }
  }
})

t.test('[http/public.21] 204 and 304 have no body, and the connection goes on', async t => {
  for (const path of paths) {
    const connection = await bed.open()
    for (const status of [204, 304]) connection.write(get(`${path}?status=${status}&text=dropped`))
    connection.write(get(`${path}?text=next`))
    const answers = await connection.answers(3)
    t.same(
      answers.map(({ status, body }) => [status, body]),
      [
        [204, ''],
        [304, ''],
        [200, 'next'],
      ],
      path,
    )
    for (const { headers } of answers.slice(0, 2)) {
      t.notOk('content-length' in headers, path)
      t.notOk('transfer-encoding' in headers, path)
    }
    connection.socket.destroy()
  }
})

t.test('[http/public.13] Expect: 100-continue: 100 for a body that is read, else the final status at once', async t => {
  const expect = (target: string, length: string) => post(target, `Expect: 100-continue\r\n${length}`)
  for (const path of paths) {
    const good = await bed.open()
    good.write(expect(path, 'Content-Length: 5'))
    t.equal((await good.answers(1))[0]?.status, 100, path)
    good.write('hello')
    t.match((await good.answers(2))[1], { status: 200, body: 'hello' }, path)
    good.write(expect(path, 'Transfer-Encoding: chunked'))
    t.equal((await good.answers(3))[2]?.status, 100, `${path}: the connection is kept, and chunks work too`)
    good.write('2\r\nhi\r\n0\r\n\r\n')
    t.match((await good.answers(4))[3], { status: 200, body: 'hi' }, path)
    good.socket.destroy()
  }
  for (const [bytes, status] of [
    [expect('/a', 'Content-Length: 1001'), 413],
    [expect('/nowhere', 'Content-Length: 5'), 404],
    [expect('/a', 'Content-Length: 5').replace('POST', 'PATCH'), 405],
    [post('/a', 'Expect: tea\r\nContent-Length: 5'), 417],
  ] as const) {
    const refused = await bed.open()
    refused.write(bytes)
    const answers = await refused.answers(1)
    t.same(
      answers.map(answer => [answer.status, answer.headers.connection]),
      [[status, 'close']],
      'the body was never sent',
    )
    refused.socket.destroy()
  }
})

t.test('[http/public.12] pipelined requests: answers in order, the slow one first', async t => {
  const connection = await bed.open()
  // Each language's answer waits in turn behind one that is slower to come.
  const targets = [
    ...paths.map((path, i) => `${path}?ms=${100 - 30 * i}&text=${i}`),
    '/a?text=a',
    '/nowhere',
    '/a?text=z',
  ]
  connection.write(targets.map(target => get(target)).join(''))
  const answers = await connection.answers(targets.length)
  t.same(
    answers.map(({ status, body }) => (status === 200 ? body : status)),
    [...paths.map((_, i) => String(i)), 'a', 404, 'z'],
  )
  connection.write(get('/a?text=kept'))
  t.equal((await connection.answers(targets.length + 1)).at(-1)?.body, 'kept')
  connection.socket.destroy()
})

t.test(
  '[http/public.17, http/public.18] 413 to the byte, declared and chunked, and what follows stays right',
  async t => {
    const chunked = (length: number): string =>
      `Transfer-Encoding: chunked\r\n\r\n${(length - 1).toString(16)}\r\n${'c'.repeat(length - 1)}\r\n1\r\nd\r\n0\r\n`
    for (const path of paths) {
      const connection = await bed.open()
      connection.write(post(path, 'Content-Length: 1000', 'x'.repeat(1000)) + post(path, chunked(1000)))
      connection.write(post(path, 'Content-Length: 1001', 'y'.repeat(1001)) + get(`${path}?text=after`))
      const answers = await connection.answers(4)
      t.same(
        answers.map(({ status, body }) => [status, body.length > 20 ? body.length : body]),
        [
          [200, 1000],
          [200, 1000],
          [413, TOO_LARGE.length],
          [200, 'after'],
        ],
        path,
      )
      t.equal(answers[2]!.body, TOO_LARGE, path)
      connection.write(post(path, chunked(1001)) + get(`${path}?text=never`))
      const [tooLong, ...rest] = (await connection.answers(5)).slice(4)
      t.match(tooLong, { status: 413, headers: { connection: 'close' } }, path)
      await connection.closed()
      t.same(rest, [], `${path}: what follows a body of unknown length is not read`)
    }
  },
)

t.test(
  '[http/public.7, http/public.8, http/public.9, http/public.10] what cannot be a request is refused, and nothing behind it is read',
  async t => {
    await Promise.all(
      REFUSED.map(async ([name, bytes, status]) => {
        const connection = await bed.open()
        connection.write(bytes + get('/a?text=smuggled'))
        await connection.closed()
        const answers = parseAnswers(connection.text)
        t.same(
          answers.map(answer => [answer.status, answer.headers.connection, answer.headers['content-type']]),
          [[status, 'close', 'application/json']],
          name,
        )
        t.type(JSON.parse(answers[0]?.body ?? '{}').error, 'string', name)
      }),
    )
    const connection = await bed.open()
    connection.write(`${get('/a?text=first')}GET http://other.test/a?text=absolute HTTP/1.1\r\nHost: h\r\n\r\n`)
    t.same(
      (await connection.answers(2)).map(({ body }) => body),
      ['first', 'absolute'],
      'the absolute form is a request',
    )
    connection.socket.destroy()
  },
)

t.test('[http/public.15] a thousand connections that say nothing: every language still answers', async t => {
  const idle = await Promise.all(Array.from({ length: 1000 }, bed.open))
  const answers = await Promise.all(
    paths.map(path => fetch(`${bed.url}${path}?text=here`).then(answer => answer.text())),
  )
  t.same(
    answers,
    paths.map(() => 'here'),
  )
  t.equal(idle.filter(({ isClosed }) => isClosed).length, 0)
  for (const { socket } of idle) socket.destroy()
})
