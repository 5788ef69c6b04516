import t from 'tap'
import { boolean, integer, oneOf, string } from '../../lib/config/fields.ts'
import { readQuery, required } from '../../lib/control/endpoint.ts'
import { GatewayError } from '../../lib/core/errors.ts'

const FIELDS = {
  fn: string({ maxLength: 4096 }),
  lines: integer({ min: 1, max: 20 }),
  follow: boolean(),
  file: oneOf(['access', 'error', 'all']),
}
const read = (search: string) => readQuery(search, FIELDS)

t.test('[control/control-plane.8] fields are read by their rules', t => {
  t.same(read('fn=a%2Fb+c&lines=20&follow&file=error'), { fn: 'a/b c', lines: 20, follow: true, file: 'error' })
  const nothing = read('&fn=&')
  t.equal(nothing.fn, undefined, 'an empty value counts as not given')
  t.equal(nothing.lines, undefined)
  t.equal(read('follow=off').follow, false)
  t.equal(read('follow=').follow, true)
  t.equal(required(read('fn=a').fn, 'fn'), 'a')
  t.end()
})

t.test('[control/control-plane.8] anything else is 400 and says which field breaks which rule', t => {
  const cases: [search: string, message: RegExp][] = [
    ['other=1', /^query field "other" is not known: it has fn, lines, follow, file$/],
    ['__proto__=1', /^query field "__proto__" is not known/],
    ['line=1', /^query field "line" is not known: did you mean lines\?$/],
    ['fn=a&fn=a', /^query field fn must be given once, got it twice$/],
    ['fn=&fn=a', /^query field fn must be given once, got it twice$/],
    ['fn=%zz', /^query has a broken percent escape: "%zz"$/],
    ['%c0%ae=1', /broken percent escape/],
    ['fn=a%00', /^query field fn must be a text of 1 to 4096 characters on one line, got "a\\u0000" \(string\)$/],
    [`fn=${'a'.repeat(5000)}`, /^query field fn must be a text of 1 to 4096 characters/],
    ['', /^query field fn is missing: add \?fn=/],
    ['fn=', /^query field fn is missing/],
    ['lines=x%1b', /^query field lines must be an integer from 1 to 20, got "x\\u001b" \(string\)$/],
    ['lines=0', /from 1 to 20, got "0"/],
    ['lines=21', /got "21"/],
    ['lines=1e1', /got "1e1"/],
    ['lines=99999999999999999999', /must be an integer/],
    ['follow=maybe', /^query field follow must be one of 1, true, yes, on, 0, false, no, off, got "maybe" \(string\)$/],
    ['file=x', /must be one of access, error, all, got "x" \(string\)$/],
  ]
  for (const [search, message] of cases) {
    try {
      required(read(search).fn, 'fn')
      t.fail(`${search} was taken`)
    } catch (error) {
      t.ok(error instanceof GatewayError && error.status === 400, search)
      t.match((error as Error).message, message)
    }
  }
  t.throws(() => readQuery('a=1', {}), { message: 'query field "a" is not known: this endpoint has none' })
  t.end()
})
