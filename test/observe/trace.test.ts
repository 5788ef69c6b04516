import t from 'tap'
import { readTraceparent, readTracestate, TraceIds, traceIdOf } from '../../lib/observe/trace.ts'

const VALID = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'

t.test('[observe/trace.1] a well-formed traceparent is taken, any other is not', async t => {
  for (const [text, expected] of [
    [VALID, VALID],
    [VALID.replace(/01$/, '00'), VALID.replace(/01$/, '00')],
    [`cc-${VALID.slice(3)}`, VALID],
    [`cc-${VALID.slice(3)}-what-comes-later`, VALID],
    [`cc-${VALID.slice(3)}.what-comes-later`, null],
    [`${VALID}-x`, null],
    [`ff-${VALID.slice(3)}`, null],
    [VALID.toUpperCase(), null],
    [VALID.replace('4bf92f3577b34da6a3ce929d0e0e4736', '0'.repeat(32)), null],
    [VALID.replace('00f067aa0ba902b7', '0'.repeat(16)), null],
    [VALID.replace('4bf9', '4bg9'), null],
    [` ${VALID}`, null],
    [`${VALID}, ${VALID}`, null],
    [`${VALID}\n`, null],
    ['', null],
  ] as const) {
    t.equal(readTraceparent(text), expected, JSON.stringify(text))
  }
  t.equal(traceIdOf(VALID), '4bf92f3577b34da6a3ce929d0e0e4736')
})

t.test('[observe/trace.2] a tracestate is taken whole or not at all', async t => {
  const many = (count: number): string => Array.from({ length: count }, (_, i) => `k${i}=v`).join(',')
  for (const [text, expected] of [
    ['congo=t61rcWkgMzE', 'congo=t61rcWkgMzE'],
    ['rojo=00f067aa0ba902b7,congo=t61rcWkgMzE', 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE'],
    [' a=1 ,\tb=2 ,, ', 'a=1,b=2'],
    ['0tenant@sys=1', '0tenant@sys=1'],
    ['a_-*/=="\\', null],
    ['a_-*/="\\', 'a_-*/="\\'],
    ['a= 1', 'a= 1'],
    [many(32), many(32)],
    [many(33), null],
    ['a=1,a=2', null],
    ['A=1', null],
    ['a', null],
    ['a=', null],
    ['=1', null],
    ['a=é', null],
    ['a=1\u0000', null],
    [`a=${'v'.repeat(256)}`, `a=${'v'.repeat(256)}`],
    [`a=${'v'.repeat(257)}`, null],
    [`a=${'v'.repeat(250)},b=${'v'.repeat(250)},c=${'v'.repeat(10)}`, null],
    ['', null],
    [',', null],
  ] as const) {
    t.equal(readTracestate(text), expected, JSON.stringify(text))
  }
})

t.test('[observe/trace.3] without a trace of the client a new one begins', async t => {
  const ids = new TraceIds()
  const call = () => ({ trace: '', traceState: null as string | null, span: null })
  const joined = (traceparent: string | null, tracestate: string | null) => {
    const target = call()
    ids.join(target, traceparent, tracestate)
    return target
  }
  t.same(joined(VALID, 'a=1'), { trace: VALID, traceState: 'a=1', span: null })
  t.same(joined(VALID, 'A'), { trace: VALID, traceState: null, span: null })
  t.same(joined(VALID, null), { trace: VALID, traceState: null, span: null })
  const fresh = joined('nonsense', 'a=1')
  t.match(fresh, { trace: /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/, traceState: null, span: null })
  t.equal(readTraceparent(fresh.trace), fresh.trace)
  t.equal(joined(null, 'a=1').traceState, null)

  const span = { trace: VALID, traceState: 'b=2' }
  const spanned = { trace: '', traceState: null, span }
  ids.join(spanned, fresh.trace, 'a=1')
  t.match(spanned, { trace: VALID, traceState: 'b=2' }, 'a span decides')

  // More than one filling of the pool.
  const made = Array.from({ length: 2000 }, () => ids.next())
  for (const trace of made) if (readTraceparent(trace) !== trace) t.fail(trace)
  t.equal(new Set(made.map(traceIdOf)).size, made.length)
  t.equal(new Set(made.map(trace => trace.slice(36, 52))).size, made.length)
  t.not(new TraceIds().next(), new TraceIds().next())
})
