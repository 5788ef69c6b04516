import t from 'tap'
import { ControlQuery } from '../../lib/control/endpoint.ts'
import { GatewayError } from '../../lib/core/errors.ts'

const FIELDS = ['fn', 'lines', 'follow', 'file']
const parse = (search: string) => ControlQuery.parse(search, FIELDS)

t.test('[control/control-plane.8] fields are read by their rules', t => {
  const query = parse('fn=a%2Fb+c&lines=20&follow&file=error')
  t.equal(query.text('fn'), 'a/b c')
  t.equal(query.required('fn'), 'a/b c')
  t.equal(query.integer('lines', { min: 1, max: 20, default: 5 }), 20)
  t.equal(query.flag('follow'), true)
  t.equal(query.oneOf('file', ['access', 'error'], 'access'), 'error')
  const nothing = parse('&fn=&')
  t.equal(nothing.text('fn'), null, 'empty counts as not given')
  t.equal(nothing.integer('lines', { min: 1, max: 20, default: 5 }), 5)
  t.equal(nothing.flag('follow'), false)
  t.equal(parse('follow=off').flag('follow'), false)
  t.equal(nothing.oneOf('file', ['access', 'error'], 'access'), 'access')
  t.doesNotThrow(() => ControlQuery.parse('%zz=%00&a&a', 'any'))
  t.throws(() => query.text('other'), /does not list/, 'a fault of the endpoint, not of the client')
  t.end()
})

t.test('[control/control-plane.8] anything else is 400 and says which field breaks which rule', t => {
  const bounds = { min: 1, max: 20, default: 5 }
  const cases: [search: string, read: (query: ControlQuery) => unknown, message: RegExp][] = [
    ['other=1', () => 0, /^query field "other" is not known: it has fn, lines, follow, file$/],
    ['__proto__=1', () => 0, /^query field "__proto__" is not known/],
    ['line=1', () => 0, /^query field "line" is not known: did you mean lines\?$/],
    ['fn=a&fn=a', () => 0, /^query field fn must be given once, got it twice$/],
    ['fn=%zz', () => 0, /^query has a broken percent escape: "%zz"$/],
    ['%c0%ae=1', () => 0, /broken percent escape/],
    ['fn=a%00', () => 0, /^query field fn must be text without NUL characters$/],
    [`fn=${'a'.repeat(5000)}`, () => 0, /^query field fn must have at most 4096 characters$/],
    ['', query => query.required('fn'), /^query field fn is missing: add \?fn=/],
    ['fn=', query => query.required('fn'), /^query field fn is missing/],
    ['lines=x%1b', query => query.integer('lines', bounds), /must be an integer from 1 to 20, got "x\\u001b"$/],
    ['lines=0', query => query.integer('lines', bounds), /from 1 to 20, got "0"/],
    ['lines=21', query => query.integer('lines', bounds), /got "21"/],
    ['lines=1e1', query => query.integer('lines', bounds), /got "1e1"/],
    ['lines=99999999999999999999', query => query.integer('lines', bounds), /must be an integer/],
    ['follow=maybe', query => query.flag('follow'), /^query field follow must be 1 or 0, got "maybe"$/],
    ['file=x', query => query.oneOf('file', ['access', 'error'], 'error'), /must be one of access, error, got "x"$/],
  ]
  for (const [search, read, message] of cases) {
    try {
      read(parse(search))
      t.fail(`${search} was taken`)
    } catch (error) {
      t.ok(error instanceof GatewayError && error.status === 400, search)
      t.match((error as Error).message, message)
    }
  }
  t.throws(() => ControlQuery.parse('a=1', []), { message: 'query field "a" is not known: this endpoint has none' })
  t.end()
})
