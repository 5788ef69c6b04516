import t from 'tap'
import { boolean } from '../../lib/config/fields.ts'
import {
  CONTROL_BODY_BYTES,
  type Endpoint,
  endpoint,
  json,
  type JsonObject,
  readHeader,
  readJson,
} from '../../lib/control/endpoint.ts'
import { serveEndpoints } from '../helpers/control.ts'

const ENDPOINTS: readonly Endpoint[] = [
  endpoint(
    'POST /_fn/things/:id',
    'acts',
    async request => {
      const body = { id: request.params.id, deep: request.query.deep, body: await readJson(request) }
      return json(body, 201, ['X-Mark', readHeader(request, 'x-given') ?? 'none'])
    },
    { deep: boolean() },
  ),
  endpoint('PUT /_fn/short', 'write', async request => json(Object.keys(await readJson(request, 4)).length)),
  endpoint('GET /_fn/own', 'read', () => ({ send: exchange => sendText(exchange) })),
]
const sendText = (exchange: import('../../lib/http/exchange.ts').Exchange) =>
  exchange.responder.send(exchange, 202, ['Content-Type', 'text/plain'], 'own')

const JSON_TYPE = { 'content-type': 'application/json' }

t.test('[control/control-plane.9] an endpoint gets parameters, query, headers and a JSON object', async t => {
  const ask = serveEndpoints(t, ENDPOINTS, { consoleWriteEnabled: true })
  const url = '/_fn/things/a%20b?deep=1'
  const answer = await ask({ method: 'POST', url, headers: { ...JSON_TYPE, 'x-given': 'yes' }, body: '{"a":[1]}' })
  t.equal(answer.status, 201)
  t.same(answer.json(), { id: 'a b', deep: true, body: { a: [1] } })
  t.match(answer.headers, { 'x-mark': 'yes', 'cache-control': 'no-store', 'content-type': 'application/json' })
  t.equal((await ask({ method: 'PUT', url: '/_fn/short', headers: JSON_TYPE, body: '{}' })).json(), 0)
  const own = await ask({ url: '/_fn/own' })
  t.same([own.status, own.headers['content-type'], own.body.toString()], [202, 'text/plain', 'own'])
})

t.test('[control/control-plane.9] a body that is not what it must be is 400 or 413 and says why', async t => {
  const ask = serveEndpoints(t, ENDPOINTS, { consoleWriteEnabled: true })
  const deep = '['.repeat(65) + ']'.repeat(65)
  const cases: [body: string | Buffer, status: number, error: RegExp][] = [
    ['', 400, /^body must be a JSON object, got nothing$/],
    [' ', 400, /^body is not JSON/],
    ['[]', 400, /^body must be a JSON object, got an array of 0 items$/],
    ['null', 400, /got null$/],
    ['"a"', 400, /got a hidden value \(string\)$/],
    ['{"a":1,}', 400, /^body is not JSON: line 1, column 7: a comma before \}$/],
    [`{"a":${deep}}`, 400, /^body is not JSON: line 1, column 69: nested deeper than 64 levels$/],
    [Buffer.from([0x7b, 0xff, 0x7d]), 400, /^body must be a JSON object, got bytes that are not UTF-8$/],
    [`{"a":"${'x'.repeat(CONTROL_BODY_BYTES)}"}`, 413, /1048576/],
  ]
  for (const [body, status, error] of cases) {
    const answer = await ask({ method: 'POST', url: '/_fn/things/1', headers: JSON_TYPE, body })
    const name = body.toString().slice(0, 20)
    t.equal(answer.status, status, name)
    t.match((answer.json() as JsonObject).error, error, name)
  }
  t.equal((await ask({ method: 'PUT', url: '/_fn/short', headers: JSON_TYPE, body: '12345' })).status, 413)
  const unknown = await ask({ method: 'PUT', url: '/_fn/short?x=1', headers: JSON_TYPE, body: '1' })
  t.same([unknown.status, unknown.json()], [400, { error: 'query field "x" is not known: this endpoint has none' }])
})
