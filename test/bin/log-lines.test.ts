import t from 'tap'
import { toJsonLine, toShownLine } from '../../bin/log-lines.ts'

const TIME = '2026-11-22T03:04:05.678Z'
const CLOCK = [new Date(TIME).getHours(), 4, 5].map(part => String(part).padStart(2, '0')).join(':')
const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736'
const plain = (_style: unknown, text: string): string => text
const named = (style: unknown, text: string): string => `<${String(style)}>${text}</>`

const ACCESS = {
  time: TIME,
  level: 'warn',
  req_id: 'r-1',
  method: 'GET',
  path: '/users/7\u001b[2J',
  fn: 'users/[id]',
  version: 'v2',
  status: 404,
  dur_ms: 3.124,
  bytes_out: 31,
  error: 'not found',
}
const RUNTIME = `${TIME} req=r-1 trace=${TRACE_ID} [node] [fn:hello@default stderr] oops [x] y`
const ERROR = `${TIME} error req=r-1 [node] [fn:hello@default] GET /hello: boom`
const NOTE = '... 12 lines were skipped: the client reads too slowly'

t.test('[bin/logs.2] a line for a person', async t => {
  t.equal(
    toShownLine(JSON.stringify(ACCESS), plain),
    `${CLOCK} 404 GET /users/7\\x1b[2J users/[id]@v2 3.1ms 31B not found r-1`,
  )
  t.match(toShownLine(JSON.stringify(ACCESS), named), `<yellow>404</> GET`)
  t.match(toShownLine(JSON.stringify({ ...ACCESS, status: 200 }), named), '<green>200</>')
  t.match(toShownLine(JSON.stringify({ ...ACCESS, status: 500, fn: null }), named), /<red>500<\/>.*31B <red>not found/)
  t.equal(toShownLine(RUNTIME, plain), `${CLOCK} hello stderr oops [x] y r-1`)
  t.equal(
    toShownLine(ERROR, named),
    `<dim>${CLOCK}</> <red>error</> <cyan>hello</> <red>GET /hello: boom</> <dim>r-1</>`,
  )
  t.equal(toShownLine(`${TIME} info building node/x@default`, plain), `${CLOCK} info building node/x@default`)
  for (const odd of [NOTE, '{"cut', '{}', '[1]', '', 'no time at all']) t.type(toShownLine(odd, plain), 'string')
})

t.test('[bin/logs.3] a line for a program', async t => {
  t.same(JSON.parse(toJsonLine(JSON.stringify(ACCESS))), { file: 'access', ...ACCESS })
  t.notMatch(toJsonLine(JSON.stringify({ ...ACCESS, path: '\u009b\u202e' })), /[\u009b\u202e]/)
  t.same(JSON.parse(toJsonLine(RUNTIME)), {
    file: 'runtime',
    time: TIME,
    msg: 'oops [x] y',
    req_id: 'r-1',
    trace_id: TRACE_ID,
    runtime: 'node',
    fn: 'hello',
    version: 'default',
    stream: 'stderr',
  })
  t.match(JSON.parse(toJsonLine(ERROR)), { file: 'error', level: 'error', msg: 'GET /hello: boom', fn: 'hello' })
  t.same(JSON.parse(toJsonLine(NOTE)), { note: NOTE })
})
